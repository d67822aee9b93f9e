"""Lines of JSONL for rows of a scored corpus: the bytes of the input record, with our fields added to its object.

The record isn't parsed and written again, as that would round numbers, drop one of two equal keys and change how text is
escaped: our fields are inserted before its closing brace. A byte-order mark before it and white space after it are removed,
and line breaks between its tokens (as elements of a JSON array may have) become spaces, so that it is one line.
"""

import base64
from collections.abc import Mapping
from typing import Any

from pipelines.folders.run_folder.json_lines import encode

_BOM = b"\xef\xbb\xbf"
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


def splice(record: bytes, fields: Mapping[str, Any]) -> bytes:
    """Add fields to the end of a record, a JSON object that has no fields of these names.

    Neither is checked here: of another record the line would be no valid JSON, or have one key twice.
    """
    body = one_line(record)[:-1]
    if not fields:
        return body + b"}"
    # Before its last brace only an empty object has another brace that opens: a member ends with a value (`"`, `}`, `]`, a
    # digit, `true`, `null`). So `{}` needs no comma, and `{"a": {}}` does.
    separator = b"" if body.rstrip().endswith(b"{") else b","
    return body + separator + encode(fields)[1:]


def wrap(record: bytes | None, fields: Mapping[str, Any]) -> bytes:
    """A JSON object with the fields and the whole record in one more: for records that `splice` can't take.

    The field `record` is the record's text, null if it was too large to be read; bytes that aren't UTF-8 go into
    `record_base64`.
    """
    # The record's text as a string, not as JSON: it may be broken, or hold numbers that would be rounded.
    try:
        record_field = {"record": None if record is None else record.decode()}
    except UnicodeDecodeError:
        record_field = {"record_base64": base64.b64encode(record or b"").decode()}
    return encode(record_field | dict(fields))


def one_line(record: bytes) -> bytes:
    """The bytes of a record on one line, without a line break at the end."""
    # JSON writes a line break inside a text as an escape: a raw one stands between tokens, where a space means the same.
    return record.removeprefix(_BOM).rstrip(b" \t\r\n").translate(_ONE_LINE)
