"""JudgeBench: which of two responses to a hard question is right?

Two games, with the responses in both orders; a pair is right if its games are for the labelled response more often than
against it. A reward head gives both orders the same rewards, so a tie is never right; in a single game its authors' code
reads a tie as "B>A". The overall figure is over all pairs, not the mean of the categories.

Source: arXiv 2410.12784; ScalerLab/JudgeBench, utils/metrics.py.
"""

from collections.abc import Mapping

import numpy as np

from pipelines.evaluation.benchmark import Array, Benchmark, Item, MeanCells, Measure, Ungraded, grade_each, mean, reward

_CATEGORIES = {
    "knowledge": "mmlu-pro",
    "reasoning": "livebench-reasoning",
    "math": "livebench-math",
    "coding": "livecodebench",
}
_SPLITS = {"gpt": (154, 98, 56, 42), "claude": (154, 51, 34, 31)}
"""Pairs of each category, by whose responses they are: tables are mostly of `gpt`, those of GPT-4o."""
_TWO_GAMES, _ONE_GAME = "two games: a tie is wrong", "single game: a tie is read as B>A"
_LABELS = {"A>B": 1, "B>A": -1}


def _subset(item: Item) -> str:
    source = str(item.fields.get("source"))
    return next((name for name, prefix in _CATEGORIES.items() if source.startswith(prefix)), f"source {source}")


def _grade(item: Item) -> tuple[tuple[float, ...], bool]:
    label = item.fields.get("label")
    if label not in _LABELS:
        raise Ungraded(f"the label {label!r} is neither A>B nor B>A")
    difference = reward(item, "A") - reward(item, "B")
    single = "A>B" if difference > 0 else "B>A"
    return (float(difference * _LABELS[label] > 0), float(single == label)), difference == 0


def _measures(means: MeanCells) -> list[Measure]:
    all_subsets = list(means.by_subset)
    pooled, n = means.pooled(all_subsets), means.items(all_subsets)
    names = [
        *(name for name in _CATEGORIES if name in means.by_subset),
        *sorted(means.by_subset.keys() - _CATEGORIES.keys()),
    ]
    categories = {name: means.by_subset[name][..., 0] for name in names}
    return [
        Measure("overall", pooled[..., 0], n, _TWO_GAMES),
        *(Measure(name, value, means.counts[name], _TWO_GAMES) for name, value in categories.items()),
        *_macro(categories, means),
        Measure("overall (single game)", np.asarray(pooled[..., 1]), n, _ONE_GAME),
    ]


def _macro(categories: Mapping[str, Array], means: MeanCells) -> list[Measure]:
    """The mean of the four categories; none without all of them, whose mean would be another number."""
    if not categories.keys() >= _CATEGORIES.keys():
        return []
    value = mean([categories[name] for name in _CATEGORIES])
    return [Measure("overall (macro)", value, means.items(_CATEGORIES), "mean of the categories")]


BENCHMARK = Benchmark(
    "judgebench",
    "JudgeBench: two responses to a hard question, one of them right",
    "arXiv 2410.12784; ScalerLab/JudgeBench, utils/metrics.py",
    ("judgebench",),
    ("source", "label"),
    ("source", "label"),
    ("two_games", "single_game"),
    grade_each(_subset, _grade),
    _measures,
    {},
    tuple(_CATEGORIES),
    {name: dict(zip(_CATEGORIES, counts, strict=True)) for name, counts in _SPLITS.items()},
)
