"""Preference pairs, in the forms of TRL, OpenRLHF, NeMo and ultrafeedback_binarized.

{"prompt"?: str | messages, "chosen": str | message | messages, "rejected": the same, "system"?: str}

A string or a single message answers the prompt. A list of messages is, in this order of preference:
- without a prompt, the whole conversation (TRL, implicit);
- with a prompt of messages, the whole conversation if it begins with them, else what follows them (TRL, explicit);
- with a prompt of text, what follows it if the assistant speaks first, else the whole conversation, of which the
  prompt must be a turn (ultrafeedback_binarized, whose prompt repeats the first user turn);
- with a prompt of one message, the same where it is the whole conversation.
What follows a prompt may not begin with a system prompt, nor with the user where the prompt ends with them: it is the
conversation in other words, and would be asked twice.
`system` comes before all of it, unless it is there already.
"""

from functools import partial

from actors.errors import Rejected
from actors.records import Message, Reason, Role
from pipelines.data.formats.content import (
    answer,
    append_turns,
    conversation,
    field,
    final,
    is_blank,
    is_conversation,
    is_message,
    prompt,
    refuse_answered,
    reply,
    text,
    with_row_system,
)
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

SIDES = ("chosen", "rejected")


def looks_like(row: Row) -> bool:
    """Two sides, at least one of them readable, that are whole conversations or come with a prompt."""
    sides = [row.get(side) for side in SIDES]
    if not all(side in row for side in SIDES) or any(map(_unreadable, sides)):
        return False
    if any(isinstance(side, str) or is_message(side) for side in sides):
        return row.get("prompt") is not None
    return any(map(is_conversation, sides))


def _unreadable(side: object) -> bool:
    return isinstance(side, list) and not is_conversation(side)


def read(row: Row) -> RowRequests:
    """`chosen` and `rejected`: one request, or two where their contexts differ."""
    return gather({side: partial(_exchange, row, side) for side in SIDES})


def _exchange(row: Row, side: str) -> Exchange:
    value = field(row, side)
    if not isinstance(value, list):
        return Exchange(refuse_answered(prompt(row)), answer(value))
    prompt_value = row.get("prompt")
    if isinstance(prompt_value, list):
        return reply(prompt(row), value)
    context, response = final(conversation(value))
    if prompt_value is None:
        return Exchange(with_row_system(row, context), response)
    turns = with_row_system(row, context) if _hold_prompt(context, prompt_value) else append_turns(prompt(row), context)
    return Exchange(refuse_answered(turns), response)


def _hold_prompt(context: tuple[Message, ...], prompt_value: object) -> bool:
    """Whether a side's turns hold the prompt. Raises `Rejected` if they begin a conversation without it."""
    if not context or context[0].role not in (Role.SYSTEM, Role.USER):
        return False
    prompt_text = (
        prompt_value.get("content") if isinstance(prompt_value, dict) and is_message(prompt_value) else prompt_value
    )
    turns = [turn.content.strip() for turn in context if turn.role in (Role.SYSTEM, Role.USER)]
    if not is_blank(prompt_text) and text(prompt_text).strip() not in turns:
        raise Rejected(Reason.WRONG_TYPE, "a conversation that doesn't hold the prompt beside it")
    return True


SHAPE = Shape(
    "preference",
    "a chosen and a rejected response to one prompt (TRL, ultrafeedback_binarized)",
    "`chosen` and `rejected`, text, a message or messages, and `prompt`, unless they hold the whole conversation",
    looks_like,
    read,
    reads=("prompt", *SIDES),
)
