"""JudgeBench: {"question": str, "response_A": str, "response_B": str, "label": "A>B" | "B>A", ...}."""

from functools import partial

from pipelines.data.formats.content import exchange, field
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

RESPONSES = {"A": "response_A", "B": "response_B"}


def looks_like(row: Row) -> bool:
    """The three keys, whatever they hold: no other data has them."""
    return "question" in row and all(key in row for key in RESPONSES.values())


def read(row: Row) -> RowRequests:
    """`A` and `B`, in that order."""
    return gather({name: partial(_exchange, row, key) for name, key in RESPONSES.items()})


def _exchange(row: Row, key: str) -> Exchange:
    return exchange(row, "question", field(row, key))


SHAPE = Shape(
    "judgebench",
    "JudgeBench: a question with responses A and B",
    "`question`, `response_A` and `response_B`",
    looks_like,
    read,
    reads=("question", *RESPONSES.values()),
)
