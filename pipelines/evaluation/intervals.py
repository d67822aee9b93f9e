"""Intervals of measures, each with the method that it was made by. Methods, by what a measure is:

Wilson      a share of items, each right or wrong: the score interval, which has a width even if all items are right
bootstrap   a mean over subsets, or of items with several comparisons: the same items, drawn again with replacement within
            each subset (percentiles of `DRAWS` draws, by a seed)
combined    such a mean where resampling knows too little, as all items of a subset came out alike: the Wilson bounds of the
            subsets, combined as for independent estimates (MOVER: Zou and Donner, Statistics in Medicine 27, 2008)

Up to `MOST_RESAMPLED` items of a subset are resampled. Of more, the means are drawn from the normal distribution that the
central limit theorem gives, as a thousand resamplings of a million items would take minutes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pipelines.evaluation.benchmark import Array, MeanCells, Measure

DRAWS = 1000
LEVEL = 0.95
MOST_RESAMPLED = 10_000
_CHUNK = 100  # draws at a time: of 10,000 items their weights are 8 MB
_Z = 1.959963984540054  # of the normal distribution, for `LEVEL`
_CLOSE = 1e-9
Measures = Callable[[MeanCells], list[Measure]]


class Interval(NamedTuple):
    """A 95 % interval, NaN where there are no items, and how it was made."""

    low: float
    high: float
    method: str


class _Influence(NamedTuple):
    """What the items of a subset add to a measure that is a sum over subsets, and the least and most that an item can."""

    values: Array
    least: float
    most: float

    @property
    def is_constant(self) -> bool:
        """Whether all items came out alike, so that resampling them gives no width."""
        return bool(np.ptp(self.values) < _CLOSE)


def mean_cells(cells: Mapping[str, Array], judged: bool) -> MeanCells:
    """The mean cells of each subset; a cell that doesn't apply to an item (NaN) isn't averaged."""
    means = {subset: _nan_means(values, np.ones((1, len(values))))[0] for subset, values in cells.items()}
    return MeanCells(means, {subset: len(values) for subset, values in cells.items()}, judged)


def intervals(cells: Mapping[str, Array], judged: bool, measures: Measures, seed: int = 0) -> dict[str, Interval]:
    """The 95 % interval of each measure, by name; the same seed gives the same intervals."""
    means = mean_cells(cells, judged)
    resampled = measures(resampled_means(cells, judged, np.random.default_rng(seed)))
    weights = measure_weights(means, measures)
    return {
        measure.name: _interval(measure, draws.value, weights.get(measure.name), cells, seed)
        for measure, draws in zip(measures(means), resampled, strict=True)
    }


def near_chance(low: float | None, high: float | None, chance: float | None) -> bool:
    """Whether an interval includes what guessing gets; never without an interval or such a number."""
    return chance is not None and low is not None and high is not None and low <= chance <= high


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a share of `n` items; of a mean of values from 0 to 1 it is at least as wide as needed."""
    if not n > 0 or math.isnan(share):
        return math.nan, math.nan
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(max(0.0, share * (1 - share)) / n + _Z**2 / (4 * n**2))
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def percentiles(draws: Array) -> tuple[float, float]:
    """The bounds between which `LEVEL` of the draws lie."""
    low, high = np.nanquantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def resampled_means(cells: Mapping[str, Array], judged: bool, draws: np.random.Generator) -> MeanCells:
    """Mean cells of `DRAWS` resamplings of the items of each subset."""
    resampled = {subset: _resampled(values, draws) for subset, values in sorted(cells.items())}
    return MeanCells(resampled, {subset: len(values) for subset, values in cells.items()}, judged)


def measure_weights(means: MeanCells, measures: Measures) -> dict[str, dict[str, Array]]:
    """What each mean cell of a subset counts for in a measure, by the measures' names and subsets.

    Only of measures that are weighted sums of mean cells, as a test at the mean cells themselves shows.
    """
    width = len(next(iter(means.by_subset.values())))
    subsets = sorted(means.by_subset)
    # One draw in which all mean cells are 0, then for each cell of each subset one in which it alone is 1.
    basis = np.concatenate(
        [np.zeros((1, len(subsets), width)), np.eye(len(subsets) * width).reshape(-1, len(subsets), width)]
    )
    probes = {subset: basis[:, at] for at, subset in enumerate(subsets)}
    weights = {}
    with np.errstate(all="ignore"):  # of a measure that isn't such a sum, a probe may be 0 / 0
        probed = measures(replace(means, by_subset=probes))
    for measure, probe in zip(measures(means), probed, strict=True):
        slopes = (probe.value[1:] - probe.value[0]).reshape(len(subsets), width)
        by_subset = dict(zip(subsets, slopes, strict=True))
        total = probe.value[0] + sum(np.nansum(weight * means.by_subset[subset]) for subset, weight in by_subset.items())
        if abs(total - measure.value) < _CLOSE:
            weights[measure.name] = by_subset
    return weights


