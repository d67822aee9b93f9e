"""Preference pairs whose responses may be whole conversations.

Of TRL's, OpenRLHF's, NeMo's and ultrafeedback_binarized's a string or a single message answers the prompt. A list of
messages is, in this order of preference:
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
    content_key,
    conversation,
    field,
    final,
    is_conversation,
    is_message,
    question,
    read_field,
    refuse_answered,
    reply,
    text,
    with_row_system,
)
from pipelines.data.formats.rows import Exchange, Row, RowRequests, Shape, gather
from pipelines.data.formats.values import is_blank

SIDES = ("chosen", "rejected")


def _is_pair(row: Row) -> bool:
    # At least one side must be readable: a pair with a broken side still is one, of which that side is rejected.
    sides = [row.get(side) for side in SIDES]
    if not all(side in row for side in SIDES) or any(map(_unreadable, sides)):
        return False
    if any(isinstance(side, str) or is_message(side) for side in sides):
        return row.get("prompt") is not None
    return any(map(is_conversation, sides))


def _unreadable(side: object) -> bool:
    return isinstance(side, list) and not is_conversation(side)


def _read_pair(row: Row) -> RowRequests:
    return gather({side: partial(_side, row, side) for side in SIDES})


def _prompt(row: Row) -> tuple[Message, ...]:
    return with_row_system(row, read_field(row, "prompt", question))


def _side(row: Row, side: str) -> Exchange:
    value = field(row, side)
    if not isinstance(value, list):
        return Exchange(refuse_answered(_prompt(row)), answer(value))
    prompt_value = row.get("prompt")
    if isinstance(prompt_value, list):  # TRL, explicit
        return reply(_prompt(row), value)
    context, response = final(conversation(value))
    if prompt_value is None:  # TRL, implicit
        return Exchange(with_row_system(row, context), response)
    # ultrafeedback_binarized, whose sides repeat the prompt; in other data sets they go on after it.
    turns = with_row_system(row, context) if _hold_prompt(context, prompt_value) else append_turns(_prompt(row), context)
    return Exchange(refuse_answered(turns), response)


def _hold_prompt(context: tuple[Message, ...], prompt_value: object) -> bool:
    """Whether a side's turns hold the prompt. Raises `Rejected` if they begin a conversation without it."""
    if not context or context[0].role not in (Role.SYSTEM, Role.USER):
        return False
    prompt_text = prompt_value
    if isinstance(prompt_value, dict) and is_message(prompt_value):
        prompt_text = prompt_value.get(content_key(prompt_value))
    turns = [turn.content.strip() for turn in context if turn.role in (Role.SYSTEM, Role.USER)]
    if not is_blank(prompt_text) and text(prompt_text).strip() not in turns:
        raise Rejected(Reason.WRONG_TYPE, "a conversation that doesn't hold the prompt beside it")
    return True


def _key(row: Row) -> str:
    return "messages" if "messages" in row and "conversations" not in row else "conversations"


def _is_sharegpt_pair(row: Row) -> bool:
    # With a `prompt` it would be another kind of pair.
    sides = [row.get(side) for side in SIDES]
    readable = all(is_message(side) or isinstance(side, str) for side in sides)
    return is_conversation(row.get(_key(row))) and readable and row.get("prompt") is None


def _read_sharegpt_pair(row: Row) -> RowRequests:
    def read_side(side: str) -> Exchange:
        turns = read_field(row, _key(row), conversation)
        return Exchange(refuse_answered(with_row_system(row, turns)), answer(field(row, side)))

    return gather({side: partial(read_side, side) for side in SIDES})


_REJECTED = ("rejected_response", "rejected_messages")


def _is_swift_pair(row: Row) -> bool:
    return is_conversation(row.get("messages")) and sum(row.get(key) is not None for key in _REJECTED) == 1


def _read_swift_pair(row: Row) -> RowRequests:
    def read_chosen() -> Exchange:
        return final(with_row_system(row, read_field(row, "messages", conversation)))

    def read_rejected() -> Exchange:
        value = field(row, next((key for key in _REJECTED if row.get(key) is not None), _REJECTED[0]))
        if isinstance(value, list):
            return final(with_row_system(row, conversation(value)))
        return reply(read_chosen().context, value)

    return gather({"chosen": read_chosen, "rejected": read_rejected})


SHAPES = (
    Shape(
        "preference",
        "a chosen and a rejected response to one prompt (TRL, ultrafeedback_binarized)",
        "`chosen` and `rejected`, text, a message or messages, and `prompt`, unless they hold the whole conversation",
        _is_pair,
        _read_pair,
        reads=("prompt", *SIDES),
        layout='{"prompt"?: str | messages, "chosen": str | message | messages, "rejected": the same, "system"?: str}',
    ),
    Shape(
        "sharegpt-preference",
        "a conversation and a chosen and a rejected turn to go on with (LLaMA-Factory)",
        "`conversations` (or `messages`), a list of turns, and `chosen` and `rejected`, a turn each",
        _is_sharegpt_pair,
        _read_sharegpt_pair,
        reads=("conversations", "messages", *SIDES),
        layout='{"conversations" | "messages": [turn, ...], "chosen": turn | str, "rejected": turn | str, "system"?: str}',
    ),
    Shape(
        "swift-preference",
        "a conversation and what was rejected in place of its last turn (ms-swift)",
        "`messages`, a list of messages, and `rejected_response`, text, or `rejected_messages`, a list of messages",
        _is_swift_pair,
        _read_swift_pair,
        reads=("messages", *_REJECTED),
        layout=(
            '{"messages": [turn, ...], "rejected_response": str} or {"messages": [turn, ...], "rejected_messages": '
            "[turn, ...]}, where the rejected messages are the whole conversation"
        ),
    ),
)
