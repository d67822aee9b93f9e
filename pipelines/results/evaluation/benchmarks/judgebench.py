"""JudgeBench: which of two responses to a hard question is right?

Two games, with the responses in both orders; a pair is right if its games are for the labelled response more often than
against it: one won and one tied is right, one won and one lost isn't, however far. A reward head gives both orders the same
rewards, so a tie is never right; in a single game its authors' code reads its tie as "B>A", and a judge's as a tie, which is
wrong. A judge that was asked in one order alone has a single game. The overall figure is over all pairs, not the mean of the
categories.

Source: arXiv 2410.12784; ScalerLab/JudgeBench, utils/metrics.py.
"""

import math

from pipelines.results.evaluation.benchmark import (
    Benchmark,
    Grade,
    Item,
    MeanCells,
    Measure,
    Ungraded,
    grade_each,
    labelled,
    mean_of_all,
)

_CATEGORIES = {
    "knowledge": "mmlu-pro",
    "reasoning": "livebench-reasoning",
    "math": "livebench-math",
    "coding": "livecodebench",
}
# Pairs of each category, by whose responses they are: tables are mostly of `gpt`, those of GPT-4o.
_SPLITS = {"gpt": (154, 98, 56, 42), "claude": (154, 51, 34, 31)}
_TWO_GAMES, _ONE_GAME = "two games: a tie is wrong", "single game: a tie is read as B>A"
_JUDGES_GAME = "single game, the first order: a tie is wrong"
_SINGLE = " (single game)"
_LABELS = {"A>B": ("A", "B"), "B>A": ("B", "A")}  # label to the right and the wrong response


def _subset(item: Item) -> str:
    source = str(item.fields.get("source"))
    # Sources name their task behind: livebench-math is whole, mmlu-pro-law is one subject of several.
    return next((name for name, prefix in _CATEGORIES.items() if source.startswith(prefix)), f"source {source}")


def _grade(item: Item) -> Grade:
    label = item.fields.get("label")
    if label not in _LABELS:
        raise Ungraded(f"the label {label!r} is neither A>B nor B>A")
    right, wrong = _LABELS[label]
    pair = labelled(item, right, wrong)
    # utils/metrics.py: +1 for a game won, -1 for one lost; the pair is right above 0.
    counter = sum((lead > 0) - (lead < 0) for lead in pair.games)
    # Their code's single game takes a head's tie for "B>A", which is right by luck where B is.
    is_read_as_right = pair.games[0] == 0 and right == "B" and not item.votes
    single = pair.games[0] > 0 or is_read_as_right
    two_games = float(counter > 0) if len(pair.games) > 1 else math.nan
    return Grade((two_games, float(single)), pair.tied, [pair.margin])


def _measures(means: MeanCells) -> list[Measure]:
    names = means.subsets(_CATEGORIES)
    single_game = means.overall(f"overall{_SINGLE}", 1, _JUDGES_GAME if means.judged else _ONE_GAME)
    if means.is_lacking(0):  # a judge that was asked in one order
        return [single_game, *means.each(names, 1, _JUDGES_GAME, suffix=_SINGLE)]
    categories = {name: means.by_subset[name][..., 0] for name in names}
    return [
        means.overall("overall", 0, _TWO_GAMES),
        *means.each(names, 0, _TWO_GAMES),
        *mean_of_all("overall (macro)", categories, _CATEGORIES, means.items(_CATEGORIES), "mean of the categories"),
        single_game,
    ]


BENCHMARK = Benchmark(
    name="judgebench",
    title="JudgeBench: two responses to a hard question, one of them right",
    source="arXiv 2410.12784; ScalerLab/JudgeBench, utils/metrics.py",
    shapes=("judgebench",),
    fields=("source", "label"),
    needs=("source", "label"),
    cells=("two_games", "single_game"),
    counts_games=True,
    grade=grade_each(_subset, _grade),
    measures=_measures,
    required=tuple(_CATEGORIES),
    splits={name: dict(zip(_CATEGORIES, counts, strict=True)) for name, counts in _SPLITS.items()},
)
