"""Prompts in ShareGPT's form, NeMo's rows with a `mask` among them: {"conversations": [{"from": ..., "value": ...}]}."""

from actors.records import Message
from pipelines.formats.content import conversation, entries, field, with_row_system
from pipelines.formats.prompts import open_end, prompt_request
from pipelines.formats.rows import Row, RowRequests
from pipelines.formats.shape import Shape
from pipelines.formats.shapes import steerlm
from pipelines.formats.shapes.sharegpt import is_talk, openai


def looks_like(row: Row) -> bool:
    """A list of turns."""
    return is_talk(row.get("conversations"))


def read(row: Row) -> RowRequests:
    """The conversation up to the assistant's last turn, to be answered."""

    def prompt() -> tuple[Message, ...]:
        if isinstance(row.get("mask"), str):
            turns = steerlm.talk(row)
        else:
            turns = [openai(entry) for entry in entries(field(row, "conversations"))]
        return with_row_system(row, conversation(open_end(turns)))

    return prompt_request(prompt)


PROMPT_SHAPE = Shape(
    "sharegpt",
    "a conversation in ShareGPT's form, to be answered",
    "`conversations`, a list of {from, value}",
    looks_like,
    read,
    reads=("conversations", "mask"),
)
