"""Rows that are a conversation, whose last turn or turns are judged, or which a policy goes on with."""

from dataclasses import replace

from actors.records import Reason, Role
from pipelines.data.formats.content import is_conversation, role_of
from pipelines.data.formats.declare import conversations
from pipelines.data.formats.own_columns import OwnColumns
from pipelines.data.formats.rows import Row, RowRequests
from pipelines.data.formats.shapes.responses import is_rollout

_BATTLE = ("conversation_a", "conversation_b")

_EACH = (
    conversations(
        "messages",
        key="messages",
        about="a conversation in OpenAI's form",
        turn="{role, content}",
        layout='{"messages": [{"role": ..., "content": ...}, ...]}',
        is_other=is_rollout,  # beside whose prompt some data sets have their messages, too
    ),
    conversations(
        "conversation",
        key="conversation",
        about="a logged chat (WildChat, LMSYS-Chat-1M)",
        turn="{role, content}",
        layout='{"conversation": [{"role": ..., "content": ...}, ...]}',
    ),
    conversations(
        "sharegpt",
        key="conversations",
        about="a conversation in ShareGPT's form",
        turn="{from, value}",
        layout=(
            '{"conversations": [{"from": "human" | "gpt" | ..., "value": str}, ...], "system"?: str}\n\n'
            "Turns that have OpenAI's keys, as some of these files do, are read as what they are."
        ),
        is_other=lambda row: isinstance(row.get("mask"), str),  # which tells the roles, as in NeMo's rows
    ),
)
_SIDES = OwnColumns(None, None, conversations=_BATTLE).shape()


def _read_battle(row: Row) -> RowRequests:
    # Arena's rows of 2025 are votes: from the second on, `conversation_a` and `_b` hold the turns since the vote before.
    order = row.get("evaluation_order")
    if isinstance(order, int) and order > 1:
        return _SIDES.read(row).refused(
            Reason.CONTEXT_GAP, f"vote {order} of a conversation, whose earlier turns aren't in it"
        )
    # In mt_bench_human_judgments a vote on turn 1 has the turn after it, too; in Chatbot Arena `turn` is how many there are.
    count = row.get("turn")
    if type(count) is not int or count < 1:
        return _SIDES.read(row)
    return _SIDES.read({**row, **{side: _until(row[side], count) for side in _BATTLE if side in row}})


def _until(turns: object, count: int) -> object:
    starts = [place for place, turn in enumerate(turns) if role_of(turn) is Role.USER] if isinstance(turns, list) else []
    return turns[: starts[count]] if isinstance(turns, list) and len(starts) > count else turns


_ARENA = replace(
    _SIDES,
    name="arena",
    about="two models' conversations with the same user (Chatbot Arena)",
    needs="`conversation_a` and `conversation_b`, each a list of messages",
    looks_like=lambda row: all(is_conversation(row.get(side)) for side in _BATTLE),
    read=_read_battle,
    layout='{"conversation_a": [turn, ...], "conversation_b": [turn, ...], "winner": str, ...}',
)
SHAPES = (*(judged for judged, _ in _EACH), _ARENA)
PROMPT_SHAPES = tuple(open_ended for _, open_ended in _EACH)
