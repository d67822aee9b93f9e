"""Intervals hold the truth as often as they say, have a width when all items agree, and say how they were made."""

import math

import numpy as np
import pytest

from pipelines.results.evaluation.benchmark import Array, MeanCells, Measure, mean
from pipelines.results.evaluation.benchmarks.helpsteer2 import BENCHMARK as HELPSTEER2
from pipelines.results.evaluation.benchmarks.pairs import BENCHMARK
from pipelines.results.evaluation.benchmarks.processbench import BENCHMARK as PROCESSBENCH
from pipelines.results.evaluation.benchmarks.rm_bench import BENCHMARK as RM_BENCH
from pipelines.results.evaluation.statistics import intervals
from pipelines.results.evaluation.statistics.intervals import Interval


def cells(right: int, n: int) -> dict[str, Array]:
    wins = np.array([1.0] * right + [0.0] * (n - right))
    return {"all": np.stack([wins, wins], axis=1)}


def bounds(right: int, n: int) -> tuple[float, float]:
    low, high, method = intervals.intervals(cells(right, n), False, BENCHMARK.measures)["accuracy"]
    assert method == "Wilson"
    return low, high


def macro(means: MeanCells) -> list[Measure]:
    """The unweighted mean of the subsets: no share of all items."""
    return [Measure("macro", mean([values[..., 0] for values in means.by_subset.values()]), 0, "macro")]


def macro_interval(shares: dict[str, tuple[int, int]], seed: int = 0) -> Interval:
    by_subset = {name: cells(right, n)["all"] for name, (right, n) in shares.items()}
    return intervals.intervals(by_subset, False, macro, seed)["macro"]


def test_a_share_has_wilsons_interval() -> None:
    # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20 and 1 of 29.
    for right, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert bounds(right, n) == pytest.approx((low, high), abs=6e-5)
    low, high = bounds(20, 20)
    assert (round(low, 4), high) == (0.8389, 1.0), "all right: the interval has a width"


def test_it_holds_the_truth_nineteen_times_in_twenty() -> None:
    n, truths = 50, np.linspace(0.05, 0.95, 46)
    by_right = [bounds(right, n) for right in range(n + 1)]
    held = [
        sum(
            math.comb(n, right) * truth**right * (1 - truth) ** (n - right)
            for right, (low, high) in enumerate(by_right)
            if low <= truth <= high
        )
        for truth in truths
    ]
    assert min(held) > 0.91
    assert np.mean(held) == pytest.approx(0.95, abs=0.01)


def test_a_mean_over_subsets_is_resampled_by_its_seed() -> None:
    shares = {"a": (90, 100), "b": (150, 200)}
    interval = macro_interval(shares)
    assert interval.method == "bootstrap of 1000 draws, seed 0"
    # By the normal distribution: half of sqrt(0.9 * 0.1 / 100 + 0.75 * 0.25 / 200), to both sides of 0.825.
    assert (interval.low, interval.high) == pytest.approx((0.7829, 0.8671), abs=0.005)
    assert macro_interval(shares) == interval != macro_interval(shares, seed=1)


def test_subsets_that_are_all_right_have_a_width_in_the_mean() -> None:
    interval = macro_interval({"a": (20, 20), "b": (10, 10)})
    assert "MOVER" in interval.method
    # The subsets' lower bounds are 0.8389 and 0.7225: that of the mean is 1 - sqrt(0.1611^2 + 0.2775^2) / 2.
    assert (interval.low, interval.high) == pytest.approx((0.8396, 1.0), abs=1e-4)
    assert "MOVER" in macro_interval({"a": (20, 20), "b": (7, 10)}).method, "one of them is enough"
    draws = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        low, high, _ = macro_interval(
            {name: (int(draws.binomial(n, share)), n) for name, n, share in (("a", 30, 0.97), ("b", 40, 0.9))}
        )
        hits += low <= 0.935 <= high
    assert hits >= 180, f"it holds the truth {hits} times of 200, with subsets that are often all right"


def test_items_of_several_comparisons_are_no_shares() -> None:
    equal = np.tile([1.0, 0, 0, 1, 1, 0, 1, 1, 1], (10, 1))  # six of nine, in all ten samples
    low, high, method = intervals.intervals({"chat": equal}, False, RM_BENCH.measures)["overall (pooled)"]
    assert "MOVER" in method
    assert (low, high) == pytest.approx(intervals.wilson(2 / 3, 10)), "equal items have a width"
    won = (np.random.default_rng(1).random((400, 9)) < 0.7).astype(float)
    low, high, method = intervals.intervals({"chat": won}, False, RM_BENCH.measures)["overall (pooled)"]
    assert method.startswith("bootstrap")
    assert high - low < 0.04, "nine comparisons a sample, narrower than a share of 400 (0.09)"


def test_many_items_have_the_interval_that_resampling_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {"a": (6000, 9000), "b": (2000, 9000)}
    resampled = macro_interval(shares)[:2]
    monkeypatch.setattr(intervals, "MOST_RESAMPLED", 100)
    assert macro_interval(shares)[:2] == pytest.approx(resampled, abs=0.002)


