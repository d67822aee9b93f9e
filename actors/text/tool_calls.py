"""Tool calls in a conversation: which call a tool's turn answers, and turns with calls as messages or as text."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from actors.records import Message, Response, Role, ToolCall

_PLAIN = re.compile(r"[\w.-]*", re.ASCII)
"""What a template may look for in a schema, such as the types, and no tokenizer makes a control token of."""


class OpenCalls:
    """The calls of an assistant's turn that no tool has answered yet, as a conversation goes on."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []

    def follow(self, turn: Message) -> ToolCall | None:
        """The call that the next turn answers: by its id, else the first one. None if it is no tool's, or answers none."""
        if turn.role is not Role.TOOL:
            self.calls = list(turn.calls)
            return None
        call = next((call for call in self.calls if turn.call_id is None or call.id in (None, turn.call_id)), None)
        if call is not None:
            self.calls.remove(call)
        return call


def as_messages(turns: Sequence[Message], arguments: Callable[[str], object] = str) -> list[dict[str, Any]]:
    """The turns in OpenAI's form; `arguments` makes what a call has there of their JSON text."""
    calls, messages = OpenCalls(), []
    for turn in turns:
        message: dict[str, Any] = {"role": turn.role.value, "content": turn.content}
        if (answered := calls.follow(turn)) is not None:
            message |= {} if turn.call_id is None else {"tool_call_id": turn.call_id}
            message["name"] = answered.name
        if turn.calls:
            functions = [{"name": call.name, "arguments": arguments(call.arguments)} for call in turn.calls]
            numbers = ({} if call.id is None else {"id": call.id} for call in turn.calls)
            message["tool_calls"] = [
                {**number, "type": "function", "function": function}
                for number, function in zip(numbers, functions, strict=True)
            ]
        messages.append(message)
    return messages


def write_turn(turn: Message | Response) -> str:
    """A turn as text, for judges that are shown a conversation so: its content, then a line for each call.

    A call is `tool_call: {"name": ..., "arguments": ...}`, with its `id` where it has one, and the answer to a call with an
    id begins with the line `tool_call_id: ...`.
    """
    lines = [turn.content] if turn.content.strip() or not turn.calls else []
    if isinstance(turn, Message) and turn.call_id is not None:
        lines.insert(0, f"tool_call_id: {turn.call_id}")
    return "\n".join((*lines, *map(_write_call, turn.calls)))


def _write_call(call: ToolCall) -> str:
    number = {} if call.id is None else {"id": call.id}
    begin = json.dumps({**number, "name": call.name}, ensure_ascii=False).removesuffix("}")
    return f'tool_call: {begin}, "arguments": {call.arguments}}}'


def call_texts(calls: Sequence[ToolCall]) -> Iterator[str]:
    """All that a row says in calls."""
    for call in calls:
        yield from (call.name, call.arguments, call.id or "")


def size_of(turn: Message | Response) -> int:
    """The characters of a turn with its calls."""
    return len(turn.content) + sum(map(len, call_texts(turn.calls)))


def with_strings(value: object, change: Callable[[str], str], change_key: Callable[[str], str] | None = None) -> Any:
    """A JSON value with each string changed, and each key, unless that is changed otherwise."""
    key_change = change_key or change
    if isinstance(value, dict):
        return {key_change(key): with_strings(member, change, change_key) for key, member in value.items()}
    if isinstance(value, list):
        return [with_strings(item, change, change_key) for item in value]
    return change(value) if isinstance(value, str) else value


def changed_json(text: str, change: Callable[[str], str]) -> str:
    """A JSON text with each string and key changed; the same text if none is another then."""
    value = json.loads(text)
    changed = with_strings(value, change)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def blank_json(text: str, word: str) -> str:
    """A JSON text with a word in place of each string but plain names, of which the control tokens are counted."""
    return changed_json(text, lambda string: string if _PLAIN.fullmatch(string) else word)


def blank_calls(calls: tuple[ToolCall, ...], word: str) -> tuple[ToolCall, ...]:
    """Calls with a word in place of what a row says in them, but plain names and ids."""
    return tuple(
        ToolCall(
            call.name if _PLAIN.fullmatch(call.name) else word,
            blank_json(call.arguments, word),
            call.id if call.id is None or _PLAIN.fullmatch(call.id) else word,
        )
        for call in calls
    )
