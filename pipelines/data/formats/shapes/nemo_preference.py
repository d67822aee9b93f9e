"""NeMo-Aligner's rows for DPO and RPO, and for KTO.

{"prompt": str | messages, "chosen_response": str | message, "rejected_response": the same}
{"prompt": str | messages, "response": str | message, "preference": "chosen" | "rejected"}

Strings are written out in NeMo's template (`formats.written_out`): a prompt ends with the assistant's header, a response
with "\\n<extra_id_1>".
"""

from functools import partial

from pipelines.data.formats.content import exchange, field
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather, response_keys
from pipelines.data.formats.shape import Shape

SIDES = {"chosen": "chosen_response", "rejected": "rejected_response"}


def looks_like(row: Row) -> bool:
    """A prompt with both responses, or with the one that was preferred or not."""
    pair = all(key in row for key in SIDES.values())
    return row.get("prompt") is not None and (pair or is_kto(row))


def is_kto(row: Row) -> bool:
    """Whether this is one response and which side it is."""
    return "response" in row and row.get("preference") in ("chosen", "rejected")


def read(row: Row) -> RowRequests:
    """`chosen` and `rejected`, or the one response as `final`."""
    return gather({name: partial(_exchange, row, key) for name, key in response_keys(row, "response", SIDES).items()})


def _exchange(row: Row, key: str) -> Exchange:
    return exchange(row, "prompt", field(row, key))


SHAPE = Shape(
    "nemo-preference",
    "NeMo-Aligner's rows for DPO and RPO (two responses) and for KTO (one)",
    "`prompt`, with `chosen_response` and `rejected_response`, or with `response` and `preference`",
    looks_like,
    read,
    reads=("prompt", "response", *SIDES.values()),
)
