"""The types of the columns of an export, found while its rows are written: its card names them (`dataset_card`).

As text, so that it can stand in a piece's note: a schema in Arrow's format, in base64; empty without rows.
"""

import base64
import json
from collections.abc import Sequence

import pyarrow as pa

UNKNOWN = "unknown"
"""The rows have a column of types that don't go together."""

_BATCH_ROWS = 1000


class RowTypes:
    """Collects the types of rows as they stand in their lines of JSON, a batch at a time."""

    def __init__(self) -> None:
        self._text = ""
        self._waiting: list[bytes] = []

    def add(self, lines: Sequence[bytes]) -> None:
        """Add rows, a line of JSON each."""
        self._waiting += lines
        if len(self._waiting) >= _BATCH_ROWS:
            self._text, self._waiting = self.text(), []

    def text(self) -> str:
        """The types of all rows so far."""
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


def _types_of(lines: Sequence[bytes]) -> str:
    if not lines:
        return ""
    try:
        return _text(pa.schema(list(pa.array([json.loads(line) for line in lines]).type)))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return UNKNOWN


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()
