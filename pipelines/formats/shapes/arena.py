"""Chatbot Arena's battles: {"conversation_a": [turn, ...], "conversation_b": [turn, ...], "winner": str, ...}."""

from functools import partial

from pipelines.formats.content import conversation, field, final, is_conversation, with_row_system
from pipelines.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.formats.shape import Shape

SIDES = ("conversation_a", "conversation_b")


def looks_like(row: Row) -> bool:
    """Two conversations."""
    return all(is_conversation(row.get(side)) for side in SIDES)


def read(row: Row) -> RowRequests:
    """The last turn of each, under its key: one request, or two where their contexts differ."""
    return gather({side: partial(_exchange, row, side) for side in SIDES})


def _exchange(row: Row, side: str) -> Exchange:
    return final(with_row_system(row, conversation(field(row, side))))


SHAPE = Shape(
    "arena",
    "two models' conversations with the same user (Chatbot Arena)",
    "`conversation_a` and `conversation_b`, each a list of messages",
    looks_like,
    read,
    reads=SIDES,
)