def _interval(
    measure: Measure, draws: Array, weights: Mapping[str, Array] | None, cells: Mapping[str, Array], seed: int
) -> Interval:
    value = float(measure.value)
    bootstrap = f"bootstrap of {DRAWS} draws, seed {seed}"
    if math.isnan(value) or weights is None:
        return Interval(*percentiles(draws), bootstrap)
    least = 0.0 if measure.is_share else -1.0
    influences = [
        _influence(cells[subset], weight, least) for subset, weight in weights.items() if np.abs(weight).max() > _CLOSE
    ]
    if measure.is_share and _is_share(influences):
        return Interval(*wilson(value, sum(len(influence.values) for influence in influences)), "Wilson")
    if any(influence.is_constant for influence in influences):
        return Interval(*_combined(value, influences), "Wilson bounds of the subsets, combined (MOVER)")
    return Interval(*percentiles(draws), bootstrap)


def _influence(values: Array, weights: Array, least: float) -> _Influence:
    """What each item of a subset adds, times the number of items; cells that an item lacks count as the subset's mean.

    Items that lack all of the measure's cells are none of its. `least`: of a cell, 0 of a credit, -1 of a correlation.
    """
    used = np.abs(weights) > _CLOSE
    values, weights = values[~np.isnan(values[:, used]).all(1)][:, used], weights[used]
    means = _nan_means(values, np.ones((1, len(values))))[0]
    filled = np.nan_to_num(np.where(np.isnan(values), means, values))
    lowest = np.where((filled < 0).any(0), -1.0, least)  # RewardBench 2 has a margin from -1 to 1 among credits
    ends = np.stack([weights * lowest, weights])
    return _Influence(filled @ weights, float(ends.min(0).sum()), float(ends.max(0).sum()))


def _is_share(influences: list[_Influence]) -> bool:
    """Whether each item adds either nothing or the same as every other one: the measure is a share of the items."""
    total = sum(len(influence.values) for influence in influences)
    return bool(influences) and all(
        abs(influence.most - len(influence.values) / total) < _CLOSE
        and abs(influence.least) < _CLOSE
        and bool(np.all((np.abs(influence.values) < _CLOSE) | (np.abs(influence.values - influence.most) < _CLOSE)))
        for influence in influences
    )


def _combined(value: float, influences: list[_Influence]) -> tuple[float, float]:
    """The squared distances of each subset's mean to its own bounds add up, as the subsets' items are independent."""
    bounds = [(float(influence.values.mean()), *_bounded_mean(influence)) for influence in influences]
    low = value - math.sqrt(sum((mean - low) ** 2 for mean, low, _ in bounds))
    high = value + math.sqrt(sum((high - mean) ** 2 for mean, _, high in bounds))
    return max(low, sum(influence.least for influence in influences)), min(
        high, sum(influence.most for influence in influences)
    )


def _bounded_mean(influence: _Influence) -> tuple[float, float]:
    """The Wilson bounds of the mean of values within bounds.

    Values between the bounds vary less than a share of that mean: they count as so many more items, if they vary at all.
    """
    reach = influence.most - influence.least
    scaled = (influence.values - influence.least) / reach
    mean, variance = float(scaled.mean()), float(scaled.var())
    counts_as = len(scaled) * (mean * (1 - mean) / variance if variance > _CLOSE else 1.0)
    low, high = wilson(mean, counts_as)
    return influence.least + reach * low, influence.least + reach * high


def _resampled(values: Array, draws: np.random.Generator) -> Array:
    """Mean cells of `DRAWS` resamplings, of shape (draws, cells)."""
    count = len(values)
    if count > MOST_RESAMPLED:
        return _normal_means(values, draws)
    chunks = [draws.multinomial(count, np.full(count, 1 / count), _CHUNK).astype(float) for _ in range(DRAWS // _CHUNK)]
    return np.concatenate([_nan_means(values, weights) for weights in chunks])


def _normal_means(values: Array, draws: np.random.Generator) -> Array:
    covariance = np.atleast_2d(np.cov(values, rowvar=False)) / len(values)
    return draws.multivariate_normal(values.mean(0), covariance, DRAWS, method="svd")


def _nan_means(values: Array, weights: Array) -> Array:
    """Weighted means of each cell over the items that have it, of shape (weights' rows, cells); NaN where none has."""
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray((weights @ np.where(there, values, 0.0)) / (weights @ there.astype(float)))
