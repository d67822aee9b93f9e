"""Compares an evaluation with an earlier one: figures, items whose grade flipped, and how far rewards moved.

Between two models it is a gate for a change of model; between two runs of one model (another card, precision or version of
the engine) it tells how far the numbers drifted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

import duckdb
import pyarrow as pa

from actors.errors import SettingsError, SourceError
from actors.text.visible import line
from pipelines.folders.scored_corpus.databases import connect
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.evaluation.grades import item_schema
from pipelines.results.evaluation.item_matching import check_fit, unmatched_text, with_keys
from pipelines.results.evaluation.results import Evaluation, Figure
from pipelines.results.evaluation.saved_results import SavedEvaluation
from pipelines.results.evaluation.statistics.paired import credits_table


@dataclass(frozen=True)
class Change:
    """A figure before and now, both from 0 to 1; null where there were no graded items."""

    name: str
    before: float | None
    now: float | None

    @property
    def drop(self) -> float | None:
        return None if self.before is None or self.now is None else 100 * (self.before - self.now)

    def failure(self, max_drop: float) -> str | None:
        """Why a gate doesn't let it pass; None if it does. What can't be compared doesn't pass.

        `max_drop` is in percentage points.
        """
        if self.before is None:
            return f"{self.name} has no value in the baseline; --max-drop needs it in both results"
        if self.now is None:
            return f"{self.name} isn't there any more, and was {self.before:.2%} before; --max-drop needs it in both results"
        if 100 * (self.before - self.now) <= max_drop + 1e-9:  # 0.91 - 0.90 is a little more than 0.01
            return None
        return f"{self.name} fell from {self.before:.2%} to {self.now:.2%}, by more than {max_drop:g} points"


@dataclass(frozen=True)
class Drift:
    """How far the rewards of the same responses moved, of a subset or (None) of all: how many are in both, the differences.

    Of `compared` pairs of responses to one item, `rank_flips` have another order than before; a tie is an order of its own.
    """

    subset: str | None
    responses: int
    mean: float
    largest: float
    compared: int
    rank_flips: int
    subsets: Sequence["Drift"] = ()


@dataclass(frozen=True)
class BaselineComparison:
    """One benchmark in both results. `changes` has the figures of either, beginning with the baseline's headline.

    `flips` are the items whose credit in the headline changed, or that have a grade in one of them only. `unmatched` says
    how many items are in one of them only, and of which files; empty if none are. `coverage` is the share of the items of
    either result that have a grade now: items that aren't there any more count.
    """

    benchmark: str
    model: str
    baseline_model: str
    changes: Sequence[Change]
    is_made_up: bool
    """Whether the rewards of one of them are the fake engine's."""
    coverage: float = 0.0
    flips: Sequence[Mapping[str, Any]] = ()
    unmatched: str = ""
    drift: Drift | None = None
    """Of the same model only: rewards of different models aren't on one scale."""
    is_gone: bool = False
    """Whether it is in the baseline alone, and `model` is the baseline's."""

    def failures(self, max_drop: float, min_coverage: float) -> list[str]:
        """What the gate doesn't let pass: a sentence for each.

        `max_drop` is in percentage points, `min_coverage` a share of the items of either result, from 0 to 1.
        """
        about, headline = f"{self.model} on {self.benchmark}", self.changes[0]
        if self.is_gone:
            how = "evaluate it, too, or compare with a baseline without it"
            return [f"{about}: it is in the baseline and not in these results; {how}"]
        failures = [f"{about}: {failure}"] if (failure := headline.failure(max_drop)) else []
        if self.coverage < min_coverage:
            failures.append(f"{about}: {self.coverage:.1%} of all items have a grade now, fewer than {min_coverage:.1%}")
        return failures


def compare(now: Sequence[SavedEvaluation], baseline: Sequence[SavedEvaluation]) -> list[BaselineComparison]:
    """Compare evaluations with those of the same benchmark in the baseline: of the same model, or the only one there.

    Benchmarks that only the baseline has come last. Raises `SettingsError` for one that the baseline doesn't have, and
    `SourceError` for items that another version graded otherwise.
    """
    for saved in (*now, *baseline):
        _check_cells(saved)
    names = {saved.evaluation.benchmark for saved in now}
    # A benchmark that is in the baseline alone fails the gate, or dropping it from a script would make the gate pass.
    compared = [_compare(saved, _counterpart(saved.evaluation, baseline)) for saved in now]
    return compared + [_gone(saved.evaluation) for saved in baseline if saved.evaluation.benchmark not in names]


def _check_cells(saved: SavedEvaluation) -> None:
    evaluation = saved.evaluation
    benchmark = benchmarks().get(evaluation.benchmark)
    if benchmark is None or not {*saved.items.column_names} >= {*item_schema(benchmark).names}:
        raise SourceError(
            f"the items of {evaluation.label} on {evaluation.benchmark} were graded by another version of Assay; evaluate "
            "the scored corpus again"
        )


