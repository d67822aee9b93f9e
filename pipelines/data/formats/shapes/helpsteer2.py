"""HelpSteer and HelpSteer2: a prompt and a response that people rated, or two that they compared.

{"prompt": str, "response": str, "helpfulness": int, ...four more}, the last ones lists in `disagreements`
{"prompt": str, "response_1": str, "response_2": str, "preference_strength": int, ...}, below 0 where the first is better

In 29 % of HelpSteer2 the prompt holds the turns before it, in NeMo's template.
"""

from functools import partial

from actors.records import Message
from pipelines.data.formats.content import answer, conversation, field, question, refuse_answered, text, with_row_system
from pipelines.data.formats.extra_ids import embedded
from pipelines.data.formats.rows import Exchange, Row, RowRequests, gather, response_keys
from pipelines.data.formats.shape import Shape

ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
PAIR = ("response_1", "response_2")


def looks_like(row: Row) -> bool:
    """A prompt with two numbered responses, or with one and all five attributes."""
    return isinstance(row.get("prompt"), str) and (all(key in row for key in PAIR) or is_rated(row))


def is_rated(row: Row) -> bool:
    """Whether this is a response with all five attributes."""
    return all(key in row for key in ("response", *ATTRIBUTES))


def read(row: Row) -> RowRequests:
    """`response_1` and `response_2`, or the one response as `final`."""
    names = response_keys(row, "response", {key: key for key in PAIR})
    return gather({name: partial(_exchange, row, key) for name, key in names.items()})


def _exchange(row: Row, key: str) -> Exchange:
    return Exchange(refuse_answered(with_row_system(row, _prompt_turns(field(row, "prompt")))), answer(field(row, key)))


def _prompt_turns(prompt: object) -> tuple[Message, ...]:
    return question(prompt) if isinstance(prompt, list) else conversation(embedded(text(prompt)))


SHAPE = Shape(
    "helpsteer2",
    "a prompt and a rated response, or two compared ones (HelpSteer, HelpSteer2)",
    "`prompt`, with `response` and the five attributes from `helpfulness` to `verbosity`, or `response_1`, `response_2`",
    looks_like,
    read,
    reads=("prompt", "response", *PAIR),
)
