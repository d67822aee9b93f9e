"""NeMo-RL's preference rows: {"context": messages, "completions": [{"rank": 0, "completion": messages}, ...]}."""

from collections.abc import Sequence
from functools import partial

from actors.errors import Rejected
from actors.records import Reason
from pipelines.data.formats.content import entries, field, is_conversation, question, reply, with_row_system
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape


def looks_like(row: Row) -> bool:
    """A context, and completions of which at least one holds a `completion`."""
    completions = row.get("completions")
    ranked = isinstance(completions, list) and any(
        isinstance(completion, dict) and "completion" in completion for completion in completions
    )
    return is_conversation(row.get("context")) and ranked


def read(row: Row) -> RowRequests:
    """`rank[0]`, `rank[1]`, ... in row order; `completions[0]`, ... if the ranks don't tell one from the other."""
    completions = entries(field(row, "completions"))
    return gather(
        {
            name: partial(_exchange, row, completion)
            for name, completion in zip(_names(completions), completions, strict=True)
        }
    )


def _names(completions: Sequence[object]) -> list[str]:
    ranks = [completion.get("rank") if isinstance(completion, dict) else None for completion in completions]
    if all(type(rank) is int for rank in ranks) and len(set(ranks)) == len(ranks):
        return [f"rank[{rank}]" for rank in ranks]
    return [f"completions[{i}]" for i in range(len(completions))]


def _exchange(row: Row, completion: object) -> Exchange:
    if not isinstance(completion, dict):
        raise Rejected(Reason.WRONG_TYPE, "a completion that isn't an object")
    return reply(with_row_system(row, question(field(row, "context"))), field(completion, "completion"))


SHAPE = Shape(
    "nemo-rl",
    "ranked completions of a conversation (NeMo-RL)",
    "`context`, a list of messages, and `completions`, a list of {rank, completion}",
    looks_like,
    read,
    reads=("context", "completions"),
)
