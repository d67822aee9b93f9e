"""Rules that all shapes share: what counts as text, as a message, as a conversation and as a prompt.

Most functions take a JSON value of any type and return what it means, or raise `Rejected` with a reason.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from actors.errors import Rejected
from actors.records import Message, Reason, Role
from actors.text.reasoning import with_reasoning
from actors.text.tool_calls import OpenCalls
from pipelines.data.formats.calls import CALLERS, FIELDS, calls_of, tools_of
from pipelines.data.formats.rows import Answer, Exchange, Row
from pipelines.data.formats.values import SHOWN_CHARACTERS, describe, is_blank

T = TypeVar("T")

# What `role` or `from` says, in lower case, and the role that it means.
ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("system", "developer"), Role.SYSTEM),
    **dict.fromkeys(("user", "human", "prompter"), Role.USER),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bard", "bing", "bot", "model", "ai", *CALLERS), Role.ASSISTANT),
    **dict.fromkeys(("tool", "function", "observation", "function_response", "tool_response", "ipython"), Role.TOOL),
}

SYSTEMS = ("system_prompt", "system")  # the fields that may hold a system prompt outside the turns


def field(row: Row, key: str) -> object:
    """The row's value under a key, which may be null.

    Raises `Rejected` as `missing_field` if the row doesn't have the key.
    """
    if key not in row:
        raise Rejected(Reason.MISSING_FIELD, key)
    return row[key]


@contextmanager
def in_field(name: str) -> Iterator[None]:
    """Name a field in the details of what is rejected in the block.

    An empty name names none, as where a response is called by its field already.
    """
    try:
        yield
    except Rejected as rejected:
        raise _in_field(name, rejected) from rejected


def _in_field(name: str, rejected: Rejected) -> Rejected:
    return Rejected(rejected.reason, ": ".join(dict.fromkeys(filter(None, (name, rejected.detail)))))


def read_field(row: Row, key: str, read: Callable[[object], T]) -> T:
    """What `read` makes of the row's value under a key. Raises `Rejected`, naming the key."""
    try:  # not `in_field`: a generator for each field of each row is a tenth of the time
        return read(field(row, key))
    except Rejected as rejected:
        raise _in_field(key, rejected) from rejected


def text(value: object) -> str:
    """A string as it is; a list of text parts concatenated without a separator, as chat templates do.

    Raises `Rejected` for anything else, for what is blank, and for text that isn't Unicode: no tokenizer takes half of a
    surrogate pair.
    """
    if value is None:
        raise Rejected(Reason.EMPTY_CONTENT)
    joined = "".join(map(_part, value)) if isinstance(value, list) else value
    if not isinstance(joined, str):
        raise Rejected(Reason.CONTENT_NOT_TEXT, f"{describe(value)}, where text is expected")
    if not joined.strip():
        raise Rejected(Reason.EMPTY_CONTENT)
    try:
        joined.encode()
    except UnicodeEncodeError:
        raise Rejected(Reason.LONE_SURROGATE) from None
    return joined


# What `type` says of a part of a content that is text: in chat completions, in OpenAI's Responses, or not at all.
_TEXT_PARTS = ("text", "input_text", "output_text", None)


def _part(part: object) -> str:
    is_text = isinstance(part, dict) and part.get("type") in _TEXT_PARTS
    content = part.get(content_key(part)) if isinstance(part, dict) and is_text else part
    if not isinstance(content, str):
        raise Rejected(Reason.CONTENT_NOT_TEXT, f"a part that isn't text: {describe(part)}")
    return content


