"""Conversations written out as one text: HH-RLHF's pairs, and texts for training as NeMo-Aligner's and Guanaco's."""

from collections.abc import Callable
from functools import partial

from actors.records import Message, Role
from pipelines.data.formats.content import field, final, systems, text, with_row_system
from pipelines.data.formats.declare import in_fields
from pipelines.data.formats.rows import Exchange, Row, RowRequests, Shape, gather
from pipelines.data.formats.turns import assistant_turns
from pipelines.data.formats.written_out import is_written_in_a_form, split

_SIDES = ("chosen", "rejected")
_RESPONSES = in_fields({side: side for side in _SIDES}, single="text")


def _looks_like(row: Row) -> bool:
    # With a `prompt` the texts would only go on with it.
    texts = [row[key] for key in _SIDES if key in row] or [row.get("text")]
    return row.get("prompt") is None and all(isinstance(value, str) and is_written_in_a_form(value) for value in texts)


def _read(row: Row) -> RowRequests:
    def read_last(value: Callable[[], object]) -> Exchange:
        *context, response = _turns(value())
        turns = tuple(Message(turn.role, text(turn.content)) for turn in context)
        return final((*with_row_system(row, turns), response))

    return gather({name: partial(read_last, value) for name, value in _RESPONSES.of(row).items()})


def _read_turns(row: Row) -> RowRequests:
    # Every assistant turn of the one text, by its position among the turns after the system prompt; of a pair the last.
    if "text" not in row:
        return _read(row)
    turns = [{"role": turn.role.value, "content": turn.content} for turn in _turns(field(row, "text"))]
    first = [turns.pop(0)["content"]] if turns[0]["role"] == Role.SYSTEM.value else []
    return assistant_turns(turns, (*first, *systems(row)))


def _turns(value: object) -> list[Message]:
    parsed = split(text(value))
    return [*parsed.context, Message(Role.ASSISTANT, parsed.response)]


SHAPES = (
    Shape(
        "written-out",
        "conversations written out as one text, in a chat template or as a transcript (NeMo-Aligner, HH-RLHF, Guanaco)",
        "`chosen` and `rejected`, or `text`, that begin as in Human: ... Assistant: ..., or as a chat template does",
        _looks_like,
        _read,
        _read_turns,
        reads=_RESPONSES.fields,
        layout='{"chosen": str, "rejected": str}, without a prompt, or {"text": str}',
    ),
)
