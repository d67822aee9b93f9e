"""NeMo-RL's preference rows: {"context": messages, "completions": [{"rank": 0, "completion": messages}, ...]}."""

from collections.abc import Sequence
from functools import partial

from actors.errors import Rejected
from actors.records import Reason
from pipelines.formats.content import entries, field, is_conversation, question, reply, with_row_system
from pipelines.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.formats.shape import Shape


def looks_like(row: Row) -> bool:
    """A context, and completions of which at least one holds a `completion`."""
    found = row.get("completions")
    ranked = isinstance(found, list) and any(isinstance(one, dict) and "completion" in one for one in found)
    return is_conversation(row.get("context")) and ranked


def read(row: Row) -> RowRequests:
    """`rank[0]`, `rank[1]`, ... in row order; `completions[0]`, ... if the ranks don't tell one from the other."""
    found = entries(field(row, "completions"))
    return gather({name: partial(_exchange, row, one) for name, one in zip(_names(found), found, strict=True)})


def _names(found: Sequence[object]) -> list[str]:
    ranks = [one.get("rank") if isinstance(one, dict) else None for one in found]
    if all(type(rank) is int for rank in ranks) and len(set(ranks)) == len(ranks):
        return [f"rank[{rank}]" for rank in ranks]
    return [f"completions[{at}]" for at in range(len(found))]


def _exchange(row: Row, one: object) -> Exchange:
    if not isinstance(one, dict):
        raise Rejected(Reason.WRONG_TYPE, "a completion that isn't an object")
    return reply(with_row_system(row, question(field(row, "context"))), field(one, "completion"))


SHAPE = Shape(
    "nemo-rl",
    "ranked completions of a conversation (NeMo-RL)",
    "`context`, a list of messages, and `completions`, a list of {rank, completion}",
    looks_like,
    read,
)
