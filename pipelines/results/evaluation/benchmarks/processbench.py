"""ProcessBench: which step of a solution is the first wrong one, if any?

For models that judge steps. The first step whose reward is below 0.5 is called the first wrong one; if there is none, the
solution is called right. A subset's figure is the harmonic mean of two accuracies: over the solutions with a wrong step, of
which the first one must be found, and over the right ones. The score is the mean of the four subsets. A model that calls
everything right, or everything wrong, gets 0.

The rows have a field `steps`, as has a scored corpus of such a model: `assay score` needs a `prefix` for them.

Source: arXiv 2412.06559; QwenLM/ProcessBench. The subset is the beginning of a row's `id` ("gsm8k-12").
"""

import math

import numpy as np

from pipelines.data.formats import ONLY_RESPONSE
from pipelines.results.evaluation.benchmark import (
    ALL,
    Array,
    Benchmark,
    Grade,
    Item,
    MeanCells,
    Measure,
    Ungraded,
    grade_each,
    integer,
    mean_of_all,
    reward,
)

_SUBSETS = {"gsm8k": 400, "math": 1000, "olympiadbench": 1000, "omnimath": 1000}
_RIGHT = -1  # the label of a solution without a wrong step
_THRESHOLD = 0.5  # rewards of steps are probabilities of being right
_F1 = "F1 of both accuracies"


def _subset(item: Item) -> str:
    name = str(item.fields.get("id") or "").rpartition("-")[0]
    return name or ALL


def _grade(item: Item) -> Grade:
    # For its error: a response without a reward has no steps either, and its reason says more than "no steps".
    reward(item, ONLY_RESPONSE)
    label, steps = integer(item.fields.get("label")), item.steps.get(ONLY_RESPONSE, ())
    if not steps:
        raise Ungraded("the model gives no rewards of steps")
    if label is None or not _RIGHT <= label < len(steps):
        raise Ungraded(f"the label {item.fields.get('label')!r} is no step of {len(steps)}")
    first_wrong = next((position for position, value in enumerate(steps) if value < _THRESHOLD), _RIGHT)
    hit = float(first_wrong == label)
    # NaN keeps a solution out of the accuracy of the other kind.
    return Grade((hit, math.nan, hit) if label == _RIGHT else (hit, hit, math.nan))


def _measures(means: MeanCells) -> list[Measure]:
    names = means.subsets(_SUBSETS)
    scores = {name: f1(means.by_subset[name][..., 1], means.by_subset[name][..., 2]) for name in names}
    return [
        *mean_of_all("score", scores, _SUBSETS, means.items(_SUBSETS), f"mean of the subsets' {_F1}", chance=None),
        *(Measure(name, value, means.counts[name], _F1, None) for name, value in scores.items()),
        *(accuracy for name in names for accuracy in _accuracies(means, name)),
    ]


def _accuracies(means: MeanCells, subset: str) -> list[Measure]:
    return [
        *means.each([subset], 1, "solutions with a wrong step", None, suffix=", erroneous"),
        *means.each([subset], 2, "solutions without a wrong step", None, suffix=", correct"),
    ]


def f1(erroneous: Array, correct: Array) -> Array:
    """The harmonic mean of two accuracies; 0 if both are, NaN without items of either kind.

    From 0 to 1: a model that calls everything right has 0, whatever share of the solutions is right.
    """
    total = erroneous + correct
    return np.asarray(np.where(total == 0, 0.0, 2 * erroneous * correct / np.where(total == 0, 1.0, total)))


BENCHMARK = Benchmark(
    name="processbench",
    title="ProcessBench: the first wrong step of a solution",
    source="arXiv 2412.06559; QwenLM/ProcessBench",
    shapes=("processbench",),
    fields=("id", "label"),
    cells=("hit", "erroneous", "correct"),
    grade=grade_each(_subset, _grade),
    measures=_measures,
    expected=_SUBSETS,
    required=tuple(_SUBSETS),
    prefix="assay_",  # the rows have a field `steps`
)
