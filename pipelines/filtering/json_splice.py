"""One line of JSONL for a row of a scored corpus: the bytes of its record, and our fields in the same object.

The record isn't parsed and written again, which would round numbers, drop one of two equal keys and change how the text
is escaped: our fields go in front of its closing brace. Only a byte-order mark before it and blanks after it go, and
line breaks (which an array's elements may have between their values) become spaces, for a line to be one.
"""

import base64
import datetime
import decimal
import json
import math
from collections.abc import Mapping
from typing import Any

_BOM = b"\xef\xbb\xbf"
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


def splice(record: bytes, fields: Mapping[str, Any]) -> bytes:
    """A record that is a JSON object, with more fields at its end. They must be new to it."""
    body = one_line(record)[:-1]
    if not fields:
        return body + b"}"
    separator = b"" if body.rstrip().endswith(b"{") else b", "
    return body + separator + encode(fields)[1:]


def wrap(record: bytes | None, fields: Mapping[str, Any]) -> bytes:
    """A record that isn't an object, or has fields of these names itself, whole in a field of its own.

    `record` is its text, or null where it was too large to be read; bytes that aren't UTF-8 are in `record_base64`.
    """
    try:
        own = {"record": None if record is None else record.decode()}
    except UnicodeDecodeError:
        own = {"record_base64": base64.b64encode(record or b"").decode()}
    return encode(own | dict(fields))


def one_line(record: bytes) -> bytes:
    """The bytes of a record as a line."""
    return record.removeprefix(_BOM).rstrip(b" \t\r\n").translate(_ONE_LINE)


def encode(row: Mapping[str, Any]) -> bytes:
    """Arrow's values as a JSON object. Floats read back exactly; moments are ISO 8601; decimals are text.

    JSON has no NaN and no infinity, and most readers refuse a line that holds one: these are null.
    """
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_text).encode()
    except ValueError:
        return json.dumps(_finite(row), ensure_ascii=False, default=_text).encode()


def _text(value: object) -> str:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):  # pandas' Timestamp is one too
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
