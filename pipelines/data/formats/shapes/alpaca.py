"""Alpaca, as LLaMA-Factory has it: an instruction, an input to it, and one response or a chosen and a rejected one."""

from collections.abc import Callable
from functools import partial

from actors.errors import Rejected
from actors.records import Message, Reason, Role
from pipelines.data.formats.content import answer, field, text, with_row_system
from pipelines.data.formats.declare import in_fields
from pipelines.data.formats.rows import Exchange, Row, RowRequests, Shape, gather, prompt_request
from pipelines.data.formats.values import is_blank

_SIDES = ("chosen", "rejected")
_RESPONSES = in_fields({side: side for side in _SIDES}, single="output")


def _looks_like(row: Row) -> bool:
    # With a `prompt` it would be another kind of row.
    if not isinstance(row.get("instruction"), str) or row.get("prompt") is not None:
        return False
    return isinstance(row.get("output"), str) or all(isinstance(row.get(side), str) for side in _SIDES)


def _read(row: Row) -> RowRequests:
    def read_response(value: Callable[[], object]) -> Exchange:
        return Exchange(_prompt_turns(row), answer(value()))

    return gather({name: partial(read_response, value) for name, value in _RESPONSES.of(row).items()})


def _prompt_turns(row: Row) -> tuple[Message, ...]:
    # The instruction and its input as the last user turn, after the history, as LLaMA-Factory joins them.
    parts = (field(row, "instruction"), row.get("input"))
    last = Message(Role.USER, text("\n".join(text(part) for part in parts if not (is_blank(part) or _is_no_input(part)))))
    return with_row_system(row, (*_history(row.get("history")), last))


def _is_no_input(value: object) -> bool:
    # What Alpaca's generator wrote where an instruction needs no input.
    return isinstance(value, str) and value.strip().lower() == "<noinput>"


def _history(pairs: object) -> list[Message]:
    if pairs is None:
        return []
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise Rejected(Reason.WRONG_TYPE, "a history that isn't a list of pairs")
    return [
        Message(role, text(value)) for pair in pairs for role, value in zip((Role.USER, Role.ASSISTANT), pair, strict=True)
    ]


SHAPES = (
    Shape(
        "alpaca",
        "an instruction with an input, and one response or a chosen and a rejected one (Alpaca, LLaMA-Factory)",
        "`instruction`, with `output`, or with `chosen` and `rejected`; `input`, `system` and `history` are optional",
        _looks_like,
        _read,
        reads=("instruction", "input", "history", *_RESPONSES.fields),
        layout=(
            '{"instruction": str, "input"?: str, "output": str, "system"?: str, "history"?: [[question, answer], ...]}\n'
            '{"instruction": str, "input"?: str, "chosen": str, "rejected": str, ...}'
        ),
    ),
)
PROMPT_SHAPES = (
    Shape(
        "alpaca",
        "an instruction with an input",
        "`instruction`, and perhaps `input`",
        lambda row: isinstance(row.get("instruction"), str),
        lambda row: prompt_request(lambda: _prompt_turns(row)),
        reads=("instruction", "input", "history"),
    ),
)
