"""OpenAI's preference files, as Fireworks and Together take them, too.

{"input": {"messages": [turn, ...]}, "preferred_output": [turn, ...], "non_preferred_output": [turn, ...]}
"""

from functools import partial

from pipelines.data.formats.content import conversation, field, is_conversation, reply, with_row_system
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

SIDES = {"chosen": "preferred_output", "rejected": "non_preferred_output"}


def looks_like(row: Row) -> bool:
    """Messages under `input`, and both outputs."""
    given = row.get("input")
    return isinstance(given, dict) and is_conversation(given.get("messages")) and all(key in row for key in SIDES.values())


def read(row: Row) -> RowRequests:
    """`chosen` and `rejected`."""
    return gather({side: partial(_exchange, row, key) for side, key in SIDES.items()})


def _exchange(row: Row, key: str) -> Exchange:
    given = field(row, "input")
    messages = given.get("messages") if isinstance(given, dict) else given
    return reply(with_row_system(row, conversation(messages)), field(row, key))


SHAPE = Shape(
    "openai-preference",
    "messages and a preferred and another output (OpenAI's preference files)",
    "`input`, with `messages`, and `preferred_output` and `non_preferred_output`, lists of messages",
    looks_like,
    read,
    reads=("input", *SIDES.values()),
)
