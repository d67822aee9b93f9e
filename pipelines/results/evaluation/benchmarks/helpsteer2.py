"""HelpSteer and HelpSteer2: do rewards prefer what people preferred, and do a model's attributes follow their ratings?

Rows with `preference_strength` are pairs: below 0 people preferred `response_1`, above 0 `response_2`. Rated rows are paired
with the next one where it has the same prompt, as HelpSteer2's do, by `helpfulness`. A tie of rewards is wrong. A pair of
which people preferred neither is counted as `no preference`, and nothing can be right about it. The accuracy is over the
pairs of the validation split, or over all where rows don't name a split; those of `train` have a figure of their own.

Over the rated rows, each attribute that the model gives is correlated (Pearson's r) with people's ratings, and the reward
with their helpfulness. A rated row and the pair that it is part of are an item each.

Source: arXiv 2406.08673 (HelpSteer2) and arXiv 2410.01257 (its preferences); nvidia/HelpSteer2.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from pipelines.data.formats import ONLY_RESPONSE
from pipelines.results.evaluation.benchmark import (
    Array,
    Benchmark,
    GradedItem,
    Item,
    MeanCells,
    Measure,
    Ungraded,
    number,
    reward,
)

_ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
_REWARD = "reward"
_RATED, _PAIRS, _TRAIN, _NEITHER = "ratings", "preferences", "preferences, train", "no preference"
_MOMENTS = ("x", "y", "xx", "yy", "xy")
_NO_RATING = (math.nan,) * (len(_MOMENTS) * (len(_ATTRIBUTES) + 1))
_STRICT, _PEARSON = "a tie is wrong", "Pearson's r over rated responses"


def _grade(items: Iterable[Item]) -> Iterator[GradedItem]:
    """Pairs as they come; each rated row, and after the second one of a prompt the pair that they are."""
    first: Item | None = None
    for item in items:
        if "response_1" in {*item.rewards, *item.missing}:
            yield _labelled_pair(item)
            continue
        yield _rated(item)
        if first is None or item.prompt is None or item.prompt != first.prompt:
            first = item
        else:
            yield _pair_of_rows(first, item)
            first = None


def _labelled_pair(item: Item) -> GradedItem:
    subset = _TRAIN if item.fields.get("split") == "train" else _PAIRS
    try:
        strength = number(item, "preference_strength")
        rewards = reward(item, "response_1"), reward(item, "response_2")
    except Ungraded as ungraded:
        return GradedItem((item,), subset, item.rewards, None, reason=str(ungraded))
    return _pair((item,), subset, item.rewards, rewards, strength)


def _pair_of_rows(first: Item, second: Item) -> GradedItem:
    rows = (first, second)
    named = {f"{side}.{name}": value for side, item in (("1", first), ("2", second)) for name, value in item.rewards.items()}
    try:
        rewards = reward(first, ONLY_RESPONSE), reward(second, ONLY_RESPONSE)
        strength = number(second, "helpfulness") - number(first, "helpfulness")
    except Ungraded as ungraded:
        return GradedItem(rows, _PAIRS, named, None, reason=str(ungraded))
    return _pair(rows, _PAIRS, named, rewards, strength)


def _pair(
    rows: tuple[Item, ...], subset: str, named: Mapping[str, float], rewards: tuple[float, float], strength: float
) -> GradedItem:
    """A pair of which people preferred the second response by `strength`, or the first if it is below 0."""
    if not strength:
        return GradedItem(rows, _NEITHER, named, (math.nan, *_NO_RATING))
    difference = rewards[1] - rewards[0]
    return GradedItem(rows, subset, named, (float(difference * strength > 0), *_NO_RATING), difference == 0)


def _rated(item: Item) -> GradedItem:
    try:
        value = reward(item, ONLY_RESPONSE)
        labels = {name: number(item, name) for name in _ATTRIBUTES}
    except Ungraded as ungraded:
        return GradedItem((item,), _RATED, item.rewards, None, reason=str(ungraded))
    outputs = item.scores.get(ONLY_RESPONSE, {})
    moments = [_moments(outputs.get(name, math.nan), labels[name]) for name in _ATTRIBUTES]
    cells = [*_moments(value, labels["helpfulness"]), *(moment for of_one in moments for moment in of_one)]
    return GradedItem((item,), _RATED, item.rewards, (math.nan, *cells))


def _moments(x: float, y: float) -> tuple[float, ...]:
    """`_MOMENTS` of a value of the model and a label; NaN all of them if the model doesn't have the value."""
    return (math.nan,) * len(_MOMENTS) if math.isnan(x) else (x, y, x * x, y * y, x * y)


def _measures(means: MeanCells) -> list[Measure]:
    accuracies = [
        Measure(name, means.by_subset[subset][..., 0], means.counts[subset], _STRICT)
        for name, subset in (("accuracy", _PAIRS), ("accuracy (train)", _TRAIN))
        if subset in means.by_subset
    ]
    return [
        *accuracies,
        *(_correlations(means.by_subset[_RATED], means.counts[_RATED]) if _RATED in means.by_subset else []),
    ]


def _correlations(cells: Array, n: int) -> list[Measure]:
    """The correlations of the attributes that the model gives, and that of its reward first."""
    moments = np.moveaxis(cells[..., 1:].reshape(*cells.shape[:-1], -1, len(_MOMENTS)), -2, 0)
    named = zip((f"{_REWARD}, helpfulness", *_ATTRIBUTES), moments, strict=True)
    return [
        Measure(f"r of {name}", pearson(of_name), n, _PEARSON, 0.0, is_share=False)
        for name, of_name in named
        if not np.isnan(of_name).all()
    ]


def pearson(moments: Array) -> Array:
    """Pearson's r of mean `_MOMENTS`, the last axis; NaN where either side is constant."""
    x, y, xx, yy, xy = (moments[..., at] for at in range(len(_MOMENTS)))
    spread = _variance(x, xx) * _variance(y, yy)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(spread > 0, (xy - x * y) / np.sqrt(spread), math.nan))


def _variance(mean: Array, square: Array) -> Array:
    """0 where the difference is what rounding leaves of a constant: of a million items up to 1e-13 of the mean square."""
    variance = square - mean * mean
    return np.asarray(np.where(variance > 1e-12 * square, variance, 0.0))


BENCHMARK = Benchmark(
    "helpsteer2",
    "HelpSteer and HelpSteer2: preferences and ratings of attributes",
    "arXiv 2406.08673, arXiv 2410.01257; nvidia/HelpSteer2",
    ("helpsteer2",),
    ("preference_strength", "split", *_ATTRIBUTES),
    (),
    ("prefers", *(f"{name}_{moment}" for name in (_REWARD, *_ATTRIBUTES) for moment in _MOMENTS)),
    _grade,
    _measures,
)