def message(value: object) -> Message:
    """One turn, in OpenAI's form or in ShareGPT's, whose keys are `from` and `value`.

    An assistant's turn that calls tools, and a tool's turn, may have no text. Reasoning in a separate field is put before
    the content, between tags.
    """
    if not isinstance(value, dict):
        raise Rejected(Reason.WRONG_TYPE, f"{describe(value)} where a message is expected")
    if _role_key(value) not in value:
        raise Rejected(Reason.MISSING_FIELD, f"role, in {describe(value)}")
    name = value[_role_key(value)]
    if not isinstance(name, str):
        raise Rejected(Reason.WRONG_TYPE, f"a message whose {_role_key(value)!r} is {describe(name)}")
    if (role := role_of(value)) is None:
        raise Rejected(Reason.UNKNOWN_ROLE, f"{name[:SHOWN_CHARACTERS]!a}; known are {', '.join(ROLES)}")
    if name.lower() in CALLERS:
        return Message(role, "", calls_of(value, role, from_text=text(field(value, content_key(value)))))
    calls = () if FIELDS.isdisjoint(value) else calls_of(value, role)  # nearly every turn
    if role is Role.TOOL:
        return _tool_turn(value)
    content = _text_or_none(value) if calls else text(field(value, content_key(value)))
    return Message(role, with_reasoning(content, value), calls) if role is Role.ASSISTANT else Message(role, content)


def _tool_turn(value: Mapping[str, object]) -> Message:
    # A tool's turn, whose text may be empty. Without any it is no answer: its text may stand under another key.
    if value.get(content_key(value)) is None:
        raise Rejected(Reason.MISSING_FIELD, f"{content_key(value)} of a tool's turn, in {describe(value)}")
    call_id = value.get("tool_call_id")
    if not (isinstance(call_id, str) or is_blank(call_id)):
        raise Rejected(Reason.TOOL_CALL, f"a tool_call_id that is {describe(call_id)}; a text is expected")
    return Message(
        Role.TOOL, _text_or_none(value), call_id=call_id if isinstance(call_id, str) and call_id.strip() else None
    )


def _text_or_none(turn: Mapping[str, object]) -> str:
    try:
        return text(turn.get(content_key(turn)))
    except Rejected as error:
        if error.reason is Reason.EMPTY_CONTENT:
            return ""
        raise


class TurnReader:
    """Reads the turns of one conversation in their order, a tool's as the answer to a call before it.

    `context` is what comes before them, whose last calls they may answer.
    """

    def __init__(self, context: tuple[Message, ...] = ()) -> None:
        self._open = OpenCalls()
        for turn in context:
            self._open.follow(turn)

    def __call__(self, value: object) -> Message:
        """The next turn. Raises `Rejected`, also for an answer to another call than waits for one."""
        turn = message(value)
        call = self._open.follow(turn)
        if turn.role is not Role.TOOL:
            return turn
        if call is None and (self._open.are_made or turn.call_id is not None):
            waiting = ", ".join(ascii(call.id) for call in self._open.calls) or "none"
            raise Rejected(Reason.TOOL_CALL, f"an answer to the call {turn.call_id!a}; waiting for answers: {waiting}")
        if call is None and not turn.content:
            raise Rejected(Reason.EMPTY_CONTENT)
        # OpenAI's older form names the function that answers; another name was meant for another call.
        name = value.get("name") if isinstance(value, dict) else None
        if call is not None and isinstance(name, str) and name.strip() and name != call.name:
            raise Rejected(Reason.TOOL_CALL, f"an answer of {name[:SHOWN_CHARACTERS]!a} where {call.name!a} was called")
        return replace(turn, call_id=None if call is None else call.id)


def role_of(value: object) -> Role | None:
    """The role of what was meant as a message, readable or not; None if it has none that is known.

    Never raises, as shapes are told by it.
    """
    name = value.get(_role_key(value)) if isinstance(value, dict) else None
    return ROLES.get(name.lower()) if isinstance(name, str) else None


def _role_key(turn: Mapping[str, object]) -> str:
    # Parquet that has turns of both forms gives each of them the keys of the other one, with null.
    return "from" if "from" in turn and turn.get("role") is None else "role"


_CONTENTS = ("content", "value", "text")


def content_key(turn: Mapping[str, object]) -> str:
    """The key of the content of a message, or of a part of one: OpenAI's, ShareGPT's, or that of a part of text.

    The first that isn't null, as in Parquet all messages have the keys of all others.
    """
    for key in _CONTENTS:
        if turn.get(key) is not None:
            return key
    # In the 80,036 rows of nebius/SWE-agent-trajectories; a user's turn has it for another purpose, if at all.
    if turn.get("system_prompt") is not None and role_of(turn) is Role.SYSTEM:
        return "system_prompt"
    return next((key for key in _CONTENTS if key in turn), "content")


