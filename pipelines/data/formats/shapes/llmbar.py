"""LLMBar: {"input": str, "output_1": str, "output_2": str, "label": 1 | 2}, the number of the better one."""

from functools import partial

from pipelines.data.formats.content import exchange, field
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

PAIR = ("output_1", "output_2")


def looks_like(row: Row) -> bool:
    """An input and two numbered outputs; with an `instruction` the input would only be a part of the question."""
    return isinstance(row.get("input"), str) and all(key in row for key in PAIR) and row.get("instruction") is None


def read(row: Row) -> RowRequests:
    """`output_1` and `output_2`."""
    return gather({key: partial(_exchange, row, key) for key in PAIR})


def _exchange(row: Row, key: str) -> Exchange:
    return exchange(row, "input", field(row, key))


SHAPE = Shape(
    "llmbar",
    "an input and two outputs to it (LLMBar)",
    "`input`, text, and `output_1` and `output_2`",
    looks_like,
    read,
    reads=("input", *PAIR),
)
