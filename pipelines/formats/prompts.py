"""Shapes of rows without responses: prompts that a policy answers. Each row is one prompt.

If a conversation ends with the assistant, that last turn is dropped and generated anew. A prompt with a trainer's template
written out is parsed into turns, as in the shapes of scored rows.
"""

from collections.abc import Callable

from actors.errors import Rejected
from actors.records import Message, Reason, Role
from pipelines.formats import extra_ids, llama_text
from pipelines.formats.content import (
    conversation,
    entries,
    field,
    is_conversation,
    question,
    text,
    with_opening_system,
    with_row_system,
)
from pipelines.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.formats.shape import Shape
from pipelines.formats.shapes import steerlm
from pipelines.formats.shapes.alpaca import prompt_turns
from pipelines.formats.shapes.sharegpt import is_talk, openai

CANDIDATE = "candidate"
"""The name of the placeholder for the response that a policy will generate."""

PROMPT_READER = 4
"""Version of the prompt reader, part of a run's identity: increase it whenever a row yields another conversation."""

_FIELDS = ("prompt", "question", "problem", "query", "input")


def prompt_request(read: Callable[[], tuple[Message, ...]]) -> RowRequests:
    """A request with the context that `read` returns and an empty response as a placeholder. `read` may raise `Rejected`."""
    return gather({CANDIDATE: lambda: Exchange(read(), "")})


def open_end(turns: list[object]) -> list[object]:
    """The turns without a last turn of the assistant, which isn't read and may hold anything."""
    last = turns[-1] if turns else None
    return turns[:-1] if isinstance(last, dict) and last.get("role") == Role.ASSISTANT.value else turns


def _messages(row: Row) -> RowRequests:
    return prompt_request(lambda: with_row_system(row, conversation(open_end(entries(row.get("messages"))))))


def _sharegpt(row: Row) -> RowRequests:
    def read() -> tuple[Message, ...]:
        if isinstance(row.get("mask"), str):
            turns = steerlm.talk(row)
        else:
            turns = [openai(entry) for entry in entries(field(row, "conversations"))]
        return with_row_system(row, conversation(open_end(turns)))

    return prompt_request(read)


def _named(row: Row) -> RowRequests:
    names = _prompt_fields(row)

    def read() -> tuple[Message, ...]:
        prompt = field(row, names[0] if names else _FIELDS[0])
        turns = question(open_end(prompt)) if isinstance(prompt, list) else _parse_text(text(prompt))
        return with_row_system(row, turns)

    return prompt_request(read)


def _parse_text(prompt: str) -> tuple[Message, ...]:
    """The turns of a prompt text. Raises `Rejected` for a template in another form, or with tokens left over."""
    if prompt.startswith(extra_ids.START):
        system, entries = extra_ids.split_prompt(prompt)
        turns = with_opening_system(system, conversation(entries))
    elif llama_text.is_template(prompt):
        turns = llama_text.split_prompt(prompt)
    else:
        turns = conversation(extra_ids.embedded(prompt))
    if any(extra_ids.is_template(turn.content) or llama_text.is_template(turn.content) for turn in turns):
        raise Rejected(Reason.CONTROL_TOKEN, "a token of a template where none belongs")
    return turns


def _prompt_fields(row: Row) -> list[str]:
    return [name for name in _FIELDS if isinstance(row.get(name), str) or is_conversation(row.get(name))]


def _is_named(row: Row) -> bool:
    """Whether the row has exactly one prompt field: with two, it would be ambiguous which is the prompt."""
    others = ("messages", "conversations", "instruction")
    return len(_prompt_fields(row)) == 1 and not any(row.get(name) is not None for name in others)


PROMPT_SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape(
            "messages",
            "a conversation in OpenAI's form, to be answered",
            "`messages`, a list of {role, content}",
            lambda row: is_conversation(row.get("messages")),
            _messages,
        ),
        Shape(
            "sharegpt",
            "a conversation in ShareGPT's form, to be answered",
            "`conversations`, a list of {from, value}",
            lambda row: is_talk(row.get("conversations")),
            _sharegpt,
        ),
        Shape(
            "alpaca",
            "an instruction with an input",
            "`instruction`, and perhaps `input`",
            lambda row: isinstance(row.get("instruction"), str),
            lambda row: prompt_request(lambda: prompt_turns(row)),
        ),
        Shape(
            "prompt",
            "a prompt, with an optional system prompt",
            f"one of {', '.join(f'`{name}`' for name in _FIELDS)}, text or messages; `system` is optional",
            _is_named,
            _named,
        ),
    )
}
"""All shapes of prompts by name."""
