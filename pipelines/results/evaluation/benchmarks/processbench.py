"""ProcessBench: which step of a solution is the first wrong one, if any?

For models that judge steps. The first step whose reward is below 0.5 is called the first wrong one; if there is none, the
solution is called right. A subset's figure is the harmonic mean of two accuracies: over the solutions with a wrong step, of
which the first one must be found, and over the right ones. The score is the mean of the four subsets. A model that calls
everything right, or everything wrong, gets 0.

The rows have a field `steps`, as has a scored corpus of such a model: `assay score` needs a `prefix` for them.

Source: arXiv 2412.06559; QwenLM/ProcessBench. The subset is the beginning of a row's `id` ("gsm8k-12").
"""

import math
from collections.abc import Mapping

import numpy as np

from pipelines.data.formats import ONLY_RESPONSE
from pipelines.results.evaluation.benchmark import (
    ALL,
    Array,
    Benchmark,
    Item,
    MeanCells,
    Measure,
    Ungraded,
    grade_each,
    integer,
    mean,
    reward,
)

_SUBSETS = {"gsm8k": 400, "math": 1000, "olympiadbench": 1000, "omnimath": 1000}
_RIGHT = -1
"""The label of a solution without a wrong step."""
_THRESHOLD = 0.5
_NO_CELL = math.nan
_F1, _ERRONEOUS, _CORRECT = "F1 of both accuracies", "solutions with a wrong step", "solutions without a wrong step"


def _subset(item: Item) -> str:
    name = str(item.fields.get("id") or "").rpartition("-")[0]
    return name or ALL


def _grade(item: Item) -> tuple[tuple[float, ...], bool]:
    reward(item, ONLY_RESPONSE)
    label, steps = integer(item.fields.get("label")), item.steps.get(ONLY_RESPONSE, ())
    if not steps:
        raise Ungraded("the model gives no rewards of steps")
    if label is None or not _RIGHT <= label < len(steps):
        raise Ungraded(f"the label {item.fields.get('label')!r} is no step of {len(steps)}")
    first_wrong = next((at for at, value in enumerate(steps) if value < _THRESHOLD), _RIGHT)
    hit = float(first_wrong == label)
    return (hit, _NO_CELL, hit) if label == _RIGHT else (hit, hit, _NO_CELL), False


def _measures(means: MeanCells) -> list[Measure]:
    subsets = [*(name for name in _SUBSETS if name in means.by_subset), *sorted(means.by_subset.keys() - {*_SUBSETS})]
    scores = {name: f1(means.by_subset[name][..., 1], means.by_subset[name][..., 2]) for name in subsets}
    is_complete = scores.keys() >= {*_SUBSETS}  # a mean of other subsets would be another number under the same name
    accuracies = [
        Measure(f"{name}, {kind}", means.by_subset[name][..., cell], means.count(name, cell), convention, None)
        for name in subsets
        for cell, kind, convention in ((1, "erroneous", _ERRONEOUS), (2, "correct", _CORRECT))
    ]
    return [
        *([_score(scores, means)] if is_complete else []),
        *(Measure(name, value, means.counts[name], _F1, None) for name, value in scores.items()),
        *accuracies,
    ]


def _score(scores: Mapping[str, Array], means: MeanCells) -> Measure:
    value = mean([scores[name] for name in _SUBSETS])
    return Measure("score", value, means.items(_SUBSETS), f"mean of the subsets' {_F1}", None)


def f1(erroneous: Array, correct: Array) -> Array:
    """The harmonic mean of two accuracies; 0 if both are, NaN without items of either kind."""
    total = erroneous + correct
    return np.asarray(np.where(total == 0, 0.0, 2 * erroneous * correct / np.where(total == 0, 1.0, total)))


BENCHMARK = Benchmark(
    "processbench",
    "ProcessBench: the first wrong step of a solution",
    "arXiv 2412.06559; QwenLM/ProcessBench",
    ("processbench",),
    ("id", "label"),
    (),
    ("hit", "erroneous", "correct"),
    grade_each(_subset, _grade),
    _measures,
    _SUBSETS,
    tuple(_SUBSETS),
    prefix="assay_",  # the rows have a field `steps`
)
