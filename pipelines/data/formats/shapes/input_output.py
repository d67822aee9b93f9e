"""Nemotron's post-training rows and OpenRLHF's generations: an input and the output to it.

{"input": str | messages, "output": str | message | messages, "system_prompt"?: str}
"""

from pipelines.data.formats.content import field, is_conversation, is_message, question, reply, with_row_system
from pipelines.data.formats.rows import ONLY_RESPONSE, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape


def looks_like(row: Row) -> bool:
    """An input and an output; with an `instruction` the input would only be a part of the question."""
    prompt, response = row.get("input"), row.get("output")
    readable = isinstance(response, str) or is_message(response) or is_conversation(response)
    return (isinstance(prompt, str) or is_conversation(prompt)) and readable and row.get("instruction") is None


def read(row: Row) -> RowRequests:
    """The output, named `final`."""
    return gather({ONLY_RESPONSE: lambda: reply(with_row_system(row, question(field(row, "input"))), field(row, "output"))})


SHAPE = Shape(
    "input-output",
    "an input and one output to it (Nemotron's post-training data, OpenRLHF)",
    "`input`, text or messages, and `output`; `system_prompt` is optional",
    looks_like,
    read,
    reads=("input", "output"),
)
