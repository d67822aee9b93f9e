"""OpenAI messages: {"messages": [{"role": ..., "content": ...}, ...]}."""

from functools import partial

from actors.errors import Rejected
from actors.records import Message, Reason
from pipelines.formats.content import conversation, entries, final, is_conversation, message
from pipelines.formats.rows import ONLY_RESPONSE, Exchange, Row, RowRequests, gather
from pipelines.formats.shape import Shape

MAX_TURNS = 4096
"""Assistant turns after this many messages aren't judged one by one: their contexts grow with the square of the
number of turns (at 4,096 messages 34 MB of pointers, at a million 2 TB)."""


def looks_like(row: Row) -> bool:
    """A list of messages, in a row that isn't a preference pair (ultrafeedback_binarized repeats `chosen` there)."""
    return is_conversation(row.get("messages")) and not ("chosen" in row and "rejected" in row)


def read(row: Row) -> RowRequests:
    """The final assistant turn."""
    return gather({ONLY_RESPONSE: lambda: final(conversation(row.get("messages")))})


def read_turns(row: Row) -> RowRequests:
    """Every assistant turn, named by its position: `turn[3]` answers messages 0 to 2.

    A turn that can't be read spoils itself and all that follow, for it is in their context; those before it stand.
    """
    found = entries(row.get("messages"))
    turns, spoiled = _readable(found)
    positions = [at for at, entry in enumerate(found) if isinstance(entry, dict) and entry.get("role") == "assistant"]
    if not positions:
        raise spoiled or Rejected(Reason.NO_FINAL_ASSISTANT)
    return gather({f"turn[{at}]": partial(_turn, turns, spoiled, at) for at in positions})


def _readable(found: list[object]) -> tuple[tuple[Message, ...], Rejected | None]:
    turns: list[Message] = []
    for entry in found:
        try:
            turns.append(message(entry))
        except Rejected as error:
            return tuple(turns), error
    return tuple(turns), None


def _turn(turns: tuple[Message, ...], spoiled: Rejected | None, at: int) -> Exchange:
    if spoiled is not None and at >= len(turns):
        raise spoiled
    if at >= MAX_TURNS:
        raise Rejected(Reason.RECORD_TOO_LARGE, f"more than {MAX_TURNS} messages before this turn")
    return Exchange(turns[:at], turns[at].content)


MESSAGES = Shape(
    "messages",
    "a conversation in OpenAI's form; its last turn, or each turn of the assistant's, is judged",
    "messages: [{role, content}, ...]",
    looks_like,
    read,
    read_turns,
)
