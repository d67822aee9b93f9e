"""Values of Arrow as lines of JSON."""

import datetime
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from pipelines.data.corpus.corpus_files import is_utf8
from pipelines.data.corpus.python_rows import Unconvertible


def encode(row: Mapping[str, Any]) -> bytes:
    """Arrow's values (`to_pylist`) as a JSON object. Floats round-trip exactly; dates and times are ISO 8601; decimals text.

    NaN and infinities become null: JSON has none, and most readers refuse a line with one. So do callers make of values
    that Python has no object for (`python_rows`), such as the infinities of times.
    """
    return orjson.dumps(row, _text, orjson.OPT_PASSTHROUGH_DATETIME)


def _text(value: object) -> str:
    # Not orjson's own way with times: it drops the nanoseconds of pandas' Timestamp, which is a datetime, too.
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def exact_number(text: str) -> object:
    """A number of JSON as Python's, or in its own digits, which `encode` writes, where Python's or orjson's is another.

    Python rounds 0.1000000000000000055 to 0.1, and orjson refuses integers beyond 64 bits: such digits come out as they
    were.
    """
    value = float(text) if text.strip("-0123456789") else int(text)
    if isinstance(value, int):
        # What orjson writes: 64 bits, with or without a sign.
        is_same = -(2**63) <= value < 2**64
    else:
        # `repr` is the shortest text that reads back to the same float, and what orjson writes.
        is_same = Decimal(repr(value)) == Decimal(text)
    return value if is_same else orjson.Fragment(text)


def is_exact(value: object) -> bool:
    """Whether `encode` writes a value as it is: no infinity, no lone surrogate, and nothing that Python has no object for.

    NaN counts as null.
    """
    if isinstance(value, str):
        return value.isascii() or is_utf8(value)
    if isinstance(value, dict):
        return all(is_exact(name) and is_exact(member) for name, member in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_exact, value))
    return not isinstance(value, Unconvertible | bytes | datetime.timedelta) and value not in (math.inf, -math.inf)


def has_json(kind: pa.DataType) -> bool:
    """Whether `encode` can write values of an Arrow type: all but bytes, durations and intervals."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_json(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return has_json(kind.value_type)
    if pa.types.is_nested(kind):
        return all(has_json(kind.field(index).type) for index in range(kind.num_fields))
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    bits = binary or pa.types.is_fixed_size_binary(kind)
    return not (bits or pa.types.is_duration(kind) or pa.types.is_interval(kind))


def written_type(kind: pa.DataType) -> pa.DataType:
    """The type that a reader finds in what `encode` writes of an Arrow type; maps, which have none, stay what they are.

    `datasets` needs the types in a card, since it would take them from the first rows, where a column may be null.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return written_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return written_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(written_type(field.type)) for field in kind])
    if pa.types.is_nested(kind) and not pa.types.is_map(kind):
        return pa.list_(written_type(kind.value_type))
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    return kind
