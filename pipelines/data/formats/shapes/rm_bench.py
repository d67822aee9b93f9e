"""RM-Bench and RewardBench 2: {"prompt": str | messages, "chosen": [str, ...], "rejected": [str, ...]}.

RM-Bench has three of each, in order of style; RewardBench 2 has lists of any length. Either side may also be one
string, but not both: that is a preference pair.
"""

from collections.abc import Callable
from functools import partial

from pipelines.data.formats.content import field, is_conversation, prompt, refuse_answered, text
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

SIDES = ("chosen", "rejected")


def looks_like(row: Row) -> bool:
    """A prompt, and two sides of which at least one is a list that isn't a conversation."""
    sides = [row.get(side) for side in SIDES]
    return row.get("prompt") is not None and any(map(_several, sides)) and not any(map(is_conversation, sides))


def _several(side: object) -> bool:
    return isinstance(side, list) and bool(side) and not any(isinstance(item, dict) for item in side)


def read(row: Row) -> RowRequests:
    """`chosen[0]`, `chosen[1]`, ..., `rejected[0]`, ...; a side that isn't a list, or is empty, has its own name."""
    return gather({name: reader for side in SIDES for name, reader in _responses(row, side).items()})


def _responses(row: Row, side: str) -> dict[str, Callable[[], Exchange]]:
    value = row.get(side)
    if isinstance(value, list) and value:
        return {f"{side}[{i}]": partial(_exchange, row, item) for i, item in enumerate(value)}
    return {side: lambda: _exchange(row, field(row, side))}


def _exchange(row: Row, value: object) -> Exchange:
    return Exchange(refuse_answered(prompt(row)), text(value))


SHAPE = Shape(
    "rm-bench",
    "several chosen and several rejected responses to one prompt (RM-Bench, RewardBench 2)",
    "`prompt`, text or messages, and `chosen` and `rejected`, lists of text",
    looks_like,
    read,
    reads=("prompt", *SIDES),
)
