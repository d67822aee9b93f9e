"""Intervals of measures, each with the method that it was made by. Methods, by what a measure is:

Wilson      a share of items, each right or wrong: the score interval, which has a width even if all items are right
bootstrap   a mean over subsets, or of items with several comparisons: the same items, drawn again with replacement within
            each subset (percentiles of `DRAWS` draws, by a seed)
combined    such a mean where resampling knows too little, as all items of a subset came out alike: the Wilson bounds of the
            subsets, combined as for independent estimates (MOVER: Zou and Donner, Statistics in Medicine 27, 2008). The
            bounds of an F1, which is no mean and rises with both accuracies, are the F1 of their lower and upper bounds. A
            correlation is always resampled, and has no interval if all draws are alike

Where a prompt has several items, as labelled pairs of four responses, these aren't independent: then nothing has Wilson's
interval by items. Draws give each prompt a random weight (exponential: Rubin's Bayesian bootstrap), the same one in all
subsets, so that no subset is ever empty; Wilson bounds are by the number of prompts.

Up to `MOST_RESAMPLED` items of a subset are resampled. Of more, the means are drawn from the normal distribution that the
central limit theorem gives, as a thousand resamplings of a million items would take minutes.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.results.evaluation.benchmark import Array, MeanCells, Measure

DRAWS = 1000
LEVEL = 0.95  # the only level: `wilson` has its quantile as a constant
MOST_RESAMPLED = 10_000  # beyond, the normal distribution's bounds agree to 0.002
_CHUNK = 100  # draws at a time: of 10,000 items their weights are 8 MB
_Z = 1.959963984540054  # of the normal distribution, for `LEVEL`
_CLOSE = 1e-9  # sums of a million shares in float64 are right to 1e-10
Measures = Callable[[MeanCells], list[Measure]]
Prompts = npt.NDArray[np.uint64]
"""Of each item a number of its prompt."""


class Interval(NamedTuple):
    """A 95 % interval, NaN where there is none, and how it was made or why there is none."""

    low: float
    high: float
    method: str


class _Influence(NamedTuple):
    """What the items of a subset add to a measure that is a sum over subsets, and the least and most that an item can."""

    values: Array
    least: float
    most: float
    prompts: Prompts


def mean_cells(cells: Mapping[str, Array], judged: bool) -> MeanCells:
    """The mean cells of each subset; a cell that doesn't apply to an item (NaN) isn't averaged."""
    return _with_counts({subset: _item_means(values) for subset, values in cells.items()}, cells, judged)


def intervals(
    cells: Mapping[str, Array], judged: bool, measures: Measures, seed: int = 0, prompts: Mapping[str, Prompts] | None = None
) -> dict[str, Interval]:
    """The 95 % interval of each measure, by name; the same seed gives the same intervals.

    `prompts` of the items by subset; without them each item has its own.
    `cells` by subset, of shape (items, cells), NaN where an item lacks a cell. A measure that is NaN has bounds of NaN.
    """
    means = mean_cells(cells, judged)
    prompts = prompts or _number_items(cells)
    by_prompt = {subset: _prompts_of_cells(values, prompts[subset]) for subset, values in cells.items()}
    weights, moves = measure_weights(means, measures), _moves(replace(means, cell_counts=by_prompt), measures)
    unit = "prompts, " if have_repeats(prompts) else ""

    @functools.cache
    def draws() -> dict[str, Array]:  # seconds of many items, and not needed where all measures are shares
        resampled = resampled_means(cells, judged, np.random.default_rng(seed), prompts)
        return {measure.name: measure.value for measure in measures(resampled)}

    def interval(measure: Measure) -> Interval:
        value, name = float(measure.value), measure.name
        if math.isnan(value):
            return Interval(math.nan, math.nan, "")
        influences = _influences(cells, measure, weights.get(name), prompts)
        is_pooled = measure.is_share and _is_share(influences)
        if is_pooled and not have_repeats({str(number): influence.prompts for number, influence in enumerate(influences)}):
            return Interval(*wilson(value, sum(len(influence.values) for influence in influences)), "Wilson")
        if is_pooled:  # one share of all items, whose prompts may stand in several subsets
            influences = [_pooled(influences)]
        is_constant = any(np.ptp(influence.values) < _CLOSE for influence in influences)
        if measure.is_share and not influences:
            is_constant = any(
                np.isin(means.by_subset[subset], (0, 1)).any() for subset, move in moves[name].items() if any(move)
            )
        # Five of five right resample to five of five: a width of 0, where Wilson's lower bound is 0.57. So draws count only
        # where every subset has items that came out otherwise.
        if not is_constant and np.nanmax(draws()[name]) - np.nanmin(draws()[name]) > _CLOSE:
            return Interval(
                *percentiles(draws()[name]),
                f"bootstrap of {unit}{DRAWS} draws, seed {seed}" if unit else f"bootstrap of {DRAWS} draws, seed {seed}",
            )
        if not measure.is_share and not influences:
            return Interval(
                math.nan, math.nan, "no interval: all draws are alike, and a correlation has no bounds of subsets"
            )
        down, up = (math.hypot(*distances) for distances in zip(*moves[name].values(), strict=True))
        combined = _combined(value, influences) if influences else (max(0.0, value - down), min(1.0, value + up))
        return Interval(*combined, f"Wilson bounds of the subsets{' by prompts' * bool(unit)}, combined (MOVER)")

    return {measure.name: interval(measure) for measure in measures(means)}


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share of `n` items, or of a mean of values from 0 to 1, for which it is wide enough.

    NaN without items. Source: E. B. Wilson, JASA 22 (1927).
    """
    if not n > 0 or math.isnan(share):
        return math.nan, math.nan
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(max(0.0, share * (1 - share)) / n + _Z**2 / (4 * n**2))
    # An interval holds its share: in floats the upper bound of 10 of 10 is 0.9999999999999999.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def percentiles(draws: Array) -> tuple[float, float]:
    """The bounds between which `LEVEL` of the draws lie."""
    low, high = np.nanquantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def have_repeats(prompts: Mapping[str, Prompts]) -> bool:
    """Whether a prompt stands more than once, in one subset or in several."""
    stacked = np.concatenate(list(prompts.values()))
    return len(np.unique(stacked)) < len(stacked)


