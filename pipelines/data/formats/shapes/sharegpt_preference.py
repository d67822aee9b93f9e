"""LLaMA-Factory's preference pairs: a conversation that ends with the user, and a chosen and a rejected turn.

{"conversations" | "messages": [turn, ...], "chosen": turn | str, "rejected": turn | str, "system"?: str}, where a turn
is {"from", "value"} or {"role", "content"}.
"""

from functools import partial

from pipelines.data.formats.content import (
    answer,
    conversation,
    field,
    is_conversation,
    is_message,
    refuse_answered,
    with_row_system,
)
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

SIDES = ("chosen", "rejected")


def looks_like(row: Row) -> bool:
    """A conversation and two sides, each text or a turn; with a `prompt` it would be another kind of pair."""
    sides = [row.get(side) for side in SIDES]
    readable = all(is_message(side) or isinstance(side, str) for side in sides)
    return is_conversation(row.get(_key(row))) and readable and row.get("prompt") is None


def _key(row: Row) -> str:
    return "messages" if "messages" in row and "conversations" not in row else "conversations"


def read(row: Row) -> RowRequests:
    """`chosen` and `rejected`."""
    return gather({side: partial(_exchange, row, side) for side in SIDES})


def _exchange(row: Row, side: str) -> Exchange:
    turns = conversation(field(row, _key(row)))
    return Exchange(refuse_answered(with_row_system(row, turns)), answer(field(row, side)))


SHAPE = Shape(
    "sharegpt-preference",
    "a conversation and a chosen and a rejected turn to go on with (LLaMA-Factory)",
    "`conversations` (or `messages`), a list of turns, and `chosen` and `rejected`, a turn each",
    looks_like,
    read,
    reads=("conversations", "messages", *SIDES),
)
