"""A selection over a whole corpus: passes over the columns that it needs, before anything is written.

The best fraction and a quantile are found by passes that count (`exact_selection.Search`). The best of each prompt are
found by a shuffle: each source (a group of parts, or a block of a dataset) gives its candidates, cut up by prompt; those of
a bucket of prompts meet in one task, which says for each source which of its responses won. What travels is keys and
positions, never rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.filtering.exact_selection import (
    GROUP,
    TIE,
    VALUE,
    Boundary,
    Count,
    Found,
    Gather,
    Quantile,
    Search,
    TopFraction,
    global_best,
    local_best,
    partition,
)
from pipelines.filtering.filter_step import EvaluatedRows, Group, Output
from pipelines.runtime.workers import Workers
from pipelines.settings.run_settings import ChoiceSettings

_PART, _AT, _CLOSE = "part", "at", "close"
_MERGED_ROWS = 2**20
_BUCKETS = 64

_WON = pa.schema([(_PART, pa.int64()), (_AT, pa.int64()), (_CLOSE, pa.bool_())])


@dataclass(frozen=True)
class AboveBoundary:
    """Chooses what a boundary leaves above it."""

    boundary: Boundary
    reason: str

    def reasons(self, judged: EvaluatedRows) -> pa.Array:
        """See `Selection`."""
        chosen = self.boundary.mask(judged.values, judged.ties)
        return pc.if_else(pa.array(chosen), pa.scalar(None, pa.string()), self.reason)

    def as_json(self) -> dict[str, Any]:
        """For the summary."""
        found = self.boundary
        equal = {} if found.ties is None else {"equal": found.ties.equal, "equal_kept": found.ties.kept}
        return {"candidates": found.total, "kept": found.kept, "boundary": found.value, **equal}


@dataclass(frozen=True)
class NothingAbove:
    """Chooses nothing: there were no candidates."""

    def reasons(self, judged: EvaluatedRows) -> pa.Array:
        """See `Selection`."""
        return pa.nulls(judged.table.num_rows, pa.string())

    def as_json(self) -> dict[str, Any]:
        """For the summary."""
        return {"candidates": 0, "kept": 0}


@dataclass(frozen=True)
class WinnerSelection:
    """Chooses the responses that won; `won` are those of the parts of one task, and those that were too close."""

    won: pa.Table

    def reasons(self, judged: EvaluatedRows) -> pa.Array:
        """See `Selection`."""
        part, at, close = (self.won.column(name).to_numpy() for name in (_PART, _AT, _CLOSE))
        own = (part == judged.part) & (at >= judged.first) & (at < judged.first + judged.table.num_rows)
        places = at[own] - judged.first
        reasons = np.full(judged.table.num_rows, "top_k", object)
        reasons[places] = None
        reasons[places[close[own]]] = "min_gap"
        return pa.array(reasons, pa.string())


class Judging(Protocol):
    """Judges a source of responses, table by table: the same each time."""

    def judged(self, source: Any) -> Iterator[EvaluatedRows]:
        """The responses of a source."""


class Source(NamedTuple):
    """Some of the responses that are chosen among, and the number of the first part in it."""

    judging: Judging
    source: Any
    first: int


def boundary(workers: Workers, choice: ChoiceSettings, sources: Sequence[Source]) -> AboveBoundary | NothingAbove:
    """Where the cut of the best fraction, or of a quantile, is."""
    if choice.top_fraction is not None:
        search, reason = Search(TopFraction(choice.top_fraction)), "top_fraction"
    else:
        assert choice.quantile is not None
        search, reason = Search(Quantile(choice.quantile)), "quantile"
    while (taken := search.step) is not None:
        found = workers.map(_take_step, [(taken, judging, source) for judging, source, _ in sources])
        search = search.next(taken.merge(found))
    return AboveBoundary(search.boundary, reason) if search.boundary else NothingAbove()


def _take_step(taken: Count | Gather, judging: Judging, source: Any) -> Found:
    return taken.merge(taken(*_keys(judged)) for judged in judging.judged(source))


def _keys(judged: EvaluatedRows) -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    candidates = ~np.isnan(judged.values)
    return judged.values[candidates], judged.ties[candidates]


def winners(workers: Workers, choice: ChoiceSettings, sources: Sequence[Source]) -> list[list[Any]]:
    """For each source what its responses came to, in pieces: tables, or Ray's references to them."""
    k, min_gap = choice.top_k, choice.min_gap
    assert k is not None
    buckets = min(_BUCKETS, len(sources))
    edges = [source.first for source in sources[1:]]
    candidates = [
        workers.start(_candidates, k, min_gap, buckets, judging, source, pieces=buckets) for judging, source, _ in sources
    ]
    won = [
        workers.start(_won, k, min_gap, edges, *(pieces[bucket] for pieces in candidates), pieces=len(sources))
        for bucket in range(buckets)
    ]
    return [[pieces[at] for pieces in won] for at in range(len(sources))]


def _candidates(k: int, min_gap: float | None, buckets: int, judging: Judging, source: Any) -> list[pa.Table]:
    best = _candidate_table(None)
    waiting: list[pa.Table] = []
    for judged in judging.judged(source):
        waiting.append(_candidate_table(judged))
        if sum(table.num_rows for table in waiting) > _MERGED_ROWS:
            best, waiting = local_best(pa.concat_tables([best, *waiting]), k, min_gap), []
    return partition(local_best(pa.concat_tables([best, *waiting]), k, min_gap), buckets)


def _candidate_table(judged: EvaluatedRows | None) -> pa.Table:
    kinds = {**dict.fromkeys(GROUP, pa.uint64()), VALUE: pa.float64(), TIE: pa.uint64(), _PART: pa.int64(), _AT: pa.int64()}
    if judged is None:
        return pa.schema(list(kinds.items())).empty_table()
    at = np.flatnonzero(~np.isnan(judged.values))
    taken = judged.answers.take(at)
    columns = [*(taken.column(name) for name in GROUP), judged.values[at], judged.ties[at]]
    places = [np.full(at.size, judged.part), at + judged.first]
    return pa.table(dict(zip(kinds, [*columns, *places], strict=True)), pa.schema(list(kinds.items())))


def _won(k: int, min_gap: float | None, edges: Sequence[int], *candidates: pa.Table) -> list[pa.Table]:
    best = global_best(pa.concat_tables(candidates), k, min_gap)
    tables = [
        pa.table([table.column(_PART), table.column(_AT), pa.array([close] * table.num_rows, pa.bool_())], schema=_WON)
        for table, close in ((best.kept, False), (best.close, True))
    ]
    won = pa.concat_tables(tables)
    group = np.searchsorted(np.asarray(edges, np.int64), won.column(_PART).to_numpy(), side="right")
    return [won.filter(pa.array(group == at)) for at in range(len(edges) + 1)]


def join_winners(pieces: Sequence[pa.Table]) -> WinnerSelection:
    """The winners of the groups of one task."""
    return WinnerSelection(pa.concat_tables(pieces))


def plan_outputs(groups: Sequence[Group], sizes: Sequence[float], target: float) -> list[Output]:
    """Neighbouring groups together, until what they write makes a file of a useful size."""
    outputs: list[Output] = []
    waiting, size = list[Group](), 0.0
    for group, own in zip(groups, sizes, strict=True):
        if waiting and size + own > target:
            outputs.append(Output(len(outputs), tuple(waiting)))
            waiting, size = [], 0.0
        waiting.append(group)
        size += own
    return [*outputs, Output(len(outputs), tuple(waiting))] if waiting else outputs
