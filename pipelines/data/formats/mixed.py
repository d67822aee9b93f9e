"""Corpora whose rows have several shapes: each row is read in the only one that it has.

The rule is that of detection, for one row: a row without a shape, or with more than one, isn't guessed at.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from actors.errors import Rejected, SourceError
from actors.records import Reason
from pipelines.data.formats.registry import PROMPT_SHAPES, SHAPES, STRAY, Turns, check_known, fits, recognise, requests
from pipelines.data.formats.rows import Row, RowRequests, Shape
from pipelines.data.formats.stored_turns import decode_conversations

MIXED = "mixed"  # what `--format` takes for such a corpus


def mixed(available: Mapping[str, Shape]) -> Shape:
    """The shape of rows that each have one of the known shapes. It puts that shape's name into what it reads.

    A row that none of them fits is `missing_field`, one that several fit is `two_shapes`.
    """

    def read(row: Row, turns: Turns = "final") -> RowRequests:
        recognised = recognise(row, available)
        if not recognised.shapes:
            if recognised.unread:
                raise Rejected(Reason.TWO_SHAPES, f"another response, or turns, under {recognised.unread[0]!r}")
            raise Rejected(Reason.MISSING_FIELD, "a row of no known shape")
        if len(recognised.shapes) > 1:
            raise Rejected(Reason.TWO_SHAPES, " and ".join(shape.name for shape in recognised.shapes))
        (shape,) = recognised.shapes
        return replace(requests(shape, recognised.row, turns if shape.read_turns else "final"), shape=shape.name)

    return Shape(
        MIXED,
        "rows of several shapes, each read in its own",
        "exactly one of the other shapes each",
        lambda row: len(recognise(row, available).shapes) == 1,
        read,
        lambda row: read(row, "all"),
        tuple(sorted({field for shape in available.values() for field in shape.reads})),
    )


# Cached, and not constants: plug-ins' shapes are looked for only when the first row or name asks for them.
@cache
def formats() -> Mapping[str, Shape]:
    """What `--format` takes for rows whose responses are judged, by name."""
    return {**SHAPES, MIXED: mixed(SHAPES)}


@cache
def prompt_formats() -> Mapping[str, Shape]:
    """What `--format` takes for rows whose prompt a policy answers, by name."""
    return {**PROMPT_SHAPES, MIXED: mixed(PROMPT_SHAPES)}


def check_mixed(rows: Sequence[object], available: Mapping[str, Shape]) -> None:
    """Raise `SourceError` for a sample that can't be read row by row: half of it has no shape, or a tenth several."""
    recognised = [recognise(row, available) for row in rows]
    check_known(rows, recognised, available)
    fits = [fit.shapes for fit in recognised]
    several = Counter(" and ".join(shape.name for shape in row_shapes) for row_shapes in fits if len(row_shapes) > 1)
    if several.total() > STRAY * sum(map(bool, fits)):
        counts = ", ".join(f"{names} ({count} of {len(rows)} rows)" for names, count in several.most_common())
        raise SourceError(f"these rows fit more than one shape each: {counts}. Choose one with --format NAME")


def explain_detection(shape: Shape, rows: Sequence[object]) -> str:
    """The evidence for a shape, as a sentence for the user: `messages: 50 of 50 rows have ...`."""
    if not rows:
        return f"{shape.name}: there are no rows to look at"
    if shape.name == MIXED:
        counts = Counter(requests(shape, row).shape or "of none or two" for row in rows).most_common()
        return f"{MIXED}: {', '.join(f'{count} {name}' for name, count in counts)}, of {len(rows)} rows"
    fitting = sum(isinstance(row, dict) and fits(shape, decode_conversations(row)) for row in rows)
    return f"{shape.name}: {fitting:,} of {len(rows):,} rows have {shape.needs}"
