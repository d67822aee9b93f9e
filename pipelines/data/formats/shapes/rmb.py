"""RMB: a conversation and what several models answered, as pairs or as the best of several.

{"pair_uid": str, "conversation_input": messages, "chosen": {"llm_name", "answer"}, "reject": the same, ...}
{"bon_uid": str, "conversation_input": messages, "bon_best": {"llm_name", "answer"}, "loser_list": [the same, ...], ...}

The responses are called as in the other benchmarks: `chosen` and `rejected` of a pair; `chosen[0]`, the best, and
`rejected[0]`, `rejected[1]`, ...
"""

from functools import partial

from actors.errors import Rejected
from actors.records import Reason
from pipelines.data.formats.content import entries, exchange, field, is_conversation
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

_BEST, _LOSERS = "bon_best", "loser_list"


def looks_like(row: Row) -> bool:
    """A conversation under RMB's key, with two sides, or with the best and the others."""
    sides = any(all(key in row for key in keys) for keys in (("chosen", "reject"), (_BEST, _LOSERS)))
    return is_conversation(row.get("conversation_input")) and sides


def read(row: Row) -> RowRequests:
    """`chosen` and `rejected`, or `chosen[0]` and `rejected[0]`, `rejected[1]`, ...; all of them if the row has all."""
    sides: dict[str, object] = {}
    if _LOSERS in row:
        losers = enumerate(entries(row[_LOSERS]))
        sides = {"chosen[0]": row.get(_BEST), **{f"rejected[{i}]": loser for i, loser in losers}}
    if not sides or "chosen" in row or "reject" in row:
        sides |= {"chosen": row.get("chosen"), "rejected": row.get("reject")}
    return gather({name: partial(_exchange, row, side) for name, side in sides.items()})


def _exchange(row: Row, side: object) -> Exchange:
    if side is None:
        raise Rejected(Reason.MISSING_FIELD, "a side without a response")
    if not isinstance(side, dict):
        raise Rejected(Reason.WRONG_TYPE, "a response that isn't an object")
    return exchange(row, "conversation_input", field(side, "answer"))


SHAPE = Shape(
    "rmb",
    "a conversation with a chosen and a rejected response, or with the best of several and the others (RMB)",
    "`conversation_input`, a list of messages, with `chosen` and `reject`, or with `bon_best` and `loser_list`",
    looks_like,
    read,
    reads=("conversation_input", "chosen", "reject", _BEST, _LOSERS),
)
