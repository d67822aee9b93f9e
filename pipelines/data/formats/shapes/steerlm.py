"""SteerLM rows of NeMo-Aligner: the turns with a label are judged.

As in the authors' annotation script: `mask` is what `from` says for the user, everyone else is the assistant, and each
labelled turn is judged with all turns before it. `system` is the first turn, as in every shape: the script puts a fixed
text in its place, and so does the attribute family for any system turn.
"""

from collections.abc import Sequence

from actors.errors import Rejected
from actors.records import Reason, Role
from pipelines.data.formats.content import (
    ROLES,
    content_key,
    conversation,
    entries,
    field,
    final,
    is_conversation,
    open_end,
    role_of,
    systems,
    with_row_system,
)
from pipelines.data.formats.extra_ids import embedded
from pipelines.data.formats.rows import ONLY_RESPONSE, Row, RowRequests, Shape, gather, prompt_request
from pipelines.data.formats.turns import turns_at


def _looks_like(row: Row) -> bool:
    return is_conversation(row.get("conversations")) and isinstance(row.get("mask"), str)


def _read(row: Row) -> RowRequests:
    # The labelled turns, by their positions; without labels the final one.
    if _labelled(row):
        return _read_turns(row)
    return gather({ONLY_RESPONSE: lambda: final(with_row_system(row, conversation(_turns(row)[0])))})


def _read_turns(row: Row) -> RowRequests:
    turns, places = _turns(row)
    positions = _labelled(row) or [position for position, place in places.items() if role_of(turns[place]) is Role.ASSISTANT]
    return turns_at(turns, {f"turn[{position}]": places[position] for position in positions}, systems(row))


def _read_prompt(row: Row) -> RowRequests:
    return prompt_request(lambda: with_row_system(row, conversation(open_end(_turns(row)[0]))))


def _labelled(row: Row) -> list[int]:
    turns = enumerate(entries(field(row, "conversations")))
    return [position for position, turn in turns if isinstance(turn, dict) and turn.get("label") is not None]


def _turns(row: Row) -> tuple[list[object], dict[int, int]]:
    # The turns, of which a user's may be several, and by the positions in the row where its turns end among them.
    items = entries(field(row, "conversations"))
    mask = field(row, "mask")
    if not isinstance(mask, str):
        raise Rejected(Reason.WRONG_TYPE, "a mask that isn't a string")
    if not any(isinstance(entry, dict) and entry.get("from") == mask for entry in items):
        raise Rejected(Reason.UNKNOWN_ROLE, "a mask that is nobody's name: everyone would be the assistant")
    turns, places = list[object](), dict[int, int]()
    for position, entry in enumerate(items):
        turns += _parts(_name_role(entry, mask))
        places[position] = len(turns) - 1  # of its last turn: a label is about that
    return turns, places


def _name_role(entry: object, mask: str) -> object:
    name = entry.get("from") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str):
        return entry
    role = Role.USER if name == mask else Role.ASSISTANT
    # A name that means another role elsewhere ("System", or "user" beside a mask of "User") makes the role unknown, so that
    # the turn is rejected instead of read as the assistant's.
    if ROLES.get(name.lower(), role) is not role:
        return entry | {"from": f"unknown {role}"}
    return entry if name.lower() in ROLES else entry | {"from": role.value}


def _parts(turn: object) -> Sequence[object]:
    # Rows made from HelpSteer2 still have its turns in their prompts, so a user's turn may be several.
    text = turn.get(content_key(turn)) if isinstance(turn, dict) and role_of(turn) is Role.USER else None
    return embedded(text) if isinstance(text, str) else [turn]


_LAYOUT = """{"conversations": [{"from": "User", "value": str, "label": str | null}, ...], "mask": "User", ...}

`mask` is what `from` says for the user, everyone else is the assistant, and each labelled turn is judged with all turns
before it."""
SHAPES = (
    Shape(
        "steerlm",
        "a conversation whose labelled turns are judged, or the last (NeMo-Aligner's SteerLM rows)",
        "`conversations`, a list of {from, value, label}, and `mask`, the user's name there",
        _looks_like,
        _read,
        _read_turns,
        reads=("conversations", "mask"),
        layout=_LAYOUT,
    ),
)
PROMPT_SHAPES = (
    Shape(
        "steerlm",
        "a conversation of NeMo-Aligner's SteerLM rows, to be answered",
        "`conversations`, a list of {from, value}, and `mask`, the user's name there",
        _looks_like,
        _read_prompt,
        reads=("conversations", "mask"),
    ),
)
