"""A conversation that a row holds: its last turn is judged, or several of them, each by its position."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from actors.errors import Rejected
from actors.records import Message, Reason, Role
from pipelines.formats.content import final, is_blank, is_repeated, message
from pipelines.formats.rows import ONLY_RESPONSE, Exchange, RowRequests, gather

MAX_TURNS = 4096
"""Assistant turns after this many messages aren't judged one by one: their contexts grow with the square of the
number of turns (at 4,096 messages 34 MB of pointers, at a million 2 TB)."""


class RowTurn(NamedTuple):
    """A turn in OpenAI's form, readable or not, and its position in the row's own list; None if it isn't from there."""

    at: int | None
    value: object


def numbered(entries: Sequence[object], systems: Sequence[object] = ()) -> list[RowTurn]:
    """The turns of a row's list, after the system prompts that stand beside it, if it doesn't begin with them.

    One that differs from the next makes every response unreadable, which is found when the turns are read.
    """
    turns = [RowTurn(at, entry) for at, entry in enumerate(entries)]
    for system in systems:
        first = {"role": "system", "content": system}
        if not is_blank(system) and not _repeats(first, turns[0].value):
            turns.insert(0, RowTurn(None, first))
    return turns


def _repeats(first: object, value: object) -> bool:
    try:
        return is_repeated(message(first), message(value))
    except Rejected:
        return False


def final_turn(turns: Sequence[RowTurn]) -> RowRequests:
    """The last turn, named `final`."""
    readable, spoiled = _readable(turns)

    def read() -> Exchange:
        if spoiled is not None:
            raise spoiled
        return final(readable)

    return gather({ONLY_RESPONSE: read})


def assistant_turns(turns: Sequence[RowTurn]) -> RowRequests:
    """Every assistant turn of the row's list, named by its position: `turn[3]`."""
    return turns_at(turns, [turn.at for turn in turns if turn.at is not None and _is_answer(turn.value)])


def turns_at(turns: Sequence[RowTurn], positions: Sequence[int]) -> RowRequests:
    """The turns at these positions, each in the context of all before it.

    A turn that can't be read spoils itself and all that follow, for it is in their context; those before it stand.
    """
    readable, spoiled = _readable(turns)
    if not positions:
        raise spoiled or Rejected(Reason.NO_FINAL_ASSISTANT)
    places = {turn.at: place for place, turn in enumerate(turns)}
    return gather({f"turn[{at}]": partial(_turn, readable, spoiled, places[at]) for at in positions})


def _is_answer(value: object) -> bool:
    return isinstance(value, dict) and value.get("role") == "assistant"


def _readable(turns: Sequence[RowTurn]) -> tuple[tuple[Message, ...], Rejected | None]:
    found: list[Message] = []
    for place, turn in enumerate(turns):
        try:
            found.append(message(turn.value))
        except Rejected as error:
            return tuple(found), error
        beside = found[-2] if place and turns[place - 1].at is None else None
        if beside is not None and beside.role is found[-1].role is Role.SYSTEM:
            return tuple(found[:-1]), Rejected(Reason.TWO_SYSTEM_PROMPTS)
    return tuple(found), None


def _turn(turns: tuple[Message, ...], spoiled: Rejected | None, place: int) -> Exchange:
    if spoiled is not None and place >= len(turns):
        raise spoiled
    if place >= MAX_TURNS:
        raise Rejected(Reason.RECORD_TOO_LARGE, f"more than {MAX_TURNS} messages before this turn")
    return final(turns[: place + 1])
