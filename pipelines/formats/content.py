"""Rules that all shapes share: what counts as text, as a message, as a conversation and as a prompt.

Most functions take a JSON value of any type and return what it means, or raise `Rejected` with a reason.
"""

from actors.errors import Rejected
from actors.records import Message, Reason, Role
from actors.text.reasoning import with_reasoning
from pipelines.formats.rows import Exchange, Row

ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}

SYSTEMS = ("system_prompt", "system")
"""The fields that may hold a system prompt outside the turns."""

_CALLS = ("tool_calls", "function_call", "function_calls")
"""The fields of tool calls in a message: OpenAI's, OpenAI's older one, and that of OLMo and Dolci."""


def field(row: Row, key: str) -> object:
    """The row's value under a key, which may be null. Raises `Rejected` if the key is missing."""
    if key not in row:
        raise Rejected(Reason.MISSING_FIELD, key)
    return row[key]


def text(value: object) -> str:
    """A string as it is; a list of text parts concatenated without a separator."""
    if value is None:
        raise Rejected(Reason.EMPTY_CONTENT)
    joined = "".join(map(_part, value)) if isinstance(value, list) else value
    if not isinstance(joined, str):
        raise Rejected(Reason.CONTENT_NOT_TEXT, type(value).__name__)
    if not joined.strip():
        raise Rejected(Reason.EMPTY_CONTENT)
    try:
        joined.encode()
    except UnicodeEncodeError:
        raise Rejected(Reason.LONE_SURROGATE) from None
    return joined


def _part(part: object) -> str:
    content = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part
    if not isinstance(content, str):
        raise Rejected(Reason.CONTENT_NOT_TEXT, "a part that isn't text")
    return content


def message(value: object) -> Message:
    """One turn with text. A tool call is rejected, because none of our reward models' templates renders it.

    Reasoning in a separate field is put before the content, between tags.
    """
    if not isinstance(value, dict):
        raise Rejected(Reason.WRONG_TYPE, "a message that isn't an object")
    name = field(value, "role")
    if not isinstance(name, str):
        raise Rejected(Reason.WRONG_TYPE, "a role that isn't a string")
    if name not in ROLES:
        raise Rejected(Reason.UNKNOWN_ROLE)
    role = ROLES[name]
    if role is Role.ASSISTANT and any(value.get(name) for name in _CALLS):
        raise Rejected(Reason.TOOL_CALL)
    content = text(field(value, "content"))
    return Message(role, with_reasoning(content, value) if role is Role.ASSISTANT else content)


def entries(value: object) -> list[object]:
    """A non-empty list, whose items should be messages or contain them."""
    if value is None or value == []:
        raise Rejected(Reason.NO_MESSAGES)
    if not isinstance(value, list):
        raise Rejected(Reason.WRONG_TYPE, "messages that aren't a list")
    return value


def conversation(value: object) -> tuple[Message, ...]:
    """A conversation of at least one turn. The first unreadable turn decides the reason of `Rejected`."""
    return tuple(map(message, entries(value)))


def final(turns: tuple[Message, ...]) -> Exchange:
    """The last turn, which must be the assistant's, as the response, and all turns before it as its context."""
    if turns[-1].role is not Role.ASSISTANT:
        raise Rejected(Reason.NO_FINAL_ASSISTANT)
    return Exchange(turns[:-1], turns[-1].content)


def question(value: object) -> tuple[Message, ...]:
    """A context: the user's text, or the messages so far."""
    return conversation(value) if isinstance(value, list) else (Message(Role.USER, text(value)),)


def is_blank(value: object) -> bool:
    """Whether an optional text is absent: null, or only white space."""
    return value is None or (isinstance(value, str) and not value.strip())


def with_opening_system(system: object, turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The turns with a separate system prompt put first, unless it is blank or they begin with it already.

    Raises `Rejected` if they begin with a different one.
    """
    if is_blank(system):
        return turns
    first = Message(Role.SYSTEM, text(system))
    if turns and is_repeated(first, turns[0]):
        return turns
    if turns and turns[0].role is Role.SYSTEM:
        raise Rejected(Reason.TWO_SYSTEM_PROMPTS)
    return (first, *turns)


def is_repeated(system: Message, turn: Message) -> bool:
    """Whether a turn repeats the system prompt."""
    return turn.role is system.role and turn.content.strip() == system.content.strip()


def systems(row: Row) -> tuple[object, ...]:
    """The values of the row's system prompt fields, None where it has none."""
    return tuple(map(row.get, SYSTEMS))


def with_row_system(row: Row, turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The turns after the row's `system` or `system_prompt`, if that isn't blank."""
    for system in systems(row):
        turns = with_opening_system(system, turns)
    return turns


def prompt(row: Row) -> tuple[Message, ...]:
    """The row's `prompt`, after its system prompt."""
    return with_row_system(row, question(field(row, "prompt")))


def answer(value: object) -> str:
    """A response: its text, or an assistant message. A list of several texts is rejected, as it holds several responses."""
    if isinstance(value, list) and sum(isinstance(part, str) for part in value) > 1:
        raise Rejected(Reason.WRONG_TYPE, "a list of texts where one response is expected")
    return final((message(value),)).answer if isinstance(value, dict) else text(value)


def reply(context: tuple[Message, ...], value: object) -> Exchange:
    """A response in its context: its text, an assistant message, or several turns that end with one."""
    if not isinstance(value, list):
        return Exchange(refuse_answered(context), answer(value))
    earlier, response = final(conversation(value))
    return Exchange(refuse_answered(append_turns(context, earlier)), response)


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

    Raises `Rejected` for turns that start the conversation again (a system prompt after the context, or a user's turn after
    a user's turn): such a row has its prompt twice in different words.
    """
    if context and turns:
        if turns[0].role is Role.SYSTEM:
            raise Rejected(Reason.WRONG_TYPE, "a system prompt after the prompt")
        if turns[0].role is context[-1].role is Role.USER:
            raise Rejected(Reason.WRONG_TYPE, "a user's turn right after the prompt's")
    return context + turns


def is_message(value: object) -> bool:
    """Whether a value was meant as a message, readable or not. Used to detect shapes."""
    return isinstance(value, dict) and "role" in value


def is_conversation(value: object) -> bool:
    """Whether a value was meant as a list of messages. Used to detect shapes."""
    return isinstance(value, list) and any(map(is_message, value))


def with_policy_system(context: tuple[Message, ...], system: str | None) -> tuple[Message, ...]:
    """A conversation after the policy's system prompt, unless it begins with a system prompt already."""
    if system is None or context[0].role is Role.SYSTEM:
        return context
    return (Message(Role.SYSTEM, system), *context)
