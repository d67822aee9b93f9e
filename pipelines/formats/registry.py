"""All shapes by name, which one a file has, and how a row of it is read.

A shape is found by being in `shapes/`: a module there defines `SHAPE`, `PROMPT_SHAPE` or both.
"""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from actors.errors import Rejected, SettingsError, SourceError
from actors.modules import modules_in
from actors.records import Reason
from pipelines.formats import shapes
from pipelines.formats.rows import Row, RowRequests
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

ROW_READER = 3
"""Version of the row reader, part of a run's identity: increase it whenever a row yields another request.

So it does in a mixed corpus where another shape recognises it; a new shape alone is noticed by its name (`identity`)."""

STRAY = 0.1
"""Maximum share of recognised rows that may have another shape than the file's. Those are rejected row by row."""

KEYS_SHOWN = 20
_LEAST_ALIKE = 0.8
"""Of a key with the one that was meant, by difflib: `conversation` and `conversations` have 0.96."""
_QUESTIONS = 3


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


class Recognised(NamedTuple):
    """The shapes that a row was meant to have, and the row as they read it."""

    row: Row
    shapes: Sequence[Shape]


def recognise(row: object, available: Mapping[str, Shape]) -> Recognised:
    """The shapes of a row without its fields that are null; of the whole row, if it has none then.

    In Parquet every row has the columns of all others, and a null there is a field that the row doesn't have.
    """
    if not isinstance(row, dict):
        return Recognised({}, ())
    for fields in ({name: value for name, value in row.items() if value is not None}, row):
        if shapes := [shape for shape in available.values() if shape.looks_like(fields)]:
            return Recognised(fields, shapes)
    return Recognised(row, ())


def check_known(rows: Sequence[object], fits: Sequence[Sequence[Shape]], available: Mapping[str, Shape]) -> None:
    """Raise `SourceError` unless at least half of the rows has a shape. `fits` are the shapes of each."""
    recognised = sum(map(bool, fits))
    if not recognised or 2 * recognised < len(rows):
        raise SourceError(_no_shape_message(rows, recognised, available))


def detect(rows: Sequence[object], available: Mapping[str, Shape] = SHAPES) -> Shape:
    """The one shape of a sample of rows, of those of scored rows or of `available`, or `SourceError`.

    Rows with any shape must be at least half of the sample: a few broken rows don't matter, but a file of another kind isn't
    read for the sake of a few fitting rows. Of those rows the shape must fit at least nine in ten, and no other shape more
    than one in ten: otherwise the file is a mixture, or holds its responses twice, and the user must choose.
    """
    fits = [recognise(row, available).shapes for row in rows]
    check_known(rows, fits, available)
    recognised = sum(map(bool, fits))
    votes = Counter(shape.name for row_shapes in fits for shape in row_shapes).most_common()
    rivals = [name for name, count in votes[1:] if count > STRAY * recognised]
    if rivals or votes[0][1] < (1 - STRAY) * recognised:
        counts = ", ".join(f"{name} ({count} of {len(rows)} rows)" for name, count in votes)
        ambiguous = sum(len(row_shapes) > 1 for row_shapes in fits) > STRAY * recognised
        or_mixed = "" if ambiguous else ", or read each row in its own shape with --format mixed"
        raise SourceError(f"these rows have more than one shape: {counts}. Choose one with --format NAME{or_mixed}")
    return available[votes[0][0]]


def keys_seen(rows: Sequence[object]) -> str:
    """The keys of the rows, the most frequent first, for an error."""
    keys = Counter(str(key) for row in rows if isinstance(row, dict) for key in row).most_common()
    listing = ", ".join(ascii(key[:40]) for key, _ in keys[:KEYS_SHOWN]) or "none"
    return listing + (f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else "")


def _ask_near(rows: Sequence[object], available: Mapping[str, Shape]) -> str:
    """A question for each of the rows' keys that is nearly one that a shape reads; empty if there is none."""
    row_keys = {str(key) for row in rows if isinstance(row, dict) for key in list(row)[:KEYS_SHOWN]}
    readers = {key: shape for shape in reversed(list(available.values())) for key in shape.reads}
    near = {
        key: difflib.get_close_matches(key.lower(), readers, n=1, cutoff=_LEAST_ALIKE)
        for key in sorted(row_keys - readers.keys())
    }
    questions = [
        f"Did you mean {meant!r} by {key[:40]!a} ({readers[meant].name}: {readers[meant].needs})? "
        for key, (meant, *_) in ((key, close) for key, close in near.items() if close)
        if meant not in row_keys
    ]
    return "".join(questions[:_QUESTIONS])


def _unreadable(rows: Sequence[object]) -> str:
    """A sentence on the rows of a sample that couldn't be parsed, which stand in it as the error; empty if all could."""
    errors = [row for row in rows if isinstance(row, Rejected)]
    if not errors:
        return ""
    return f"{len(errors)} of the {len(rows)} rows looked at can't be read as JSON objects, the first one: {errors[0]}"


def _no_shape_message(rows: Sequence[object], fitting: int, available: Mapping[str, Shape]) -> str:
    unreadable = _unreadable(rows)
    if not any(isinstance(row, dict) for row in rows) and unreadable:
        return f"{unreadable}. Is each line of the file one JSON object, and the name's ending that of its format?"
    needs = "".join(f"\n  {shape.name}: {shape.needs}" for shape in available.values())
    columns = "--prompt-column and --response-column" if available is SHAPES else "--prompt-column"
    return (
        f"no known shape fits these rows ({fitting} of the {len(rows)} looked at have one). "
        f"{unreadable and unreadable + '. '}Keys seen: {keys_seen(rows)}. {_ask_near(rows, available)}Name the fields with "
        f"{columns}, or choose with --format NAME. Shapes, and what they need:{needs}"
    )
