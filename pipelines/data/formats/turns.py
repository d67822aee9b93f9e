"""Reads several turns of a conversation as responses, each named by its position."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from actors.errors import Rejected
from actors.records import Message, Reason, Role
from pipelines.data.formats.content import final, is_blank, is_blank_system, is_repeated, message, role_of
from pipelines.data.formats.rows import Exchange, RowRequests, gather

MAX_TURNS = 4096
"""Maximum messages for judging turns one by one: all contexts together grow with the square of the number of turns
(34 MB of pointers at 4,096 messages, 2 TB at a million)."""


class RowTurn(NamedTuple):
    """A turn in OpenAI's form, readable or not, and its position in the row's list; None for a turn from another field."""

    at: int | None
    value: object


def number_turns(entries: Sequence[object], systems: Sequence[object] = ()) -> list[RowTurn]:
    """The turns of a row's list, after the system prompts from other fields, unless it begins with them already.

    A blank system prompt at its beginning is none. Two different system prompts reject every response, which is detected
    when the turns are read.
    """
    turns = [RowTurn(at, entry) for at, entry in enumerate(entries)]
    if len(turns) > 1 and is_blank_system(entries[0]):
        turns = turns[1:]
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


def assistant_turns(turns: Sequence[RowTurn]) -> RowRequests:
    """Every assistant turn of the row's list, named by its position: `turn[3]`."""
    return turns_at(turns, [turn.at for turn in turns if turn.at is not None and role_of(turn.value) is Role.ASSISTANT])


def turns_at(turns: Sequence[RowTurn], positions: Sequence[int]) -> RowRequests:
    """The turns at these positions, each in the context of all before it.

    An unreadable turn rejects itself and all later ones, whose context it is in. Earlier ones aren't affected.
    """
    readable, spoiled = _read_messages(turns)
    if not positions:
        raise spoiled or Rejected(Reason.NO_FINAL_ASSISTANT)
    places = {turn.at: place for place, turn in enumerate(turns)}
    return gather({f"turn[{at}]": partial(_turn, readable, spoiled, places[at]) for at in positions})


def _read_messages(turns: Sequence[RowTurn]) -> tuple[tuple[Message, ...], Rejected | None]:
    """The messages before the first unreadable turn, and its error; None if all are readable."""
    messages: list[Message] = []
    for place, turn in enumerate(turns):
        try:
            messages.append(message(turn.value))
        except Rejected as error:
            return tuple(messages), error
        system_beside = messages[-2] if place and turns[place - 1].at is None else None
        if system_beside is not None and system_beside.role is messages[-1].role is Role.SYSTEM:
            return tuple(messages[:-1]), Rejected(Reason.TWO_SYSTEM_PROMPTS)
    return tuple(messages), None


def _turn(turns: tuple[Message, ...], spoiled: Rejected | None, place: int) -> Exchange:
    if spoiled is not None and place >= len(turns):
        raise spoiled
    if place >= MAX_TURNS:
        raise Rejected(Reason.RECORD_TOO_LARGE, f"more than {MAX_TURNS} messages before this turn")
    return final(turns[: place + 1])
