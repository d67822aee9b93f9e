"""Selections over a whole corpus: passes over the columns that they need, before anything is written.

- The best fraction and a quantile: counting passes (`exact_selection.Search`) find the boundary.
- The best of each prompt: a shuffle. Each source (a group of parts, or a block of a dataset) partitions its candidates by
  prompt; one task per bucket of prompts picks the winners, and returns them split by source.

Only keys and positions are transferred, never rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.filtering.exact_selection import (
    Boundary,
    Count,
    Gather,
    Quantile,
    Search,
    StepResult,
    TopFraction,
    global_best,
    local_best,
    partition,
)
from pipelines.filtering.filter_step import GROUP, TIE, VALUE, EvaluatedRows, Group, Output
from pipelines.runtime.workers import Workers
from pipelines.settings.run_settings import ChoiceSettings

_PART, _AT, _CLOSE = "part", "at", "close"
_MERGED_ROWS = 2**20
"""Candidates that a task holds before it reduces them to the best of each group."""
_BUCKETS = 64
"""Buckets of prompts at most: every source returns one table per bucket, so the shuffle has sources x buckets of them."""

_WON = pa.schema([(_PART, pa.int64()), (_AT, pa.int64()), (_CLOSE, pa.bool_())])


@dataclass(frozen=True)
class AboveBoundary:
    """Chooses the candidates at or above a boundary."""

    boundary: Boundary
    reason: str

    def reasons(self, rows: EvaluatedRows) -> pa.Array:
        """See `Selection`."""
        chosen = self.boundary.mask(rows.values, rows.ties)
        return pc.if_else(pa.array(chosen), pa.scalar(None, pa.string()), self.reason)

    def as_json(self) -> dict[str, Any]:
        """For the summary."""
        boundary = self.boundary
        equal = {} if boundary.ties is None else {"equal": boundary.ties.equal, "equal_kept": boundary.ties.kept}
        return {"candidates": boundary.total, "kept": boundary.kept, "boundary": boundary.value, **equal}


@dataclass(frozen=True)
class NothingAbove:
    """Chooses nothing: there were no candidates."""

    def reasons(self, rows: EvaluatedRows) -> pa.Array:
        """See `Selection`."""
        # No row is a candidate, so each gets its reason before a selection's counts (`filter_step._reasons`).
        return pa.nulls(rows.table.num_rows, pa.string())

    def as_json(self) -> dict[str, Any]:
        """For the summary."""
        return {"candidates": 0, "kept": 0}


@dataclass(frozen=True)
class WinnerSelection:
    """Chooses the winners of their prompts: `won` lists them for the parts of one task, with those that were too close."""

    won: pa.Table

    def reasons(self, rows: EvaluatedRows) -> pa.Array:
        """See `Selection`."""
        part, at, close = (self.won.column(name).to_numpy() for name in (_PART, _AT, _CLOSE))
        # `at` is the index of a response in its part, and `rows` are a slice of a part.
        is_in_slice = (part == rows.part) & (at >= rows.first) & (at < rows.first + rows.table.num_rows)
        indices = at[is_in_slice] - rows.first
        # Everybody has lost but the winners, of whom those in `close` lose after all.
        reasons = np.full(rows.table.num_rows, "top_k", object)
        reasons[indices] = None
        reasons[indices[close[is_in_slice]]] = "min_gap"
        return pa.array(reasons, pa.string())


class SourceEvaluator(Protocol):
    """Evaluates the responses of a source, table by table. Small and picklable, and equal in every pass."""

    def evaluate(self, data: Any) -> Iterator[EvaluatedRows]:
        """The evaluated responses of a source."""


class Source(NamedTuple):
    """Some of the responses to choose among; `first` is the number of its first part."""

    evaluator: SourceEvaluator
    data: Any
    first: int


def find_boundary(workers: Workers, choice: ChoiceSettings, sources: Sequence[Source]) -> AboveBoundary | NothingAbove:
    """Find the boundary of the best fraction, or of a quantile, by passes over all sources."""
    if choice.top_fraction is not None:
        search, reason = Search(TopFraction(choice.top_fraction)), "top_fraction"
    else:
        assert choice.quantile is not None
        search, reason = Search(Quantile(choice.quantile)), "quantile"
    # Each pass reads and evaluates all sources again: nothing that grows with the corpus is kept between passes.
    while (step := search.step) is not None:
        results = workers.map(_run_step, [(step, evaluator, data) for evaluator, data, _ in sources])
        search = search.next(step.merge(results))
    return AboveBoundary(search.boundary, reason) if search.boundary else NothingAbove()


def _run_step(step: Count | Gather, evaluator: SourceEvaluator, data: Any) -> StepResult:
    # Merged here, table by table, so that a task returns one result, not one per table.
    return step.merge(step(*_keys(rows)) for rows in evaluator.evaluate(data))


def _keys(rows: EvaluatedRows) -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    candidates = ~np.isnan(rows.values)
    return rows.values[candidates], rows.ties[candidates]


def find_winners(workers: Workers, choice: ChoiceSettings, sources: Sequence[Source]) -> list[list[Any]]:
    """Find the winners of each prompt. For each source its winners, a table (or Ray's reference to one) per bucket.

    `join_winners` makes a selection of these tables, in a task that reads the source.
    """
    k, min_gap = choice.top_k, choice.min_gap
    assert k is not None
    # A table per source and bucket: 1,000 sources make 64,000 small ones. As many buckets as sources are enough for few.
    buckets = min(_BUCKETS, len(sources))
    # Parts are numbered through all sources, so a winner's part tells its source: the last one that begins at or before it.
    edges = [source.first for source in sources[1:]]
    # On Ray, `start` returns references: each table moves from its task to the next one, never through the driver.
    candidates = [
        workers.start(_partition_candidates, k, min_gap, buckets, evaluator, data, pieces=buckets)
        for evaluator, data, _ in sources
    ]
    winners = [
        workers.start(_pick_winners, k, min_gap, edges, *(pieces[bucket] for pieces in candidates), pieces=len(sources))
        for bucket in range(buckets)
    ]
    return [[pieces[index] for pieces in winners] for index in range(len(sources))]


def _partition_candidates(
    k: int, min_gap: float | None, buckets: int, evaluator: SourceEvaluator, data: Any
) -> list[pa.Table]:
    """The candidates of a source that may win, as a table per bucket of prompts."""
    best = _candidate_table(None)
    tables: list[pa.Table] = []
    for rows in evaluator.evaluate(data):
        tables.append(_candidate_table(rows))
        # The best of the best so far and of what came since are the best of all: memory holds _MERGED_ROWS candidates, and k
        # for each prompt of the source.
        if sum(table.num_rows for table in tables) > _MERGED_ROWS:
            best, tables = local_best(pa.concat_tables([best, *tables]), k, min_gap), []
    return partition(local_best(pa.concat_tables([best, *tables]), k, min_gap), buckets)


def _candidate_table(rows: EvaluatedRows | None) -> pa.Table:
    """The keys and positions of the candidates among some rows; without rows, the empty table of these columns."""
    kinds = {**dict.fromkeys(GROUP, pa.uint64()), VALUE: pa.float64(), TIE: pa.uint64(), _PART: pa.int64(), _AT: pa.int64()}
    if rows is None:
        return pa.schema(list(kinds.items())).empty_table()
    indices = np.flatnonzero(~np.isnan(rows.values))
    answers = rows.answers.take(indices)
    columns = [*(answers.column(name) for name in GROUP), rows.values[indices], rows.ties[indices]]
    positions = [np.full(indices.size, rows.part), indices + rows.first]
    return pa.table(dict(zip(kinds, [*columns, *positions], strict=True)), pa.schema(list(kinds.items())))


def _pick_winners(k: int, min_gap: float | None, edges: Sequence[int], *candidates: pa.Table) -> list[pa.Table]:
    """The winners of one bucket of prompts, a table per source; `edges` are the numbers of the sources' first parts."""
    best = global_best(pa.concat_tables(candidates), k, min_gap)
    tables = [
        pa.table([table.column(_PART), table.column(_AT), pa.array([close] * table.num_rows, pa.bool_())], schema=_WON)
        for table, close in ((best.kept, False), (best.close, True))
    ]
    won = pa.concat_tables(tables)
    # Sources that begin with the parts 0, 3 and 7 have the edges [3, 7]: part 2 is of source 0, and 3 already of source 1
    # (`side="right"`).
    source = np.searchsorted(np.asarray(edges, np.int64), won.column(_PART).to_numpy(), side="right")
    return [won.filter(pa.array(source == index)) for index in range(len(edges) + 1)]


def join_winners(pieces: Sequence[pa.Table]) -> WinnerSelection:
    """The selection for one task, from the tables that `find_winners` returned for its sources."""
    return WinnerSelection(pa.concat_tables(pieces))


def plan_outputs(groups: Sequence[Group], sizes: Sequence[float], target: float) -> list[Output]:
    """Combine neighbouring groups into outputs; `sizes` are the bytes that each will write, and `target` those of a file."""
    outputs: list[Output] = []
    neighbours, size = list[Group](), 0.0
    for group, group_size in zip(groups, sizes, strict=True):
        # A group that is larger than the target by itself is an output by itself: groups are never split.
        if neighbours and size + group_size > target:
            outputs.append(Output(len(outputs), tuple(neighbours)))
            neighbours, size = [], 0.0
        neighbours.append(group)
        size += group_size
    return [*outputs, Output(len(outputs), tuple(neighbours))] if neighbours else outputs
