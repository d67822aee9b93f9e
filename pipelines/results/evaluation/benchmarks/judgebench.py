"""JudgeBench: which of two responses to a hard question is right?

Two games, with the responses in both orders; a pair is right if its games are for the labelled response more often than
against it: one won and one tied is right, one won and one lost isn't, however far. A reward head gives both orders the same
rewards, so a tie is never right; in a single game its authors' code reads its tie as "B>A", and a judge's as a tie, which is
wrong. A judge that was asked in one order alone has a single game. The overall figure is over all pairs, not the mean of the
categories.

Source: arXiv 2410.12784; ScalerLab/JudgeBench, utils/metrics.py.
"""

import math
from collections.abc import Mapping

import numpy as np

from pipelines.results.evaluation.benchmark import (
    Array,
    Benchmark,
    Item,
    MeanCells,
    Measure,
    Ungraded,
    grade_labelled,
    labelled,
    mean,
)

_CATEGORIES = {
    "knowledge": "mmlu-pro",
    "reasoning": "livebench-reasoning",
    "math": "livebench-math",
    "coding": "livecodebench",
}
_SPLITS = {"gpt": (154, 98, 56, 42), "claude": (154, 51, 34, 31)}
"""Pairs of each category, by whose responses they are: tables are mostly of `gpt`, those of GPT-4o."""
_TWO_GAMES, _ONE_GAME = "two games: a tie is wrong", "single game: a tie is read as B>A"
_JUDGES_GAME = "single game, the first order: a tie is wrong"
_SINGLE = " (single game)"
_LABELS = {"A>B": ("A", "B"), "B>A": ("B", "A")}
"""The right and the wrong response by the label."""


def _subset(item: Item) -> str:
    source = str(item.fields.get("source"))
    return next((name for name, prefix in _CATEGORIES.items() if source.startswith(prefix)), f"source {source}")


def _grade(item: Item) -> tuple[tuple[float, ...], bool, float]:
    label = item.fields.get("label")
    if label not in _LABELS:
        raise Ungraded(f"the label {label!r} is neither A>B nor B>A")
    right, wrong = _LABELS[label]
    games, margin = pair = labelled(item, right, wrong)
    counter = sum((lead > 0) - (lead < 0) for lead in games)
    is_read_as_right = games[0] == 0 and right == "B" and not item.votes
    single = games[0] > 0 or is_read_as_right
    return (float(counter > 0) if len(games) > 1 else math.nan, float(single)), pair.tied, margin


def _measures(means: MeanCells) -> list[Measure]:
    all_subsets = list(means.by_subset)
    pooled, n = means.pooled(all_subsets), means.items(all_subsets)
    names = [
        *(name for name in _CATEGORIES if name in means.by_subset),
        *sorted(means.by_subset.keys() - _CATEGORIES.keys()),
    ]
    single_game = Measure(f"overall{_SINGLE}", np.asarray(pooled[..., 1]), n, _JUDGES_GAME if means.judged else _ONE_GAME)
    if means.is_lacking(0):  # a judge that was asked in one order
        of_categories = [
            Measure(f"{name}{_SINGLE}", means.by_subset[name][..., 1], means.counts[name], _JUDGES_GAME) for name in names
        ]
        return [single_game, *of_categories]
    categories = {name: means.by_subset[name][..., 0] for name in names}
    return [
        Measure("overall", pooled[..., 0], n, _TWO_GAMES),
        *(Measure(name, value, means.count(name, 0), _TWO_GAMES) for name, value in categories.items()),
        *_macro(categories, means),
        single_game,
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
    grade_labelled(_subset, _grade),
    _measures,
    {},
    tuple(_CATEGORIES),
    {name: dict(zip(_CATEGORIES, counts, strict=True)) for name, counts in _SPLITS.items()},
)
