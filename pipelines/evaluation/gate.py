"""Compares an evaluation with an earlier one: figures, items whose grade flipped, and how far rewards moved.

Between two models it is a gate for a change of model; between two runs of one model (another card, precision or version of
the engine) it tells how far the numbers drifted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

import duckdb
import pyarrow as pa

from actors.errors import SettingsError
from pipelines.evaluation.saved_results import SavedEvaluation


@dataclass(frozen=True)
class Change:
    """A figure before and now, both from 0 to 1; null where there were no graded items."""

    name: str
    before: float | None
    now: float | None

    @property
    def drop(self) -> float:
        """By how many percentage points it fell; below 0 if it rose, 100 if it isn't there any more."""
        if self.before is None:
            return 0.0
        return 100.0 if self.now is None else 100 * (self.before - self.now)


@dataclass(frozen=True)
class Drift:
    """How far the rewards of the same responses moved: how many there are in both, at least one, and the differences."""

    responses: int
    mean: float
    largest: float


@dataclass(frozen=True)
class BaselineComparison:
    """One benchmark in both results. `changes` begins with the headline; `flips` are the items whose first cell changed.

    `coverage` is the share of the items of either result that have a grade now: items that aren't there any more count.
    """

    benchmark: str
    model: str
    baseline_model: str
    coverage: float
    changes: Sequence[Change]
    flips: Sequence[Mapping[str, Any]]
    drift: Drift | None
    """Of the same model only: rewards of different models aren't on one scale."""
    is_made_up: bool
    """Whether the rewards of one of them are the fake engine's."""

    def failures(self, max_drop: float, min_coverage: float) -> list[str]:
        """What the gate doesn't let pass: a sentence for each."""
        about, headline = f"{self.model} on {self.benchmark}", self.changes[0]
        failures = []
        if headline.drop > max_drop + 1e-9:  # 0.91 - 0.90 is a little more than 0.01
            before, now = (f"{value:.2%}" if value is not None else "none" for value in (headline.before, headline.now))
            failures.append(f"{about}: {headline.name} fell from {before} to {now}, by more than {max_drop:g} points")
        if self.coverage < min_coverage:
            failures.append(f"{about}: {self.coverage:.1%} of all items have a grade now, fewer than {min_coverage:.1%}")
        return failures

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def compare(now: Sequence[SavedEvaluation], baseline: Sequence[SavedEvaluation]) -> list[BaselineComparison]:
    """Compare evaluations with those of the same benchmark in the baseline: of the same model, or the only one there.

    Raises `SettingsError` for a benchmark that the baseline doesn't have.
    """
    return [_compare(evaluation, _counterpart(evaluation, baseline)) for evaluation in now]


def _counterpart(evaluation: SavedEvaluation, baseline: Sequence[SavedEvaluation]) -> SavedEvaluation:
    same_benchmark = [other for other in baseline if other.benchmark == evaluation.benchmark]
    same_model = [other for other in same_benchmark if other.model == evaluation.model]
    candidates = same_model or same_benchmark
    if len(candidates) != 1:
        raise SettingsError(
            f"--against has {len(candidates)} results of {evaluation.benchmark}, and {evaluation.model} is compared with one"
        )
    return candidates[0]


def _compare(now: SavedEvaluation, before: SavedEvaluation) -> BaselineComparison:
    earlier, cell = {figure["name"]: figure["value"] for figure in before.figures}, now.items.schema.names[2]
    changes = [Change(figure["name"], earlier.get(figure["name"]), figure["value"]) for figure in now.figures]
    with duckdb.connect() as connection:
        connection.register("now_items", now.items)
        connection.register("before_items", before.items)
        ((common, coverage),) = connection.execute(
            f"""select count(*) filter (n.row is not null and b.row is not null), avg((n."{cell}" is not null)::int)
            from now_items n full join before_items b using (row)"""
        ).fetchall()
        if not common:
            raise SettingsError(
                f"--against has no item of {now.benchmark} in common with these results: they are of other data"
            )
        return BaselineComparison(
            now.benchmark,
            now.model,
            before.model,
            coverage,
            changes or [Change("headline", next(iter(earlier.values()), None), None)],
            _flips(connection, cell),
            _drift(connection) if now.model == before.model else None,
            now.is_made_up or before.is_made_up,
        )


def _flips(connection: duckdb.DuckDBPyConnection, cell: str) -> list[dict[str, Any]]:
    """The items whose first cell is another one than before: the row, its subset, and both cells (null: no grade)."""
    table: pa.Table = connection.sql(
        f"""
        select coalesce(n.row, b.row) as row, coalesce(n.subset, b.subset) as subset, b."{cell}" as before, n."{cell}" as now
        from now_items n full join before_items b using (row)
        where n."{cell}" is distinct from b."{cell}" order by row
        """
    ).to_arrow_table()
    return table.to_pylist()


def _drift(connection: duckdb.DuckDBPyConnection) -> Drift:
    (counts,) = connection.execute(
        """
        with n as (select row, unnest(map_entries(rewards)) as entry from now_items),
            b as (select row, unnest(map_entries(rewards)) as entry from before_items)
        select count(*), coalesce(avg(abs(n.entry.value - b.entry.value)), 0),
            coalesce(max(abs(n.entry.value - b.entry.value)), 0)
        from n join b on n.row = b.row and n.entry.key = b.entry.key
        """
    ).fetchall()
    return Drift(*counts)


def junit(comparisons: Sequence[BaselineComparison], max_drop: float, min_coverage: float) -> bytes:
    """The gate as JUnit's XML: a test case for each benchmark and model, failed if the gate doesn't let it pass."""
    failures = [comparison.failures(max_drop, min_coverage) for comparison in comparisons]
    suite = ElementTree.Element(
        "testsuite", name="assay evaluate", tests=str(len(failures)), failures=str(sum(map(bool, failures)))
    )
    for comparison, messages in zip(comparisons, failures, strict=True):
        case = ElementTree.SubElement(suite, "testcase", classname=comparison.benchmark, name=comparison.model)
        if messages:
            flips = "\n".join(f"{flip['row']}: {flip['before']} to {flip['now']}" for flip in comparison.flips)
            ElementTree.SubElement(case, "failure", message="; ".join(messages)).text = flips
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
