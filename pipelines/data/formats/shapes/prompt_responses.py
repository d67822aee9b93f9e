"""A prompt and several responses to it: {"prompt": str | messages, "responses": [str, ...], "system"?: str}."""

from functools import partial

from pipelines.data.formats.content import entries, exchange, field, is_conversation
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape

_OTHERS = (
    *("response", "response_1", "response_2", "completion", "output", "messages", "conversations"),
    *("chosen", "rejected", "chosen_response", "rejected_response"),
)
"""Fields of other shapes with what is judged: `responses` beside one of these is something else that such a row carries."""


def looks_like(row: Row) -> bool:
    """A prompt that is a string or messages, and a list with texts, in a row without another shape's responses."""
    prompt_value, responses = row.get("prompt"), row.get("responses")
    several = isinstance(responses, list) and any(isinstance(response, str) for response in responses)
    has_answer = any(row.get(key) is not None for key in _OTHERS)
    return (isinstance(prompt_value, str) or is_conversation(prompt_value)) and several and not has_answer


def read(row: Row) -> RowRequests:
    """`responses[0]`, `responses[1]`, ..."""
    responses = entries(field(row, "responses"))
    return gather({f"responses[{i}]": partial(_exchange, row, response) for i, response in enumerate(responses)})


def _exchange(row: Row, response: object) -> Exchange:
    return exchange(row, "prompt", response)


SHAPE = Shape(
    "prompt-responses",
    "a prompt and a list of responses to it, with an optional system prompt",
    "`prompt`, text or messages, and `responses`, a list of text; `system` is optional",
    looks_like,
    read,
    reads=("prompt", "responses"),
)
