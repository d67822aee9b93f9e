"""ms-swift's preference rows: a conversation, and what was rejected in place of its last turn.

{"messages": [turn, ...], "rejected_response": str} or {"messages": [turn, ...], "rejected_messages": [turn, ...]}, where
the rejected messages are the whole conversation, as the others are.
"""

from functools import partial

from pipelines.data.formats.content import conversation, field, final, is_conversation, reply, with_row_system
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

REJECTED = ("rejected_response", "rejected_messages")


def looks_like(row: Row) -> bool:
    """A conversation, and one of the two keys of what was rejected."""
    return is_conversation(row.get("messages")) and sum(row.get(key) is not None for key in REJECTED) == 1


def read(row: Row) -> RowRequests:
    """`chosen` and `rejected`."""
    rejected = next((key for key in REJECTED if row.get(key) is not None), REJECTED[0])
    return gather({"chosen": partial(_chosen, row), "rejected": partial(_rejected, row, rejected)})


def _chosen(row: Row) -> Exchange:
    return final(with_row_system(row, conversation(field(row, "messages"))))


def _rejected(row: Row, key: str) -> Exchange:
    value = field(row, key)
    if isinstance(value, list):
        return final(with_row_system(row, conversation(value)))
    return reply(_chosen(row).context, value)


SHAPE = Shape(
    "swift-preference",
    "a conversation and what was rejected in place of its last turn (ms-swift)",
    "`messages`, a list of messages, and `rejected_response`, text, or `rejected_messages`, a list of messages",
    looks_like,
    read,
    reads=("messages", *REJECTED),
)
