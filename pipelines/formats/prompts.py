"""Rows that ask and aren't answered: the shapes of prompts that a policy is to answer. Each row is one prompt.

A conversation that ends with the assistant is asked again from the turn before: what it said there is left out. A prompt
that has its trainer's template written out is taken apart, as in the shapes of scored rows.
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
"""The name of what a policy is going to answer."""

PROMPT_READER = 4
"""How prompts are read, for a run's identity: raise it whenever a row becomes another conversation than before."""

_FIELDS = ("prompt", "question", "problem", "query", "input")


def prompt_request(read: Callable[[], tuple[Message, ...]]) -> RowRequests:
    """A row that asks what `read` gives, and whose one response isn't there yet. `read` raises `Rejected`."""
    return gather({CANDIDATE: lambda: Exchange(read(), "")})


def open_end(turns: list[object]) -> list[object]:
    """Without the assistant's last turn, which may be empty, or anything: it isn't read."""
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
    names = _prompts(row)

    def read() -> tuple[Message, ...]:
        prompt = field(row, names[0] if names else _FIELDS[0])
        turns = question(open_end(prompt)) if isinstance(prompt, list) else _take_apart(text(prompt))
        return with_row_system(row, turns)

    return prompt_request(read)


def _take_apart(prompt: str) -> tuple[Message, ...]:
    """The turns of a text. Raises `Rejected` for a template that isn't exactly of its form, and for what is left of one."""
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


def _prompts(row: Row) -> list[str]:
    return [name for name in _FIELDS if isinstance(row.get(name), str) or is_conversation(row.get(name))]


def _is_named(row: Row) -> bool:
    """One such field: of two, nobody could tell which is the prompt."""
    others = ("messages", "conversations", "instruction")
    return len(_prompts(row)) == 1 and not any(row.get(name) is not None for name in others)


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
