"""Nemotron's post-training rows and OpenRLHF's generations: an input and the output to it.

{"input": str | messages, "output": str | message | messages, "system_prompt"?: str}. In the first version of Nemotron's
data the input is written in Llama 3's template.
"""

from pipelines.formats.content import field, is_conversation, is_message, question, reply, with_row_system
from pipelines.formats.llama_text import is_template, split_prompt, without_end
from pipelines.formats.rows import ONLY_RESPONSE, Exchange, Row, RowRequests, gather
from pipelines.formats.shape import Shape


def looks_like(row: Row) -> bool:
    """An input and an output; with an `instruction` the input would only be a part of the question."""
    prompt, response = row.get("input"), row.get("output")
    readable = isinstance(response, str) or is_message(response) or is_conversation(response)
    return (isinstance(prompt, str) or is_conversation(prompt)) and readable and row.get("instruction") is None


def read(row: Row) -> RowRequests:
    """The output, named `final`."""
    return gather({ONLY_RESPONSE: lambda: _exchange(row)})


def _exchange(row: Row) -> Exchange:
    prompt, response = field(row, "input"), field(row, "output")
    if isinstance(prompt, str) and is_template(prompt):
        response = without_end(response) if isinstance(response, str) else response
        return reply(with_row_system(row, split_prompt(prompt)), response)
    return reply(with_row_system(row, question(prompt)), response)


SHAPE = Shape(
    "input-output",
    "an input and one output to it (Nemotron's post-training data, OpenRLHF)",
    "`input`, text or messages, and `output`; `system_prompt` is optional",
    looks_like,
    read,
    reads=("input", "output"),
)
