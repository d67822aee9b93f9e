"""Selections over a whole corpus, against the same by sorting everything."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.results.filtering import selection
from pipelines.results.filtering.filter_step import GROUP, TIE, VALUE, EvaluatedRows
from pipelines.results.filtering.selection import choose
from pipelines.run.runtime.workers import workers
from pipelines.settings.filter_settings import ChoiceSettings
from tests.support.examples import examples

ODD = [0.0, -0.0, 5e-324, -5e-324, 2.3e-308, 1e-300, 1e300, -1e300, 1.7976931348623157e308, -1.7976931348623157e308]
GRADES = [1.0, 2.0, 3.0, 4.0, 5.0]

finite = st.sampled_from(ODD + GRADES) | st.floats(allow_nan=False, allow_infinity=False) | st.floats(-3, 3)
value = finite | st.sampled_from([math.inf, -math.inf])
fractions = st.integers(1, 1000).map(lambda thousandths: thousandths / 1000)


@dataclass(frozen=True)
class Row:
    """A response: the number that it is ranked by, its tie, and its prompt."""

    value: float
    tie: int
    prompt: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Part:
    """Evaluates the rows of part `number`, in two slices."""

    number: int

    def evaluate(self, data: Sequence[Row]) -> Iterator[EvaluatedRows]:
        middle = len(data) // 2
        for first, rows in ((0, data[:middle]), (middle, data[middle:])):
            columns = {
                GROUP[0]: pa.array([row.prompt[0] for row in rows], pa.uint64()),
                GROUP[1]: pa.array([row.prompt[1] for row in rows], pa.uint64()),
                VALUE: pa.array([row.value for row in rows], pa.float64(), from_pandas=True),
                TIE: pa.array([row.tie for row in rows], pa.uint64()),
            }
            answers = pa.table(columns)
            yield EvaluatedRows(self.number, first, answers, np.ones(len(rows), bool), answers)


def parts_of(rows: Sequence[Row], count: int) -> list[Sequence[Row]]:
    size = -(-len(rows) // count)
    return [rows[size * number : size * (number + 1)] for number in range(count)]


def reasons_of(rows: Sequence[Row], parts: int = 3, **settings: Any) -> tuple[list[str | None], dict[str, Any]]:
    """The reason of each row, null where it is kept, and the summary."""
    sources = [(Part(number), data) for number, data in enumerate(parts_of(rows, parts))]
    with workers(1) as pool, choose(pool, ChoiceSettings(**settings), sources) as chosen:
        reasons = [
            reason
            for part, data in sources
            for evaluated in part.evaluate(data)
            for reason in chosen.selection(part.number, part.number).reasons(evaluated).to_pylist()
        ]
        return reasons, chosen.as_json()


def with_ties(values: Sequence[float]) -> list[Row]:
    ties = np.random.default_rng(7).integers(2**64, size=len(values), dtype=np.uint64)
    return [Row(value, int(tie)) for value, tie in zip(values, ties, strict=True)]


def best_of(rows: Sequence[Row], count: int) -> list[int]:
    """The indices of the best, the first of equal ones first."""
    return sorted(range(len(rows)), key=lambda at: (rows[at].value, rows[at].tie, -at), reverse=True)[:count]


def keep(reasons: Sequence[str | None]) -> list[int]:
    return [index for index, reason in enumerate(reasons) if reason is None]


@given(st.lists(value, min_size=1, max_size=60), fractions, st.integers(1, 5))
@example([-0.0, 0.0, -0.0, 0.0], 0.5, 2)
@example([math.inf, 1e308, -math.inf, math.inf], 0.25, 2)
def test_the_best_fraction_is_rounded_down_but_never_to_none(values: list[float], fraction: float, parts: int) -> None:
    rows = with_ties(values)
    rank = max(1, round(fraction * 1000) * len(rows) // 1000)
    best = best_of(rows, rank)
    reasons, summary = reasons_of(rows, parts, top_fraction=fraction)
    boundary = rows[best[-1]].value
    assert keep(reasons) == sorted(best)
    assert set(reasons) <= {None, "top_fraction"}
    assert summary == {
        "candidates": len(rows),
        "kept": rank,
        "boundary": boundary,
        "equal": sum(row.value == boundary for row in rows),
        "equal_kept": sum(rows[index].value == boundary for index in best),
    }


@pytest.mark.parametrize(("fraction", "total", "rank"), [(0.29, 100, 29), (1e-05, 300_000, 3), (0.1, 5, 1), (1, 7, 7)])
def test_a_fraction_is_the_one_written(fraction: float, total: int, rank: int) -> None:
    reasons, _ = reasons_of(with_ties([float(number) for number in range(total)]), top_fraction=fraction)
    assert len(keep(reasons)) == rank


def test_responses_with_the_same_key_stay_together_and_are_counted() -> None:
    reasons, summary = reasons_of([Row(1, 5), Row(1, 5), Row(1, 4), Row(2, 1), Row(0.5, 1)], top_fraction=0.4)
    assert keep(reasons) == [0, 1, 3]
    assert (summary["kept"], summary["equal"], summary["equal_kept"]) == (3, 3, 2)


def neighbours_of(values: Sequence[float], q: float) -> tuple[float, float, float]:
    position = (len(values) - 1) * q
    ordered, index = sorted(values), min(math.floor(position), len(values) - 1)
    return ordered[index], ordered[min(index + 1, len(values) - 1)], position % 1


@given(st.lists(finite, min_size=1, max_size=60), st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
@example([-0.0, 5e-324], 0.5)
def test_a_quantile_is_numpys(values: list[float], q: float) -> None:
    lower, upper, _ = neighbours_of(values, q)
    reasons, summary = reasons_of(with_ties(values), quantile=q)
    if math.isfinite(upper - lower):
        assert summary["boundary"] == np.quantile(values, q)
    assert keep(reasons) == [index for index, number in enumerate(values) if number >= summary["boundary"]]
    assert summary == {"candidates": len(values), "kept": len(keep(reasons)), "boundary": summary["boundary"]}


@given(st.lists(st.sampled_from([math.inf, -math.inf, 1.7e308, -1.7e308, 0.5]), min_size=1, max_size=12), fractions)
def test_a_quantile_where_numpy_gives_nan_is_a_neighbour(values: list[float], q: float) -> None:
    lower, upper, weight = neighbours_of(values, q)
    reasons, summary = reasons_of(with_ties(values), quantile=q)
    if not math.isfinite(upper - lower):
        assert summary["boundary"] == (upper if weight else lower)
    assert keep(reasons) == [index for index, number in enumerate(values) if number >= summary["boundary"]]


prompts = st.tuples(st.integers(0, 3) | st.just(2**64 - 1), st.integers(0, 1) | st.just(2**63))
rows_of_prompts = st.lists(
    st.builds(Row, value | st.sampled_from(GRADES), st.integers(0, 3) | st.integers(0, 2**64 - 1), prompts), max_size=40
)


@examples(200)
@given(rows_of_prompts, st.integers(1, 4), st.none() | st.sampled_from([0.0, 0.5, 1.0, 1e300]), st.integers(1, 5))
def test_the_best_of_each_prompt_are_those_of_a_sort(rows: list[Row], k: int, min_gap: float | None, parts: int) -> None:
    expected: list[str | None] = ["top_k"] * len(rows)
    for prompt in {row.prompt for row in rows}:
        places = [position for position, row in enumerate(rows) if row.prompt == prompt]
        best = [places[number] for number in best_of([rows[place] for place in places], len(places))]
        first, second = rows[best[0]].value, rows[best[1]].value if len(best) > 1 else math.nan
        gap = 0.0 if first == second else first - second
        reason = None if min_gap is None or gap >= min_gap else "min_gap"
        for index in best[:k]:
            expected[index] = reason
    reasons, summary = reasons_of(rows, parts, top_k=k, min_gap=min_gap)
    assert reasons == expected
    assert summary == {"top_k": k, "per": "prompt", "min_gap": min_gap}


@pytest.mark.parametrize("settings", [{"top_fraction": 0.3}, {"quantile": 0.7}, {"top_k": 2}])
def test_what_is_over_the_memory_is_spilled(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    numbers = np.random.default_rng(3).normal(size=300_000).tolist()
    rows = [Row(number, index, (index % 75_000, 0)) for index, number in enumerate(numbers)]
    whole = reasons_of(rows, 10, **settings)
    monkeypatch.setattr(selection, "_MEMORY", "16MB")
    assert reasons_of(rows, 10, **settings) == whole
