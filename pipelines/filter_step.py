"""What a worker of the filter does: a group of parts in, its kept and its other rows out to a file each, counts back."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from actors.errors import AuditError, SourceError
from actors.records import Status
from pipelines.columns import REASON, ROW, STATUS, Columns
from pipelines.expressions import Condition, Evaluator
from pipelines.kept_files import Target
from pipelines.parts import Part, Parts
from pipelines.storage import open_read

CONDITION = "condition"
"""Why a scored response isn't kept; the others aren't for their status and reason, as in `rejected: too_long`."""

_BATCH_ROWS = 4096


@dataclass(frozen=True)
class KeepSummary:
    """Counts of a filtered corpus. `kept_rows` are the input rows with at least one kept response.

    Every response is counted once: `responses == kept + sum(not_kept.values())`.
    """

    rows: int = 0
    responses: int = 0
    kept: int = 0
    kept_rows: int = 0
    not_kept: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "KeepSummary") -> "KeepSummary":
        return KeepSummary(
            self.rows + other.rows,
            self.responses + other.responses,
            self.kept + other.kept,
            self.kept_rows + other.kept_rows,
            dict(sorted((Counter(self.not_kept) + Counter(other.not_kept)).items(), key=lambda pair: (-pair[1], pair[0]))),
        )

    def as_json(self) -> dict[str, Any]:
        """For `filter.json` and for `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Split:
    """Some rows of a part. `first` marks those of the kept that are the first of their input row."""

    kept: pa.Table
    first: pa.Array
    rest: pa.Table
    why: pa.Array

    @property
    def summary(self) -> KeepSummary:
        """Its counts; the input rows are counted by the part's name."""
        reasons = {pair["values"]: pair["counts"] for pair in pc.value_counts(self.why).to_pylist()}
        kept, rest = self.kept.num_rows, self.rest.num_rows
        return KeepSummary(0, kept + rest, kept, self.first.true_count, reasons)


@dataclass(frozen=True)
class Group:
    """Neighbouring parts that are filtered into one file."""

    index: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class FilterStep:
    """What a worker needs."""

    parts: Parts
    columns: Columns
    condition: Condition
    kept: Target | None
    rest: Target | None

    @property
    def targets(self) -> list[Target]:
        """Where rows are written, if anywhere."""
        return [target for target in (self.kept, self.rest) if target]

    @property
    def reads(self) -> list[str]:
        """The columns of the parts that are read."""
        own = {self.columns.prefix + name for name in (ROW, STATUS, REASON)}
        wanted = own.union(self.condition.columns, *(target.reads for target in self.targets))
        return [name for name in self.columns.schema.names if name in wanted]


def filter_group(step: FilterStep, group: Group) -> KeepSummary:
    """Filter a group of parts into its files. Done again, it writes the same."""
    evaluate = Evaluator(step.condition)
    summary = KeepSummary()
    with ExitStack() as files:
        kept = step.kept and files.enter_context(step.kept.open(group.index))
        rest = step.rest and files.enter_context(step.rest.open(group.index))
        for part in group.parts:
            seen = KeepSummary(rows=part.counts.rows)
            for split in _splits(step, part, evaluate):
                seen += split.summary
                if kept:
                    kept.write(split.kept if kept.target.fields else split.kept.filter(split.first))
                if rest:
                    rest.write(split.rest.append_column(rest.target.why, split.why))
            if seen.responses != part.counts.responses:
                raise AuditError(f"{part.name} holds {seen.responses} responses, and its name says {part.counts}")
            summary += seen
    return summary


def _splits(step: FilterStep, part: Part, evaluate: Evaluator) -> Iterator[Split]:
    row, last_row = step.columns.prefix + ROW, None
    for table in _tables(step.parts.parts_folder.file(part.name), step.reads):
        mask = evaluate(table)
        kept, rest = table.filter(mask), table.filter(pc.invert(mask))
        # The responses of a row are neighbours, so a row is new where it isn't the one before.
        rows = kept.column(row).to_pylist()
        first = pa.array([now != before for now, before in zip(rows, [last_row, *rows], strict=False)], pa.bool_())
        last_row = rows[-1] if rows else last_row
        yield Split(kept, first, rest, _why(rest, step.columns.prefix))


def _why(rest: pa.Table, prefix: str) -> pa.Array:
    """Why each of the rows isn't kept."""
    status, reason = (rest.column(prefix + name).combine_chunks() for name in (STATUS, REASON))
    scored = pc.equal(status, Status.SCORED.value)
    return pc.if_else(scored, CONDITION, pc.binary_join_element_wise(status, pc.fill_null(reason, "?"), ": "))


def _tables(path: str, names: Sequence[str]) -> Iterator[pa.Table]:
    try:
        with open_read(path) as stream, pq.ParquetFile(stream) as parquet:
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=names):
                yield pa.Table.from_batches([batch]).select(names)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise SourceError(f"{path} can't be read: {error}") from error
