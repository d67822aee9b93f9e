"""ProcessBench: {"problem": str, "steps": [str, ...], "label": int, ...}, a solution in steps, and the first that is wrong.

The solution is judged as one response, in which blank lines part the steps. A blank line inside a step would part it, too,
and every later step would be compared with another one's label: it is left out.
"""

from actors.errors import Rejected
from actors.records import Reason
from pipelines.data.formats.content import entries, exchange, field
from pipelines.data.formats.rows import ONLY_RESPONSE, Exchange, Row, RowRequests, gather
from pipelines.data.formats.shape import Shape


def looks_like(row: Row) -> bool:
    """A problem, and a list of texts as the steps of its solution."""
    steps = row.get("steps")
    return isinstance(row.get("problem"), str) and isinstance(steps, list) and all(isinstance(step, str) for step in steps)


def read(row: Row) -> RowRequests:
    """The solution as `final`."""
    return gather({ONLY_RESPONSE: lambda: _exchange(row)})


def _exchange(row: Row) -> Exchange:
    solution = "\n\n".join(map(_step, entries(field(row, "steps"))))
    return exchange(row, "problem", solution)


def _step(step: object) -> str:
    if not isinstance(step, str):
        raise Rejected(Reason.WRONG_TYPE, "a step that isn't text")
    if not (lines := [line for line in step.split("\n") if line.strip()]):
        raise Rejected(Reason.EMPTY_CONTENT, "a step without text")
    return "\n".join(lines)


SHAPE = Shape(
    "processbench",
    "a problem and the steps of its solution (ProcessBench)",
    "`problem`, text, and `steps`, a list of text",
    looks_like,
    read,
    reads=("problem", "steps"),
)
