"""UltraFeedback: {"instruction": str, "completions": [{"model": str, "response": str, ...}, ...], ...}.

A completion's `custom_system_prompt`, which told its model what principle to follow, isn't shown to the judge: it isn't
the user's, and all completions of a row are compared as answers to the one instruction.
"""

from functools import partial

from actors.errors import Rejected
from actors.records import Reason
from pipelines.data.formats.content import entries, exchange, field
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape


def looks_like(row: Row) -> bool:
    """An instruction, and completions of which at least one holds a response."""
    completions = row.get("completions")
    has_response = isinstance(completions, list) and any(
        isinstance(completion, dict) and "response" in completion for completion in completions
    )
    return isinstance(row.get("instruction"), str) and has_response


def read(row: Row) -> RowRequests:
    """`completions[0]`, `completions[1]`, ..."""
    completions = entries(field(row, "completions"))
    return gather({f"completions[{i}]": partial(_exchange, row, completion) for i, completion in enumerate(completions)})


def _exchange(row: Row, completion: object) -> Exchange:
    if not isinstance(completion, dict):
        raise Rejected(Reason.WRONG_TYPE, "a completion that isn't an object")
    return exchange(row, "instruction", field(completion, "response"))


SHAPE = Shape(
    "ultrafeedback",
    "an instruction and several models' responses to it (UltraFeedback)",
    "`instruction`, and `completions`, a list of {model, response}",
    looks_like,
    read,
    reads=("instruction", "completions"),
)