def entries(value: object) -> list[object]:
    """A non-empty list, whose items should be messages or contain them.

    Raises `Rejected`: no_messages for an empty list or null, wrong_type for anything else.
    """
    if value is None or value == []:
        raise Rejected(Reason.NO_MESSAGES)
    if not isinstance(value, list):
        raise Rejected(Reason.WRONG_TYPE, f"{describe(value)} where a list is expected")
    return value


def conversation(value: object, context: tuple[Message, ...] = ()) -> tuple[Message, ...]:
    """A conversation of at least one turn, or more turns after a context; the first unreadable one decides the reason.

    A blank system prompt at its beginning is none, as in a field of its own.
    """
    turns = entries(value)
    return tuple(map(TurnReader(context), turns[1:] if is_blank_system(turns[0]) and len(turns) > 1 else turns))


def open_end(turns: list[object]) -> list[object]:
    """The turns without a last turn of the assistant, which isn't read and may hold anything: a policy generates it anew."""
    return turns[:-1] if turns and role_of(turns[-1]) is Role.ASSISTANT else turns


def is_blank_system(value: object) -> bool:
    """Whether a turn is a system prompt without text, and without tools. Raises `Rejected` for tools that can't be read.

    One without a content whose text stands under an unknown key isn't blank: it can't be read, and must not vanish.
    """
    if not isinstance(value, dict) or role_of(value) is not Role.SYSTEM or not is_blank(value.get(content_key(value))):
        return False
    has_content = value.get(content_key(value)) is not None
    text_keys: Collection[str] = _CONTENTS if has_content else value.keys() - {_role_key(value), "name"}
    return all(is_blank(value.get(key)) for key in text_keys if isinstance(value.get(key), str)) and not tools_of(value)


def final(turns: tuple[Message, ...]) -> Exchange:
    """The last turn, which must be the assistant's, as the response, and all turns before it as its context.

    Raises `Rejected` as `no_final_assistant` otherwise.
    """
    if turns[-1].role is not Role.ASSISTANT:
        raise Rejected(Reason.NO_FINAL_ASSISTANT)
    return Exchange(turns[:-1], turns[-1])


def question(value: object) -> tuple[Message, ...]:
    """A context: the user's text, or the messages so far. Raises `Rejected`."""
    return conversation(value) if isinstance(value, list) else (Message(Role.USER, text(value)),)


