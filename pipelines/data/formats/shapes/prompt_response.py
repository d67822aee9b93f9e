"""A prompt and its one response: {"prompt": str | messages, "response": str | message, "system"?: str}."""

from pipelines.data.formats.content import exchange, field, is_conversation, is_message
from pipelines.data.formats.rows import ONLY_RESPONSE, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape
from pipelines.data.formats.shapes.helpsteer2 import is_rated
from pipelines.data.formats.shapes.nemo_preference import is_kto


def looks_like(row: Row) -> bool:
    """A prompt that is a string or messages, and a response that is a string or a message.

    HelpSteer's rows and NeMo's for KTO have these too, and are known by what else they have.
    """
    prompt_value, response = row.get("prompt"), row.get("response")
    plain = (isinstance(prompt_value, str) or is_conversation(prompt_value)) and (
        isinstance(response, str) or is_message(response)
    )
    return plain and not is_rated(row) and not is_kto(row)


def read(row: Row) -> RowRequests:
    """The response, named `final`."""
    return gather({ONLY_RESPONSE: lambda: exchange(row, "prompt", field(row, "response"))})


SHAPE = Shape(
    "prompt-response",
    "a prompt and one response to it, with an optional system prompt",
    "`prompt`, text or messages, and `response`, text or a message; `system` is optional",
    looks_like,
    read,
    reads=("prompt", "response"),
)
