"""A prompt alone, for a policy to answer: one field of text or messages, and perhaps a system prompt beside it."""

from actors.records import Message
from pipelines.data.formats.content import conversation, field, is_text_or_turns, open_end, question, text, with_row_system
from pipelines.data.formats.extra_ids import embedded
from pipelines.data.formats.rows import Row, RowRequests, Shape, prompt_request

_FIELDS = ("prompt", "question", "problem", "query", "input")


def _named(row: Row) -> RowRequests:
    names = _prompt_fields(row)

    def read() -> tuple[Message, ...]:
        prompt = field(row, names[0] if names else _FIELDS[0])
        # As in rows of HelpSteer2, a prompt of text may hold the turns before it.
        turns = question(open_end(prompt)) if isinstance(prompt, list) else conversation(embedded(text(prompt)))
        return with_row_system(row, turns)

    return prompt_request(read)


def _prompt_fields(row: Row) -> list[str]:
    return [name for name in _FIELDS if is_text_or_turns(row.get(name))]


def _is_named(row: Row) -> bool:
    # With two prompt fields nobody knows which is the prompt.
    other_shapes = ("messages", "conversations", "instruction")
    return len(_prompt_fields(row)) == 1 and not any(row.get(name) is not None for name in other_shapes)


PROMPT_SHAPES = (
    Shape(
        "prompt",
        "a prompt, with an optional system prompt",
        f"one of {', '.join(f'`{name}`' for name in _FIELDS)}, text or messages; `system` is optional",
        _is_named,
        _named,
        reads=_FIELDS,
    ),
)