def halves(erroneous: tuple[int, int], correct: tuple[int, int]) -> Array:
    """ProcessBench's cells of right items of all, with and without a wrong step."""
    wrong = [[float(index < erroneous[0]), float(index < erroneous[0]), np.nan] for index in range(erroneous[1])]
    right = [[float(index < correct[0]), np.nan, float(index < correct[0])] for index in range(correct[1])]
    return np.array([*wrong, *right])


def test_an_f1_with_a_half_at_an_end_has_that_of_both_bounds() -> None:
    cases: list[tuple[tuple[int, int], tuple[int, int]]] = [
        ((20, 20), (20, 20)),
        ((0, 4), (0, 3)),
        ((2, 7), (0, 4)),
        ((0, 5), (3, 4)),
        ((20, 20), (9, 20)),
        ((0, 9), (9, 9)),
    ]
    for erroneous, correct in cases:
        low, high, method = intervals.intervals({"gsm8k": halves(erroneous, correct)}, False, PROCESSBENCH.measures)["gsm8k"]
        ends = (intervals.wilson(right / n, n) for right, n in (erroneous, correct))
        expected = [2 * a * b / (a + b) if a + b else 0.0 for a, b in zip(*ends, strict=True)]
        assert (low, high) == pytest.approx(expected)
        assert "MOVER" in method


def test_an_f1_of_halves_that_vary_is_resampled_and_a_mean_combines_subsets() -> None:
    varying = intervals.intervals({"gsm8k": halves((12, 20), (9, 20))}, False, PROCESSBENCH.measures)["gsm8k"]
    assert "bootstrap" in varying.method
    by_subset = {name: halves((0, 4), (0, 4)) for name in ("gsm8k", "math", "olympiadbench", "omnimath")}
    low, high, _ = intervals.intervals(by_subset, False, PROCESSBENCH.measures)["score"]
    assert (low, high) == pytest.approx((0.0, intervals.wilson(0, 4)[1] / 2))


def test_a_correlation_that_is_the_same_in_all_draws_has_no_interval() -> None:
    line = [1.0, 2.0, 3.0, 4.0]
    moments = np.array([[math.nan, x, x, x * x, x * x, x * x, *[math.nan] * 25] for x in line])
    (figure,) = intervals.intervals({"ratings": moments}, False, HELPSTEER2.measures).values()
    assert np.isnan([figure.low, figure.high]).all(), "bounds of moments aren't those of r: they went up to 3"
    assert "no interval" in figure.method


def test_means_of_many_items_are_drawn_over_those_that_have_a_cell() -> None:
    random = np.random.default_rng(5)
    values = np.column_stack([random.normal(3, 2, 20_000), random.normal(-1, 1, 20_000), np.full(20_000, np.nan)])
    values[:15_000, 1] = np.nan
    drawn = intervals._resampled(values, np.random.default_rng(6))
    assert np.isnan(drawn[:, 2]).all()
    assert drawn[:, :2].mean(0) == pytest.approx([3, -1], abs=0.05)
    assert drawn[:, :2].std(0) == pytest.approx([2 / 20_000**0.5, 1 / 5_000**0.5], rel=0.1)


def test_items_of_one_prompt_are_no_independent_ones() -> None:
    draws = np.random.default_rng(1)
    first, second = np.triu_indices(4, 1)

    def draw(prompts: int) -> Array:
        worth, skill = draws.normal(size=(prompts, 4)), draws.normal(0.8, 1.0, size=(prompts, 1))
        rewards = skill * worth + draws.normal(size=(prompts, 4)) * 0.8
        right = (worth[:, first] - worth[:, second]) * (rewards[:, first] - rewards[:, second]) > 0
        return np.repeat(right.reshape(-1, 1), 2, axis=1).astype(float)

    truth, numbers = draw(200_000).mean(), np.repeat(np.arange(100, dtype=np.uint64), 6)
    held = 0
    for _ in range(100):
        prompts = {"all": numbers}
        low, high, method = intervals.intervals({"all": draw(100)}, False, BENCHMARK.measures, 0, prompts)["accuracy"]
        held += low <= truth <= high
    assert method == "bootstrap of prompts, 1000 draws, seed 0"
    assert held >= 89, f"it holds the truth {held} times of 100; Wilson's by rows 82 times"


def test_prompts_of_two_subsets_are_the_same_ones_and_equal_items_count_by_prompt() -> None:
    twice = {"a": np.arange(30, dtype=np.uint64), "b": np.arange(30, dtype=np.uint64)}
    right = cells(20, 30)["all"]
    results = intervals.intervals({"a": right, "b": right}, False, BENCHMARK.measures, 0, twice)
    assert results["a"] == (*intervals.wilson(20 / 30, 30), "Wilson"), "in a subset each stands once"
    assert results["accuracy"].high - results["accuracy"].low == pytest.approx(0.33, abs=0.04), "as of 30, and not of 60"
    all_right = {subset: cells(30, 30)["all"] for subset in twice}
    assert intervals.intervals(all_right, False, BENCHMARK.measures, 0, twice)["accuracy"][:2] == pytest.approx(
        intervals.wilson(1.0, 30)
    )
