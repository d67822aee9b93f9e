"""Intervals of measures by resampling items: the same items, drawn again with replacement, within each subset.

Up to `MOST_RESAMPLED` items of a subset are resampled (percentile bootstrap). Of more, the means are drawn from the normal
distribution that the central limit theorem gives, as a thousand resamplings of a million items would take minutes.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pipelines.evaluation.benchmark import Array, MeanCells, Measure

DRAWS = 1000
LEVEL = 0.95
MOST_RESAMPLED = 10_000
_CHUNK = 100  # draws at a time: of 10,000 items their weights are 8 MB


def mean_cells(cells: Mapping[str, Array], judged: bool) -> MeanCells:
    """The mean cells of each subset; a cell that doesn't apply to an item (NaN) isn't averaged."""
    means = {subset: _nan_means(values, np.ones((1, len(values))))[0] for subset, values in cells.items()}
    return MeanCells(means, {subset: len(values) for subset, values in cells.items()}, judged)


def intervals(
    cells: Mapping[str, Array], judged: bool, measures: Callable[[MeanCells], list[Measure]], seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The 95 % interval of each measure, by name; the same seed gives the same intervals."""
    draws = np.random.default_rng(seed)
    resampled = {subset: _resampled_means(values, draws) for subset, values in sorted(cells.items())}
    means = MeanCells(resampled, {subset: len(values) for subset, values in cells.items()}, judged)
    tails = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    bounds = {measure.name: np.nanquantile(measure.value, tails) for measure in measures(means)}
    return {name: (float(low), float(high)) for name, (low, high) in bounds.items()}


def _resampled_means(values: Array, draws: np.random.Generator) -> Array:
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
