"""The rules that all shapes share: what counts as text, as a message, as a conversation and as a prompt.

Each function takes a JSON value of any type and returns what it stands for, or raises `Rejected`.
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
"""The fields that may hold a system prompt beside the turns."""

_CALLS = ("tool_calls", "function_call", "function_calls")
"""Where a message has what it calls: OpenAI's, OpenAI's before, OLMo's and Dolci's."""


def field(row: Row, key: str) -> object:
    """What the row holds under the key, null included."""
    if key not in row:
        raise Rejected(Reason.MISSING_FIELD, key)
    return row[key]


def text(value: object) -> str:
    """A string as it is; a list of text parts put end to end, with nothing between them."""
    if value is None:
        raise Rejected(Reason.EMPTY_CONTENT)
    found = "".join(map(_part, value)) if isinstance(value, list) else value
    if not isinstance(found, str):
        raise Rejected(Reason.CONTENT_NOT_TEXT, type(value).__name__)
    if not found.strip():
        raise Rejected(Reason.EMPTY_CONTENT)
    try:
        found.encode()
    except UnicodeEncodeError:
        raise Rejected(Reason.LONE_SURROGATE) from None
    return found


def _part(part: object) -> str:
    content = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part
    if not isinstance(content, str):
        raise Rejected(Reason.CONTENT_NOT_TEXT, "a part that isn't text")
    return content


def message(value: object) -> Message:
    """One turn, of text. A tool call is refused because no reward model's template here renders it.

    Reasoning that stands in a field of its own comes before the content, between marks.
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
    """A list of at least one thing that should be a message, or hold one."""
    if value is None or value == []:
        raise Rejected(Reason.NO_MESSAGES)
    if not isinstance(value, list):
        raise Rejected(Reason.WRONG_TYPE, "messages that aren't a list")
    return value


def conversation(value: object) -> tuple[Message, ...]:
    """At least one turn; the first that is bad decides."""
    return tuple(map(message, entries(value)))


def final(turns: tuple[Message, ...]) -> Exchange:
    """The last turn, which must be the assistant's, and all that goes before it."""
    if turns[-1].role is not Role.ASSISTANT:
        raise Rejected(Reason.NO_FINAL_ASSISTANT)
    return Exchange(turns[:-1], turns[-1].content)


def question(value: object) -> tuple[Message, ...]:
    """A context: what the user says, or the messages so far."""
    return conversation(value) if isinstance(value, list) else (Message(Role.USER, text(value)),)


def is_blank(value: object) -> bool:
    """Whether an optional text isn't there: null, or nothing but white space."""
    return value is None or (isinstance(value, str) and not value.strip())


def with_opening_system(system: object, turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The turns after a system prompt that stands beside them, if there is one and they don't begin with it already.

    They may not begin with another one.
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
    """Whether a turn is the same system prompt again."""
    return turn.role is system.role and turn.content.strip() == system.content.strip()


def systems(row: Row) -> tuple[object, ...]:
    """What the row may have for a system prompt beside its turns."""
    return tuple(map(row.get, SYSTEMS))


def with_row_system(row: Row, turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The turns after the row's `system` or `system_prompt`, where it has one that isn't null or blank."""
    for system in systems(row):
        turns = with_opening_system(system, turns)
    return turns


def prompt(row: Row) -> tuple[Message, ...]:
    """The row's `prompt`, after its system prompt."""
    return with_row_system(row, question(field(row, "prompt")))


def answer(value: object) -> str:
    """A response: its text, or a message of the assistant's. Several texts are several responses, and rejected."""
    if isinstance(value, list) and sum(isinstance(part, str) for part in value) > 1:
        raise Rejected(Reason.WRONG_TYPE, "a list of texts where one response is expected")
    return final((message(value),)).answer if isinstance(value, dict) else text(value)


def reply(context: tuple[Message, ...], value: object) -> Exchange:
    """A response in its context: its text, a message of the assistant's, or several turns that end with one."""
    if not isinstance(value, list):
        return Exchange(refuse_answered(context), answer(value))
    more, said = final(conversation(value))
    return Exchange(refuse_answered(append_turns(context, more)), said)


def refuse_answered(turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The turns, for a response that stands apart from them. Raises `Rejected` if the assistant has answered already.

    It may be one of the candidates, and nobody is judged in a context that they answered. In rows that are one list of
    turns this isn't asked: there, an assistant who speaks twice has done so.
    """
    if turns and turns[-1].role is Role.ASSISTANT:
        raise Rejected(Reason.WRONG_TYPE, "a conversation that ends with the assistant")
    return turns


def append_turns(context: tuple[Message, ...], turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """The context and what follows it before the response.

    Raises `Rejected` for turns that begin the conversation anew, as those of a row that has its prompt twice, in other
    words: a system prompt after the context, or a user's turn after one of theirs.
    """
    if context and turns:
        if turns[0].role is Role.SYSTEM:
            raise Rejected(Reason.WRONG_TYPE, "a system prompt after the prompt")
        if turns[0].role is context[-1].role is Role.USER:
            raise Rejected(Reason.WRONG_TYPE, "a user's turn right after the prompt's")
    return context + turns


def is_message(value: object) -> bool:
    """Whether this was meant as a message, readable or not: for telling shapes apart."""
    return isinstance(value, dict) and "role" in value


def is_conversation(value: object) -> bool:
    """Whether this was meant as a list of messages: for telling shapes apart."""
    return isinstance(value, list) and any(map(is_message, value))


def with_policy_system(context: tuple[Message, ...], system: str | None) -> tuple[Message, ...]:
    """A conversation with the policy's system prompt, unless it begins with one of its own."""
    if system is None or context[0].role is Role.SYSTEM:
        return context
    return (Message(Role.SYSTEM, system), *context)