def effective_items(prompts: Prompts) -> float:
    """Kish's effective number of items: those of one prompt count as one in the worst case."""
    counts = np.unique(prompts, return_counts=True)[1].astype(float)
    return float(counts.sum() ** 2 / (counts**2).sum())


def resampled_means(
    cells: Mapping[str, Array], judged: bool, rng: np.random.Generator, prompts: Mapping[str, Prompts]
) -> MeanCells:
    """Mean cells of `DRAWS` resamplings of the items of each subset, or of prompts where one has several items."""
    if have_repeats(prompts):
        return _with_counts(_by_prompt(cells, prompts, rng), cells, judged)
    return _with_counts({subset: _resampled(values, rng) for subset, values in sorted(cells.items())}, cells, judged)


def _by_prompt(cells: Mapping[str, Array], prompts: Mapping[str, Prompts], rng: np.random.Generator) -> dict[str, Array]:
    numbers, places = np.unique(np.concatenate([prompts[subset] for subset in cells]), return_inverse=True)
    ends = np.cumsum([len(values) for values in cells.values()])
    by_subset = dict(zip(cells, np.split(places, ends[:-1]), strict=True))
    chunk = max(1, min(_CHUNK, 10**6 // len(places)))  # of a million items a draw at a time, in 30 s for all
    draws: dict[str, list[Array]] = {subset: [] for subset in cells}
    for start in range(0, DRAWS, chunk):
        weights = rng.standard_exponential((min(chunk, DRAWS - start), len(numbers)))
        for subset, values in cells.items():
            draws[subset].append(_nan_means(values, weights[:, by_subset[subset]]))
    return {subset: np.concatenate(chunks) for subset, chunks in draws.items()}


def _number_items(cells: Mapping[str, Array]) -> dict[str, Prompts]:
    starts = np.cumsum([0, *(len(values) for values in cells.values())])
    return {
        subset: np.arange(start, start + len(values), dtype=np.uint64)
        for (subset, values), start in zip(cells.items(), starts[:-1], strict=True)
    }


def _prompts_of_cells(values: Array, prompts: Prompts) -> Array:
    return np.array([len(np.unique(prompts[~np.isnan(column)])) for column in values.T])


def _pooled(influences: list[_Influence]) -> _Influence:
    values = np.concatenate([influence.values / influence.most for influence in influences])
    return _Influence(values, 0.0, 1.0, np.concatenate([influence.prompts for influence in influences]))


def _with_counts(means: Mapping[str, Array], cells: Mapping[str, Array], judged: bool) -> MeanCells:
    counts = {subset: len(values) for subset, values in cells.items()}
    cell_counts = {subset: np.count_nonzero(~np.isnan(values), axis=0) for subset, values in cells.items()}
    return MeanCells(means, counts, judged, cell_counts=cell_counts)


def measure_weights(means: MeanCells, measures: Measures) -> dict[str, dict[str, Array]]:
    """What each mean cell of a subset counts for in a measure, by the measures' names and subsets.

    Only of measures that are weighted sums of mean cells, as a test at the mean cells themselves shows.
    """
    subsets, width = sorted(means.by_subset), len(next(iter(means.by_subset.values())))
    # All cells 0, then each cell of each subset alone 1: of 3 subsets with 2 cells 7 draws, by one call.
    probes = np.eye(1 + len(subsets) * width, len(subsets) * width, -1).reshape(-1, len(subsets), width)
    with np.errstate(all="ignore"):  # of a measure that isn't a sum, a probe may be 0 / 0
        probed = measures(replace(means, by_subset={subset: probes[:, position] for position, subset in enumerate(subsets)}))
    by_name, weights = {measure.name: measure.value for measure in probed}, {}
    for measure in measures(means):
        start, *slopes = by_name[measure.name]
        by_subset = dict(zip(subsets, np.reshape(slopes, (-1, width)) - start, strict=True))
        total = start + sum(np.nansum(slope * means.by_subset[subset]) for subset, slope in by_subset.items())
        if abs(total - measure.value) < _CLOSE:
            weights[measure.name] = by_subset
    return weights


def _moves(means: MeanCells, measures: Measures) -> dict[str, dict[str, Array]]:
    """How far a measure moves where all cells of a subset are at their lower, and where they are at their upper bounds."""
    subsets = sorted(means.by_subset)
    probes = {subset: np.tile(means.by_subset[subset], (1 + 2 * len(subsets), 1)) for subset in subsets}
    for position, subset in enumerate(subsets):
        bounds = [wilson(mean, means.count(subset, cell)) for cell, mean in enumerate(means.by_subset[subset])]
        probes[subset][1 + 2 * position : 3 + 2 * position] = np.transpose(bounds)
    with np.errstate(all="ignore"):  # cells of a correlation are no shares
        probed = measures(replace(means, by_subset=probes))
    return {
        measure.name: dict(zip(subsets, (measure.value[1:] - measure.value[0]).reshape(-1, 2), strict=True))
        for measure in probed
    }


def _influences(
    cells: Mapping[str, Array], measure: Measure, weights: Mapping[str, Array] | None, prompts: Mapping[str, Prompts]
) -> list[_Influence]:
    # Weights below 1e-6 are what probing leaves of a subset that the measure doesn't use.
    least = 0.0 if measure.is_share else -1.0
    return [
        _influence(cells[subset], weight, least, prompts[subset])
        for subset, weight in (weights or {}).items()
        if np.abs(weight).max() > 1e-6
    ]


def _influence(values: Array, weights: Array, least: float, prompts: Prompts) -> _Influence:
    """What each item of a subset adds, times the number of items; cells that an item lacks count as the subset's mean.

    Items that lack all of the measure's cells are none of its. `least`: of a cell, 0 of a credit, -1 of a correlation.
    """
    used = np.abs(weights) > 1e-6
    is_graded = ~np.isnan(values[:, used]).all(1)
    values, weights, prompts = values[is_graded][:, used], weights[used], prompts[is_graded]
    means = _item_means(values)
    # At the subset's mean, so that an item adds nothing to the spread of a cell that it lacks.
    filled = np.nan_to_num(np.where(np.isnan(values), means, values))
    lowest = np.where((filled < 0).any(0), -1.0, least)  # RewardBench 2 has a margin from -1 to 1 among credits
    ends = np.stack([weights * lowest, weights])
    return _Influence(filled @ weights, float(ends.min(0).sum()), float(ends.max(0).sum()), prompts)


def _is_share(influences: list[_Influence]) -> bool:
    # Each item adds 0 or the whole weight of one item, which is the same in all subsets: right or wrong, and pooled.
    total = sum(len(influence.values) for influence in influences)
    return bool(influences) and all(
        abs(influence.most - len(influence.values) / total) < _CLOSE
        and abs(influence.least) < _CLOSE
        and bool(np.all((np.abs(influence.values) < _CLOSE) | (np.abs(influence.values - influence.most) < _CLOSE)))
        for influence in influences
    )


def _combined(value: float, influences: list[_Influence]) -> tuple[float, float]:
    # MOVER: the subsets' items are independent, so the squared distances to the bounds add up.
    bounds = [(float(influence.values.mean()), *_bounded_mean(influence)) for influence in influences]
    # By distances and not by variances: Wilson's bounds are further away on the side of one half, and so are these.
    low = value - math.sqrt(sum((mean - low) ** 2 for mean, low, _ in bounds))
    high = value + math.sqrt(sum((high - mean) ** 2 for mean, _, high in bounds))
    # No further than the measure itself can go, and never so that the value lies outside.
    least, most = sum(influence.least for influence in influences), sum(influence.most for influence in influences)
    return max(low, min(value, least)), min(high, max(value, most))


def _bounded_mean(influence: _Influence) -> tuple[float, float]:
    """The Wilson bounds of the mean of values within bounds.

    Values between the bounds vary less than a share of that mean: they count as so many more items, if they vary at all.
    """
    # 100 items of 0.25 or 0.75, as many of each, vary by 0.0625 where 100 of 0 or 1 vary by 0.25: they count as 400 items.
    reach = influence.most - influence.least
    scaled = (influence.values - influence.least) / reach
    mean, numbers = float(scaled.mean()), np.unique(influence.prompts, return_inverse=True)[1]
    # The variance of a mean whose items of one prompt go together; of items with a prompt each it is their own.
    variance = float((np.bincount(numbers, scaled - mean) ** 2).sum()) / len(scaled)
    is_varying = variance > _CLOSE
    counts_as = len(scaled) * mean * (1 - mean) / variance if is_varying else effective_items(influence.prompts)
    low, high = wilson(mean, counts_as)
    return influence.least + reach * low, influence.least + reach * high


def _resampled(values: Array, rng: np.random.Generator) -> Array:
    count = len(values)
    if count > MOST_RESAMPLED:
        return _normal_means(values, rng)
    # Drawing n of n with replacement is a multinomial count of each item, and a mean is a product with these counts.
    chunks = [rng.multinomial(count, np.full(count, 1 / count), _CHUNK).astype(float) for _ in range(DRAWS // _CHUNK)]
    return np.concatenate([_nan_means(values, weights) for weights in chunks])


def _normal_means(values: Array, rng: np.random.Generator) -> Array:
    means, is_present = _item_means(values), ~np.isnan(values)
    residuals, counts = np.where(is_present, values - means, 0.0), np.maximum(is_present.sum(0), 1)
    # Of means, so over the square of the counts. `svd` below also takes a matrix without an inverse, as of two equal cells.
    covariance = residuals.T @ residuals / np.outer(counts, counts)
    draws = rng.multivariate_normal(np.nan_to_num(means), covariance, DRAWS, method="svd")
    return np.where(np.isnan(means), np.nan, draws)


def _item_means(values: Array) -> Array:
    return _nan_means(values, np.ones((1, len(values))))[0]


def _nan_means(values: Array, weights: Array) -> Array:
    """Weighted means of each cell over the items that have it, of shape (weights' rows, cells); NaN where none has."""
    is_present = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray((weights @ np.where(is_present, values, 0.0)) / (weights @ is_present.astype(float)))
