"""The types of the columns of an export as readers of its JSON lines find them: its card names them (`dataset_card`).

As text, so that it can stand in a piece's note: a schema in Arrow's format, in base64; empty without rows.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipelines.folders.run_folder.json_lines import written_type

UNKNOWN = "unknown"  # the rows have a column of types that don't go together

_BATCH_ROWS = 1000  # to find their types takes some 5 µs a row; of a row alone, 50 times as long


class RowTypes:
    """Collects the types of rows, a batch at a time."""

    def __init__(self) -> None:
        self._text = ""
        self._waiting: list[Mapping[str, Any]] = []

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._waiting += rows
        if len(self._waiting) >= _BATCH_ROWS:
            self._text, self._waiting = self.text(), []

    def text(self) -> str:
        return merge(self._text, _types_of(self._waiting))


def merge(text: str, other: str) -> str:
    """The types of the rows of both."""
    if UNKNOWN in (text, other) or not (text and other):
        return UNKNOWN if UNKNOWN in (text, other) else text or other
    try:
        return _text(pa.unify_schemas([_schema(text), _schema(other)], promote_options="permissive"))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return UNKNOWN


def schema_of(text: str) -> pa.Schema | None:
    """The columns; None if there are no rows, or their types don't go together."""
    return _schema(text) if text and text != UNKNOWN else None


def _types_of(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    try:
        return _text(pa.schema(list(written_type(pa.array(rows).type))))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return UNKNOWN  # mixed types, integers above 64 bits, lone surrogates: JSON has them, and Arrow hasn't


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()