def with_opening_system(system: object, turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The turns with a separate system prompt put first, unless it is blank or they begin with it already.

    Raises `Rejected` if they begin with a different one.
    """
    if is_blank(system):
        return turns
    first = Message(Role.SYSTEM, text(system))
    if turns and turns[0].role is Role.SYSTEM and turns[0].content.strip() == first.content.strip():
        return turns
    if turns and turns[0].role is Role.SYSTEM:
        raise Rejected(Reason.TWO_SYSTEM_PROMPTS)
    return (first, *turns)


def systems(row: Row, other_fields: Collection[str] = ()) -> tuple[object, ...]:
    """The values of the row's system prompt fields, in the order of `SYSTEMS`; None where it has none.

    `other_fields` hold something else.
    """
    arguments = row.get("chat_template_kwargs")  # of SmolTalk2, whose template writes them into the system turn
    custom = arguments.get("custom_instructions") if isinstance(arguments, Mapping) else None
    return (*(row.get(name) for name in SYSTEMS if name not in other_fields), custom)


def with_row_system(row: Row, turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The turns after the row's `system` or `system_prompt`, if that isn't blank."""
    return with_systems(systems(row), turns)


def with_systems(values: Sequence[object], turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The turns after separate system prompts.

    Raises `Rejected` as `two_system_prompts` unless all that aren't blank are the same.
    """
    for system in values:
        turns = with_opening_system(system, turns)
    return turns


def answer(value: object) -> Answer:
    """A response: its text, or an assistant message.

    A list of several texts is rejected: it holds several responses, which would be judged as one text.
    """
    if isinstance(value, list) and sum(isinstance(part, str) for part in value) > 1:
        raise Rejected(Reason.WRONG_TYPE, "a list of texts where one response is expected")
    if isinstance(value, dict) and not is_message(value):
        raise Rejected(Reason.MISSING_FIELD, f"{describe(value)}, where a text or a message is expected")
    return final((message(value),)).answer if isinstance(value, dict) else text(value)


def reply(context: tuple[Message, ...], value: object) -> Exchange:
    """A response in its context: its text, an assistant message, or several turns that end with one.

    Turns that begin with all of the context's, but for a system prompt, are the whole conversation.
    """
    if not isinstance(value, list):
        return Exchange(refuse_answered(context), answer(value))
    turns = conversation(value, context)
    earlier, response = final(turns)
    system, prompt_turns = split_system(context)
    _, spoken = split_system(turns)
    # TRL's explicit form has the prompt in each side once more; DPO files of others only what follows it.
    if prompt_turns and _keys(spoken[: len(prompt_turns)]) == _keys(prompt_turns):
        return Exchange(refuse_answered(with_opening_system(system and system.content, earlier)), response)
    return Exchange(append_turns(context, earlier), response)


def split_system(turns: tuple[Message, ...]) -> tuple[Message | None, tuple[Message, ...]]:
    """The system prompt that a conversation begins with, None without one, and the other turns."""
    return (turns[0], turns[1:]) if turns and turns[0].role is Role.SYSTEM else (None, turns)


def _keys(turns: tuple[Message, ...]) -> list[tuple[object, ...]]:
    # Data sets trim a prompt in one column and not in the other.
    return [(turn.role, turn.content.strip(), turn.calls) for turn in turns]


def refuse_answered(turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The turns, as the context of a separate response. Raises `Rejected` if they end with the assistant.

    That last turn may be one of the candidates, and a response must not be judged in a context that is answered already.
    Rows that are a single list of turns aren't checked: there the assistant really spoke twice in a row.
    """
    if turns and turns[-1].role is Role.ASSISTANT:
        raise Rejected(Reason.WRONG_TYPE, "a conversation that ends with the assistant")
    return turns


def append_turns(context: tuple[Message, ...], turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The context and the turns between it and the response.

    Raises `Rejected` for turns that start the conversation again, so that the prompt would be asked twice: a system prompt
    after the context, a user's turn after a user's, or, after an answered context, anything but a new turn of the user's.
    """
    if context and turns:
        if turns[0].role is Role.SYSTEM:
            raise Rejected(Reason.WRONG_TYPE, "a system prompt after the prompt")
        if turns[0].role is context[-1].role is Role.USER:
            raise Rejected(Reason.WRONG_TYPE, "a user's turn right after the prompt's")
        is_answered = context[-1].role is Role.ASSISTANT
        if is_answered and (turns[0].role is not Role.USER or _keys(turns[:1])[0] in _keys(context)):
            raise Rejected(Reason.WRONG_TYPE, "a prompt that is answered already, and asked again")
    return refuse_answered(context + turns)


def is_message(value: object) -> bool:
    """Whether a value was meant as a message, readable or not. Used to detect shapes.

    A list of messages of which one is broken must still be a conversation, so that its row is rejected with that reason.
    """
    return isinstance(value, dict) and ("role" in value or "from" in value)


def is_conversation(value: object) -> bool:
    """Whether a value was meant as a list of messages. Used to detect shapes."""
    return isinstance(value, list) and any(map(is_message, value))


def is_text_or_turns(value: object) -> bool:
    """Whether a value was meant as a prompt: text, or a list of messages. Used to detect shapes."""
    return isinstance(value, str) or is_conversation(value)


def has_all(row: Row, *keys: str) -> bool:
    """Whether a row has all of these fields, whatever they hold. Used to detect shapes."""
    return all(key in row for key in keys)


def with_policy_system(context: tuple[Message, ...], system: str | None) -> tuple[Message, ...]:
    """A conversation of at least one turn after the policy's system prompt, unless it begins with one already."""
    if system is None or context[0].role is Role.SYSTEM:
        return context
    return (Message(Role.SYSTEM, system), *context)
