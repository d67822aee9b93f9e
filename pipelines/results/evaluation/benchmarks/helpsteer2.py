"""HelpSteer and HelpSteer2: do rewards prefer what people preferred, and do a model's attributes follow their ratings?

Rows with `preference_strength` are pairs: below 0 people preferred `response_1`, above 0 `response_2`. Rated rows are paired
with the next one where it has the same prompt, as HelpSteer2's do, by `helpfulness`. A tie of rewards is wrong. A pair of
which people preferred neither is counted as `no preference`, and nothing can be right about it. The accuracy is over the
pairs of the validation split, or over all where rows don't name a split; those of `train` have a figure of their own.

Over the rated rows, each attribute that the model gives is correlated (Pearson's r) with people's ratings, and the reward
with their helpfulness. A rated row and the pair that it is part of are an item each.

Source: arXiv 2406.08673 (HelpSteer2) and arXiv 2410.01257 (its preferences); nvidia/HelpSteer2.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np

from pipelines.data.formats import ONLY_RESPONSE
from pipelines.results.evaluation.benchmark import (
    Array,
    Benchmark,
    Grade,
    GradedItem,
    Item,
    MeanCells,
    Measure,
    grade_preference,
    graded,
    number,
    reward,
)

_ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
_REWARD = "reward"
_RATED, _PAIRS, _TRAIN, _NEITHER = "ratings", "preferences", "preferences, train", "no preference"
_MOMENTS = ("x", "y", "xx", "yy", "xy")
# Cells of a pair: it has no moments, and NaN isn't averaged.
_NO_RATING = (math.nan,) * (len(_MOMENTS) * (len(_ATTRIBUTES) + 1))


def _grade(items: Iterable[Item]) -> Iterator[GradedItem]:
    first: Item | None = None
    for item in items:
        if "response_1" in item.names:
            subset = _TRAIN if item.fields.get("split") == "train" else _PAIRS
            yield _pair(graded((item,), subset, item.rewards, functools.partial(_labelled, item)))
            continue
        yield graded((item,), _RATED, item.rewards, functools.partial(_rated, item))
        # HelpSteer2's two responses to a prompt stand below each other. Of more, every two are a pair.
        if first is None or item.prompt is None or item.prompt != first.prompt:
            first = item
        else:
            rewards = {
                f"{index}.{name}": value for index, row in enumerate((first, item), 1) for name, value in row.rewards.items()
            }
            yield _pair(graded((first, item), _PAIRS, rewards, functools.partial(_two_rows, first, item)))
            first = None


def _pair(item: GradedItem) -> GradedItem:
    # Under `preferences` it would make the coverage smaller, though no model can be right about it.
    return item._replace(subset=_NEITHER) if item.cells and math.isnan(item.cells[0]) else item


def _labelled(item: Item) -> Grade:
    strength = number(item, "preference_strength")
    return _preferred(reward(item, "response_2") - reward(item, "response_1"), strength)


def _two_rows(first: Item, second: Item) -> Grade:
    lead = reward(second, ONLY_RESPONSE) - reward(first, ONLY_RESPONSE)
    return _preferred(lead, number(second, "helpfulness") - number(first, "helpfulness"))


def _preferred(lead: float, strength: float) -> Grade:
    grade = grade_preference(lead, strength)
    return grade._replace(cells=(*grade.cells, *_NO_RATING))


def _rated(item: Item) -> Grade:
    value = reward(item, ONLY_RESPONSE)
    labels = {name: number(item, name) for name in _ATTRIBUTES}
    outputs = item.scores.get(ONLY_RESPONSE, {})
    attributes = [_moments(outputs.get(name, math.nan), labels[name]) for name in _ATTRIBUTES]
    return Grade((math.nan, *_moments(value, labels["helpfulness"]), *itertools.chain.from_iterable(attributes)))


def _moments(x: float, y: float) -> tuple[float, ...]:
    # `_MOMENTS` of a value of the model and a label; NaN all of them if the model doesn't have the value.
    return (math.nan,) * len(_MOMENTS) if math.isnan(x) else (x, y, x * x, y * y, x * y)


def _measures(means: MeanCells) -> list[Measure]:
    pairs = {"accuracy": _PAIRS, "accuracy (train)": _TRAIN}
    accuracies = [
        Measure(name, means.by_subset[subset][..., 0], means.counts[subset], "a tie is wrong")
        for name, subset in pairs.items()
        if subset in means.by_subset
    ]
    if _RATED not in means.by_subset:
        return accuracies
    return [*accuracies, *_correlations(means.by_subset[_RATED], means.counts[_RATED])]


def _correlations(cells: Array, n: int) -> list[Measure]:
    # Cell 0 is of pairs. The others are (reward and attributes) x moments, and come out with the attribute first.
    moments = np.moveaxis(cells[..., 1:].reshape(*cells.shape[:-1], -1, len(_MOMENTS)), -2, 0)
    named = zip((f"{_REWARD}, helpfulness", *_ATTRIBUTES), moments, strict=True)
    return [
        Measure(f"r of {name}", pearson(of_name), n, "Pearson's r over rated responses", 0.0, is_share=False)
        for name, of_name in named
        if not np.isnan(of_name).all()
    ]


def pearson(moments: Array) -> Array:
    """Pearson's r of mean `_MOMENTS`, the last axis; NaN where either side is constant.

    Shape (..., 5) to (...); from -1 to 1 but for rounding.
    """
    x, y, xx, yy, xy = (moments[..., index] for index in range(len(_MOMENTS)))
    # r = (E[xy] - E[x]E[y]) / sqrt(var(x) var(y)), of means, so that resampled means give resampled correlations.
    spread = _variance(x, xx) * _variance(y, yy)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(spread > 0, (xy - x * y) / np.sqrt(spread), math.nan))


def _variance(mean: Array, square: Array) -> Array:
    # 0 where the difference is what rounding leaves of a constant: of a million items up to 1e-13 of the mean square.
    variance = square - mean * mean
    return np.asarray(np.where(variance > 1e-12 * square, variance, 0.0))


BENCHMARK = Benchmark(
    name="helpsteer2",
    title="HelpSteer and HelpSteer2: preferences and ratings of attributes",
    source="arXiv 2406.08673, arXiv 2410.01257; nvidia/HelpSteer2",
    shapes=("helpsteer2",),
    fields=("preference_strength", "split", *_ATTRIBUTES),
    cells=("prefers", *(f"{name}_{moment}" for name in (_REWARD, *_ATTRIBUTES) for moment in _MOMENTS)),
    grade=_grade,
    measures=_measures,
)
