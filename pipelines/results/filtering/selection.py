"""Selections over a whole corpus: the best fraction, a quantile, the best of each prompt. Exact, whatever the size.

1. Each source (a group of parts, or a block of a dataset) is evaluated once, in any worker, which returns the keys of its
   candidates: 16 bytes each, or 40 with the prompt and the place, which the best of each prompt need.
2. A DuckDB of this process takes the keys in, and spills to a temporary folder what is over its memory.
3. It finds the boundary by sorting the keys, or the winners of each prompt by ranking them.

A candidate's *key* is its value, then its tie: greater is better, -0.0 equals 0.0, and ties decide among equal values. Of
candidates with equal keys, which only equal rows of a dataset have, a boundary keeps all or none, and among the best of a
prompt the first in the corpus win.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection

from pipelines.folders.scored_corpus import databases
from pipelines.results.filtering.filter_step import GROUP, TIE, VALUE, EvaluatedRows, Selection
from pipelines.results.filtering.labels import find_labelled_cut
from pipelines.run.runtime.workers import Workers
from pipelines.settings.filter_settings import ChoiceSettings, LabelledChoiceSettings

_MEMORY, _MEMORY_AFTER = "1GB", "64MB"  # of DuckDB while the keys are sorted, and when it only looks up winners
# Columns: the number of a part, the index of a response in it, and whether it is too close to the second best.
PART, PLACE, _CLOSE = "part", "place", "close"
_KEY = pa.schema([(VALUE, pa.float64()), (TIE, pa.uint64())])
PLACED_KEY = pa.schema([*_KEY, (PART, pa.uint32()), (PLACE, pa.uint32())])
_GROUPED_KEY = pa.schema([*((name, pa.uint64()) for name in GROUP), *PLACED_KEY])


class SourceEvaluator(Protocol):
    """Evaluates the responses of a source, table by table. Small and picklable."""

    def evaluate(self, data: Any) -> Iterator[EvaluatedRows]:
        """The evaluated responses of a source."""


@dataclass(frozen=True)
class Boundary:
    """Chooses the candidates at or above a key: `kept` of all `candidates`.

    For the best fraction, `equal` candidates have the boundary's value, and `equal_kept` of these are chosen, by their ties.
    A quantile may lie between two candidates; all equal to it are chosen. Without candidates, `value` is NaN.
    """

    reason: str
    candidates: int = 0
    kept: int = 0
    value: float = math.nan
    tie: int = 0
    equal: int | None = None
    equal_kept: int | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)  # what labels showed of a cut that they were asked for

    def selection(self, first: int, last: int) -> Selection:
        return self  # the same for all parts: two numbers

    def reasons(self, rows: EvaluatedRows) -> pa.Array:
        is_chosen = (rows.values > self.value) | ((rows.values == self.value) & (rows.ties >= self.tie))
        return pc.if_else(pa.array(is_chosen), pa.scalar(None, pa.string()), self.reason)

    def as_json(self) -> dict[str, Any]:
        counts = {"candidates": self.candidates, "kept": self.kept}
        boundary = {"boundary": self.value} if self.candidates else {}
        ties = {} if self.equal is None else {"equal": self.equal, "equal_kept": self.equal_kept}
        return counts | boundary | ties | ({"labels": dict(self.labels)} if self.labels else {})


@dataclass(frozen=True)
class WinnerSelection:
    """Chooses the winners of their prompts: `winners` lists them for some parts, with those that were too close."""

    winners: pa.Table

    def reasons(self, rows: EvaluatedRows) -> pa.Array:
        part, place, close = (self.winners.column(name).to_numpy() for name in (PART, PLACE, _CLOSE))
        # `place` is the index of a response in its part, and `rows` are a slice of a part.
        is_in_slice = (part == rows.part) & (place >= rows.first) & (place < rows.first + rows.table.num_rows)
        indices = place[is_in_slice] - rows.first
        # Everybody has lost but the winners, of whom those in `close` lose after all.
        reasons = np.full(rows.table.num_rows, "top_k", object)
        reasons[indices] = None
        reasons[indices[close[is_in_slice]]] = "min_gap"
        return pa.array(reasons, pa.string())


@dataclass(frozen=True)
class Winners:
    """The winners of all prompts, in the table `winners` of a database, in the order of the corpus."""

    database: DuckDBPyConnection
    choice: ChoiceSettings

    def selection(self, first: int, last: int) -> Selection:
        """The selection for the parts from number `first` to number `last`.

        Looked up as a task is made: all winners of a corpus may be too many for this process and for each task.
        """
        query = f"from winners where {PART} between {first} and {last}"
        return WinnerSelection(self.database.sql(query).to_arrow_table())

    def as_json(self) -> dict[str, Any]:
        return {"top_k": self.choice.top_k, "per": self.choice.per or "prompt", "min_gap": self.choice.min_gap}


Chosen = Boundary | Winners  # what was chosen of a whole corpus


@contextmanager
def choose(workers: Workers, choice: ChoiceSettings, sources: Sequence[tuple[SourceEvaluator, Any]]) -> Iterator[Chosen]:
    """What a choice of --top-fraction, --quantile, --top-k or --labels comes to among all sources: evaluators and data.

    Raises `RunStopped` if DuckDB fails, as when the disk is full, and what `label_boundary` raises.
    """
    with collect_keys(workers, _KEY if choice.top_k is None else _GROUPED_KEY, sources) as database:
        chosen = _find_boundary(database, choice) if choice.top_k is None else _rank(database, choice)
        # Of 1,000,000 keys the cache holds 70 to 85 MB, which a lower bound gives back.
        database.execute(f"drop table keys; set memory_limit = '{_MEMORY_AFTER}'")
        yield chosen


@contextmanager
def collect_keys(
    workers: Workers, schema: pa.Schema, sources: Sequence[tuple[SourceEvaluator, Any]]
) -> Iterator[DuckDBPyConnection]:
    """A database with a table `keys` of all candidates of the sources, each an evaluator and its data.

    The keys have no order: tasks end in any. All that is made of them must sort by the keys themselves.
    """
    with databases.spilling("select", _MEMORY, "the best can't be chosen") as database:
        database.register("arrived", schema.empty_table())
        database.execute("create table keys as from arrived")
        database.begin()  # else each insertion would wait for the disk
        for table in workers.map(_evaluate_keys, [(schema, evaluator, data) for evaluator, data in sources]):
            database.register("arrived", table)
            database.execute("insert into keys from arrived")
        database.commit()
        database.unregister("arrived")
        yield database


def _evaluate_keys(schema: pa.Schema, evaluator: SourceEvaluator, data: Any) -> pa.Table:
    # In a worker: what comes back are 16 to 40 bytes for each candidate, and no row.
    return pa.concat_tables([schema.empty_table(), *(_keys(schema, rows) for rows in evaluator.evaluate(data))])


def _keys(schema: pa.Schema, rows: EvaluatedRows) -> pa.Table:
    indices = np.flatnonzero(~np.isnan(rows.values))
    columns = {name: rows.answers.column(name).take(indices) for name in GROUP if name in schema.names}
    columns |= {
        VALUE: rows.values[indices] + 0.0,  # -0.0 + 0.0 is 0.0
        TIE: rows.ties[indices],
        PART: np.full(indices.size, rows.part),
        PLACE: indices + rows.first,
    }
    return pa.table({name: columns[name] for name in schema.names}, schema)


def _find_boundary(database: DuckDBPyConnection, choice: ChoiceSettings) -> Boundary:
    ((total,),) = database.execute("select count(*) from keys").fetchall()
    if isinstance(choice, LabelledChoiceSettings) and choice.labels is not None:
        cut, shown = find_labelled_cut(database, choice.labels, choice)
        ((kept,),) = database.execute("select count(*) from keys where value >= $1", [cut]).fetchall()
        return Boundary("labels", total, kept, cut, labels=shown)
    if choice.top_fraction is not None:
        return _fraction_boundary(database, choice.top_fraction, total) if total else Boundary("top_fraction")
    assert choice.quantile is not None
    return _quantile_boundary(database, choice.quantile, total) if total else Boundary("quantile")


def _fraction_boundary(database: DuckDBPyConnection, fraction: float, total: int) -> Boundary:
    """The boundary of the best fraction, rounded down, but of at least one: 10 % of five is the best one, not nothing."""
    # In decimal as it is written: 0.29 of 100 is 29, though 0.29 * 100 is 28.999999999999996.
    rank = max(1, math.floor(Fraction(str(fraction)) * total))
    ((value, tie),) = _keys_from(database, rank, 1)
    counts = "count(*) filter (value > $1), count(*) filter (value = $1), count(*) filter (value = $1 and tie >= $2)"
    ((greater, equal, equal_kept),) = database.execute(f"select {counts} from keys", [value, tie]).fetchall()
    return Boundary("top_fraction", total, greater + equal_kept, value, tie, equal, equal_kept)


def _quantile_boundary(database: DuckDBPyConnection, q: float, total: int) -> Boundary:
    """The quantile `q`: `numpy.quantile(values, q)` to the bit, but for the sign of a zero.

    Where the interpolation would be NaN or overflow, as a neighbour is infinite (DuckDB's 1 / 0 is) or the two are too far
    apart, the upper neighbour is taken: that keeps the same responses as any number between the two.
    """
    # Of four values and q = 0.5 the quantile has the index 1.5, counted from the least, so its lower neighbour is the third
    # greatest, and its upper one the second. Above 2**53 the product is rounded, and may come out over total - 1.
    position = (total - 1) * q
    rank = total - min(math.floor(position), total - 1)
    neighbours = _keys_from(database, max(1, rank - 1), min(2, rank))
    (upper, _), (lower, _) = neighbours[0], neighbours[-1]
    weight, boundary = position % 1, lower
    if weight and lower != upper:
        # The quantile of two values at `weight` is the same interpolation, done by numpy itself: so it is rounded as numpy
        # rounds it among all values.
        boundary = float(np.quantile([lower, upper], weight)) if math.isfinite(upper - lower) else upper
    ((kept,),) = database.execute("select count(*) from keys where value >= $1", [boundary]).fetchall()
    return Boundary("quantile", total, kept, boundary)


def _keys_from(database: DuckDBPyConnection, rank: int, count: int) -> list[tuple[float, int]]:
    query = f"select value, tie from keys order by value desc, tie desc limit {count} offset {rank - 1}"
    return database.execute(query).fetchall()


def _rank(database: DuckDBPyConnection, choice: ChoiceSettings) -> Winners:
    """Make the table `winners` of the `top_k` best of each group, in the order of the corpus.

    With `min_gap`, in units of the value, all winners of a group are `close` unless (best value) - (second best) is that or
    more, in float64. A response alone in its group has no gap, so it is close, whatever the minimum.
    """
    # Of equal values the gap is 0, also of equal infinities, whose difference would be NaN. Without a second best the
    # comparison is null, and without a minimum gap always, so that nothing is close.
    database.execute(
        f"""
        create table winners as
        select {PART}, {PLACE}, not coalesce(
            case when best = second then 0 else best - second end >= $min_gap, $min_gap is null
        ) as {_CLOSE}
        from (
            select {PART}, {PLACE}, row_number() over ranked as rank,
                first_value({VALUE}) over ranked as best, nth_value({VALUE}, 2) over whole as second
            from keys
            window
                ranked as (partition by {", ".join(GROUP)} order by {VALUE} desc, {TIE} desc, {PART}, {PLACE}),
                whole as (ranked rows between unbounded preceding and unbounded following)
        )
        where rank <= $top_k order by {PART}, {PLACE}
        """,
        {"top_k": min(choice.top_k or 0, sys.maxsize), "min_gap": choice.min_gap},
    )
    return Winners(database, choice)