def _gone(before: Evaluation) -> BaselineComparison:
    model, changes = before.label, _changes(before.figures, ())
    return BaselineComparison(before.benchmark, model, model, changes, before.is_made_up, is_gone=True)


def _counterpart(evaluation: Evaluation, baseline: Sequence[SavedEvaluation]) -> SavedEvaluation:
    same_benchmark = [saved for saved in baseline if saved.evaluation.benchmark == evaluation.benchmark]
    reading = (evaluation.model, evaluation.preset)  # labels depend on what else was evaluated
    # The same model if it is there, else the only one: a gate for a change of model has another one in its baseline.
    same_model = [saved for saved in same_benchmark if (saved.evaluation.model, saved.evaluation.preset) == reading]
    candidates = same_model or same_benchmark
    if len(candidates) != 1:
        raise SettingsError(
            f"--against has {len(candidates)} results of {evaluation.benchmark}, and {evaluation.label} is compared with one"
        )
    return candidates[0]


def _changes(before: Sequence[Figure], now: Sequence[Figure]) -> list[Change]:
    earlier, later = ({figure.name: figure.value for figure in figures} for figures in (before, now))
    changes = [Change(name, earlier.get(name), later.get(name)) for name in {**earlier, **later}]
    # Neither has a graded item: a change of nothing, which fails any gate.
    return changes or [Change("the headline", None, None)]


def _compare(now: SavedEvaluation, before: SavedEvaluation) -> BaselineComparison:
    later, earlier = now.evaluation, before.evaluation
    benchmark = benchmarks()[later.benchmark]
    # By what items hold and not by their place: a file may have been shuffled or extended since.
    sides = with_keys([earlier.with_items(before.items), later.with_items(now.items)])
    check_fit(f"--against and the results of {later.benchmark}", *sides)
    with connect() as connection:
        for name, side in zip(("before", "now"), sides, strict=True):
            connection.register(f"{name}_items", side.items)
            connection.register(f"{name}_credits", credits_table(benchmark, side.items, judged=side.judged))
        ((coverage,),) = connection.execute(
            """select avg((n.row is not null and n.reason is null)::int)
            from now_items n full join before_items b using (key)"""
        ).fetchall()
        return BaselineComparison(
            later.benchmark,
            later.label,
            earlier.label,
            _changes(earlier.figures, later.figures),
            later.is_made_up or earlier.is_made_up,
            coverage,
            _flips(connection),
            unmatched_text(dict(zip(("the baseline", "now"), sides, strict=True))),
            _drift(connection) if later.label == earlier.label else None,  # else on no common scale
        )


def _flips(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    table: pa.Table = connection.sql(
        """
        select coalesce(n.row, b.row) as row, coalesce(n.subset, b.subset) as subset, b.credit as before, n.credit as now
        from now_credits n full join before_credits b using (key)
        where coalesce(abs(n.credit - b.credit) > 1e-9, true) order by row
        """
    ).to_arrow_table()
    return table.to_pylist()


def _drift(connection: duckdb.DuckDBPyConnection) -> Drift:
    connection.execute(
        """
        create temp table moved as
        with n as (select key, subset, unnest(map_entries(rewards)) as entry from now_items),
            b as (select key, unnest(map_entries(rewards)) as entry from before_items)
        select n.key as item, n.subset as subset, n.entry.key as name, n.entry.value as now, b.entry.value as before
        from n join b on n.key = b.key and n.entry.key = b.entry.key
        """
    )
    lines = connection.execute(
        """
        with responses as (
            select subset, count(*) as responses, avg(abs(now - before)) as mean, max(abs(now - before)) as largest
            from moved group by rollup (subset)
        ), pairs as (
            select a.subset, count(*) as compared,
                count(*) filter (sign(a.now - b.now) <> sign(a.before - b.before)) as flips
            from moved a join moved b on a.item = b.item and a.name < b.name group by rollup (a.subset)
        )
        select r.subset, responses, coalesce(mean, 0), coalesce(largest, 0), coalesce(compared, 0), coalesce(flips, 0)
        from responses r left join pairs p on r.subset is not distinct from p.subset order by r.subset nulls first
        """
    ).fetchall()
    overall, *parts = (Drift(*line) for line in lines)
    return replace(overall, subsets=parts)


def junit(comparisons: Sequence[BaselineComparison], max_drop: float, min_coverage: float) -> bytes:
    """The gate as JUnit's XML: a test case for each benchmark and model, failed if the gate doesn't let it pass."""
    failures = [comparison.failures(max_drop, min_coverage) for comparison in comparisons]
    suite = ElementTree.Element(
        "testsuite", name="assay evaluate", tests=str(len(failures)), failures=str(sum(map(bool, failures)))
    )
    for comparison, messages in zip(comparisons, failures, strict=True):
        case = ElementTree.SubElement(suite, "testcase", classname=comparison.benchmark, name=line(comparison.model))
        if messages:
            flips = "\n".join(line(f"{flip['row']}: {flip['before']} to {flip['now']}") for flip in comparison.flips)
            ElementTree.SubElement(case, "failure", message=line("; ".join(messages))).text = flips
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
