"""All shapes by name, which one a file has, and how a row of it is read.

A shape is found by being in `shapes/`: a module there defines `SHAPE`, `PROMPT_SHAPE` or both.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from actors.errors import Rejected, SettingsError, SourceError
from actors.modules import modules_in
from actors.records import Reason
from pipelines.formats import shapes
from pipelines.formats.rows import RowRequests
from pipelines.formats.shape import Shape


def _find_shapes(constant: str) -> dict[str, Shape]:
    """The shapes that the modules of `shapes` define under the name `constant`, by their own names."""
    modules = modules_in(shapes.__name__, shapes.__path__)
    return {shape.name: shape for module in modules if (shape := getattr(module, constant, None)) is not None}


SHAPES = _find_shapes("SHAPE")
"""Shapes of rows whose responses are judged, by name."""
PROMPT_SHAPES = _find_shapes("PROMPT_SHAPE")
"""Shapes of rows whose prompt a policy answers, by name."""

Turns = Literal["final", "all"]

ROW_READER = 2
"""Version of the row reader, part of a run's identity: increase it whenever a row yields another request."""

STRAY = 0.1
"""Maximum share of recognised rows that may have another shape than the file's. Those are rejected row by row."""

KEYS_SHOWN = 20


def requests(shape: Shape, row: object, turns: Turns = "final") -> RowRequests:
    """The requests of a row. Never raises for the content of a row: a bad row yields a rejected response.

    With turns="all" each assistant turn of a conversation is judged, not the last one only; a shape that doesn't
    hold conversations raises `SettingsError`, so check `shape.read_turns` before the run.
    """
    read = shape.read if turns == "final" else shape.read_turns
    if read is None:
        conversational = ", ".join(name for name, candidate in SHAPES.items() if candidate.read_turns)
        raise SettingsError(f"turns='all' needs rows that hold a conversation ({conversational}), these are {shape.name!r}")
    if not isinstance(row, dict):
        return RowRequests.broken(Reason.NOT_AN_OBJECT)
    try:
        return read(row)
    except Rejected as error:
        return RowRequests.broken(error.reason)


def detect(rows: Sequence[object], known: Mapping[str, Shape] = SHAPES) -> Shape:
    """The one shape of a sample of rows, of those of scored rows or of `known`, or `SourceError`.

    Rows with any shape must be at least half of the sample: a few broken rows don't matter, but a file of another kind isn't
    read for the sake of a few fitting rows. Of those rows the shape must fit at least nine in ten, and no other shape more
    than one in ten: otherwise the file is a mixture, or holds its responses twice, and the user must choose.
    """
    fits = [[shape for shape in known.values() if isinstance(row, dict) and shape.looks_like(row)] for row in rows]
    fitting = sum(map(bool, fits))
    votes = Counter(shape.name for fitting_shapes in fits for shape in fitting_shapes).most_common()
    if not votes or 2 * fitting < len(rows):
        raise SourceError(_no_shape_message(rows, fitting, known))
    rivals = [name for name, count in votes[1:] if count > STRAY * fitting]
    if rivals or votes[0][1] < (1 - STRAY) * fitting:
        counts = ", ".join(f"{name} ({count} of {len(rows)} rows)" for name, count in votes)
        raise SourceError(f"these rows have more than one shape: {counts}. Choose one with --format NAME")
    return known[votes[0][0]]


def explain_detection(shape: Shape, rows: Sequence[object]) -> str:
    """The evidence for a shape, as a sentence for the user: `messages: 50 of 50 rows have ...`."""
    if not rows:
        return f"{shape.name}: there are no rows to look at"
    fitting = sum(isinstance(row, dict) and shape.looks_like(row) for row in rows)
    return f"{shape.name}: {fitting} of {len(rows)} rows have {shape.needs}"


def keys_seen(rows: Sequence[object]) -> str:
    """The keys of the rows, the most frequent first, for an error."""
    keys = Counter(str(key) for row in rows if isinstance(row, dict) for key in row).most_common()
    seen = ", ".join(ascii(key[:40]) for key, _ in keys[:KEYS_SHOWN]) or "none"
    return seen + (f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else "")


def _no_shape_message(rows: Sequence[object], fitting: int, known: Mapping[str, Shape]) -> str:
    needs = "".join(f"\n  {shape.name}: {shape.needs}" for shape in known.values())
    columns = "--prompt-column and --response-column" if known is SHAPES else "--prompt-column"
    return (
        f"no known shape fits these rows ({fitting} of the {len(rows)} looked at have one). "
        f"Keys seen: {keys_seen(rows)}. Name the fields with {columns}, or choose with "
        f"--format NAME. Shapes, and what they need:{needs}"
    )
