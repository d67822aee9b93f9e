"""TRL's rows for KTO and for fine-tuning: {"prompt": str | messages, "completion": str | messages, "label"?: bool}."""

from pipelines.data.formats.content import field, is_conversation, is_message, prompt, reply
from pipelines.data.formats.rows import ONLY_RESPONSE, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape


def looks_like(row: Row) -> bool:
    """A prompt and a completion, each a string or messages."""
    prompt_value, completion = row.get("prompt"), row.get("completion")
    readable = isinstance(completion, str) or is_message(completion) or is_conversation(completion)
    return (isinstance(prompt_value, str) or is_conversation(prompt_value)) and readable


def read(row: Row) -> RowRequests:
    """The completion, named `final`."""
    return gather({ONLY_RESPONSE: lambda: reply(prompt(row), field(row, "completion"))})


SHAPE = Shape(
    "prompt-completion",
    "a prompt and one completion of it (TRL's rows for KTO and for fine-tuning)",
    "`prompt` and `completion`, text or messages",
    looks_like,
    read,
    reads=("prompt", "completion"),
)
