"""Intervals hold the truth as often as they say, are the same for a seed, and agree beyond the number that is resampled."""

import numpy as np
import pytest

from pipelines.evaluation import intervals
from pipelines.evaluation.benchmark import Array
from pipelines.evaluation.benchmarks.pairs import BENCHMARK


def cells(right: int, n: int) -> dict[str, Array]:
    wins = np.array([1.0] * right + [0.0] * (n - right))
    return {"all": np.stack([wins, wins], axis=1)}


def bounds(right: int, n: int, seed: int = 0) -> tuple[float, float]:
    return intervals.intervals(cells(right, n), False, BENCHMARK.measures, seed)["accuracy"]


def test_an_interval_is_that_of_the_binomial() -> None:
    low, high = bounds(150, 200)
    assert (low, high) == pytest.approx((0.69, 0.81), abs=0.01)
    assert bounds(150, 200) == (low, high) != bounds(150, 200, seed=1)


def test_it_holds_the_truth_nineteen_times_in_twenty() -> None:
    draws = np.random.default_rng(5)
    hits = [low <= 0.7 <= high for low, high in (bounds(int(draws.binomial(100, 0.7)), 100, seed) for seed in range(200))]
    assert 180 <= sum(hits) <= 199


def test_many_items_have_the_interval_that_resampling_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    resampled = bounds(6000, 9000)
    monkeypatch.setattr(intervals, "MOST_RESAMPLED", 100)
    assert bounds(6000, 9000) == pytest.approx(resampled, abs=0.002)
