"""Tool calls in a conversation: which call a tool's turn answers, and turns with calls as messages or as text."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from actors.records import Message, Response, Role, ToolCall

STRING = re.compile(r'("(?:[^"\\]++|\\.)*+")(\s*:)?', re.DOTALL)  # a string in a JSON text; with a colon, if it is a key
# Delimiters of a conversation as text: how the lines of calls and of ids begin in it.
WRITTEN_CALL = ("\ntool_call: {", "\ntool_call_id: ")
# What a template may look for in a schema, such as the types, and no tokenizer makes a control token of.
_PLAIN = re.compile(r"[\w.-]*", re.ASCII)


class OpenCalls:
    """The calls of an assistant's turn that no tool has answered yet, as a conversation goes on.

    `are_made` is whether that turn had any, answered or not.
    """

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.are_made = False

    def follow(self, turn: Message) -> ToolCall | None:
        """The call that the next turn answers. None if it is no tool's, or answers none.

        It is the first one with the turn's id, else one without an id; an answer without an id may answer any.
        """
        if turn.role is not Role.TOOL:
            self.calls, self.are_made = list(turn.calls), bool(turn.calls)
            return None
        fitting = (call for call in self.calls if turn.call_id is None or call.id in (None, turn.call_id))
        # False sorts before True: the call with the turn's id first, else the first that fits.
        call = min(fitting, key=lambda call: call.id != turn.call_id, default=None)
        if call is not None:
            self.calls.remove(call)
        return call


def as_messages(turns: Sequence[Message], arguments: Callable[[str], object] = str) -> list[dict[str, Any]]:
    """The turns in OpenAI's form; `arguments` makes what a call has there of their JSON text.

    A tool's turn has the name, and if it has one the id, of the call that it answers: templates print the one or the other.
    """
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


def strings_of(text: str) -> Iterator[str]:
    """The strings and keys in a JSON text, without their escapes."""
    return (json.loads(literal[1]) for literal in STRING.finditer(text))


def blank_json(text: str, word: str) -> str:
    """A JSON text with a word in place of each string and key but plain names, for counting control tokens."""

    def blank(literal: re.Match[str]) -> str:
        is_plain = _PLAIN.fullmatch(json.loads(literal[1])) is not None
        return literal[0] if is_plain else json.dumps(word, ensure_ascii=False) + (literal[2] or "")

    return STRING.sub(blank, text)


def blank_calls(calls: tuple[ToolCall, ...], word: str) -> tuple[ToolCall, ...]:
    """Calls with a word in place of what a row says in them, but plain names and ids."""
    names = [(json.loads(blank_json(json.dumps([call.name, call.id]), word)), call) for call in calls]
    return tuple(ToolCall(name, blank_json(call.arguments, word), number) for (name, number), call in names)
