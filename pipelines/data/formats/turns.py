"""Reads several turns of a conversation as responses, each named by its position."""

from collections.abc import Mapping, Sequence
from functools import partial

from actors.errors import Rejected
from actors.records import Message, Reason, Role
from pipelines.data.formats.content import TurnReader, final, is_blank_system, role_of, with_systems
from pipelines.data.formats.rows import Exchange, RowRequests, gather

# Maximum messages for judging turns one by one: all contexts together grow with the square of the number of turns (34 MB of
# pointers at 4,096 messages, 2 TB at a million).
MAX_TURNS = 4096


def assistant_turns(turns: Sequence[object], systems: Sequence[object]) -> RowRequests:
    """Every assistant turn of a row's list, named by its position from 0: `turn[3]`.

    Turns that can't be read count as positions, too, so that names lead to places in the row.
    """
    places = {f"turn[{place}]": place for place, turn in enumerate(turns) if role_of(turn) is Role.ASSISTANT}
    return turns_at(turns, places, systems)


def turns_at(turns: Sequence[object], places: Mapping[str, int], systems: Sequence[object]) -> RowRequests:
    """Some of the turns, each in the context of all before it, after the row's system prompts.

    `places` are where they stand among the turns, by their names. An unreadable turn, or one that is `Rejected` already,
    rejects itself and all later ones, whose context it is in. Earlier ones aren't affected.
    """
    # A blank system prompt is none (`content.conversation`). It keeps its position, so that names stay those of the row.
    first = 1 if len(turns) > 1 and is_blank_system(turns[0]) else 0
    messages, spoiled = _read_messages(turns[first:])
    if not places:
        raise spoiled or Rejected(Reason.NO_FINAL_ASSISTANT)

    def read(place: int) -> Exchange:
        if spoiled is not None and place >= first + len(messages):
            raise spoiled
        if place >= MAX_TURNS:
            raise Rejected(Reason.RECORD_TOO_LARGE, f"more than {MAX_TURNS} messages before this turn")
        return final(with_systems(systems, messages[: place - first + 1]))

    return gather({name: partial(read, place) for name, place in places.items()})


def _read_messages(turns: Sequence[object]) -> tuple[tuple[Message, ...], Rejected | None]:
    # The messages before the first unreadable turn, and its error; None if all are readable.
    messages: list[Message] = []
    read = TurnReader()
    for turn in turns:
        if isinstance(turn, Rejected):
            return tuple(messages), turn
        try:
            messages.append(read(turn))
        except Rejected as error:
            return tuple(messages), error
    return tuple(messages), None
