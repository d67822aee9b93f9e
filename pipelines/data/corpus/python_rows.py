"""Rows of Arrow as objects of Python, also those with values that Python has no object for.

Arrow's `to_pylist` raises for a whole table at a single one of them: a time outside of the years 1 to 9999 (such as the
`infinity` of a database), one in a zone that this machine doesn't know, text that isn't UTF-8. No row may end a run.

Ray has columns of pickled objects and of tensors, whose values are arrays of numpy: these become lists.
"""

from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa


class Unconvertible(Enum):
    """What stands for a value that Python has no object for: no text, and not null, or a row would be read without it."""

    VALUE = "unconvertible"


# Arrow's own errors and those of decoding text are ValueErrors; a time zone that this machine lacks is one, too.
_ERRORS = (OverflowError, ValueError)


def python_rows(table: pa.Table | pa.RecordBatch, unconvertible: object = Unconvertible.VALUE) -> list[dict[str, Any]]:
    """The rows as `to_pylist` gives them, with `unconvertible` in place of each value that Python has no object for.

    Of a list or a struct only that member is replaced: `filter` writes the others, and a conversation with it is rejected.
    """
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except _ERRORS:
        columns = [_values(column, unconvertible) for column in table.columns]
        rows = [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    for name in (field.name for field in table.schema if is_container(field.type)):
        for row in rows:
            row[name] = plain(row[name])
    return rows


def is_container(arrow_type: pa.DataType) -> bool:
    """Whether values of this type may be objects that Arrow knows nothing of.

    Ray has extension types for columns of pickled objects and of tensors.
    """
    return isinstance(arrow_type, pa.BaseExtensionType)


def plain(value: Any) -> Any:
    """A value with lists in place of numpy's arrays, and None in place of NaN and pandas' NA and NaT.

    Members of lists and of objects are replaced, too.
    """
    import pandas as pd  # comes with Ray Data, whose values alone need it

    if isinstance(value, np.ndarray | list | tuple):
        return [plain(member) for member in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value


def _values(column: pa.Array | pa.ChunkedArray, unconvertible: object) -> list[Any]:
    try:
        return column.to_pylist()
    except _ERRORS:
        return [_value(scalar, unconvertible) for scalar in column]


def _value(scalar: pa.Scalar, unconvertible: object) -> Any:
    try:
        return scalar.as_py()
    except _ERRORS:
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(member, unconvertible) for name, member in scalar.items()}
        if isinstance(scalar, pa.ListScalar) and not isinstance(scalar, pa.MapScalar):
            return _values(scalar.values, unconvertible)
        return unconvertible
