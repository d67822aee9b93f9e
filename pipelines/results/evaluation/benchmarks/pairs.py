"""Labelled preferences of any kind: is the chosen response's reward greater than the rejected one's?

With several chosen or rejected responses in a row, the share of their pairs that are in order. A tie is wrong, and counted.
With `--as pairs`, rows with ranks, too: each response against each that is ranked below it.
"""

import itertools

from pipelines.results.evaluation.benchmark import (
    Benchmark,
    Grade,
    Item,
    MeanCells,
    Measure,
    grade_each,
    margins_between,
    ranked_rewards,
    rewards_of,
    subset_in,
)

_STRICT, _HALF = "a tie is wrong", "a tie counts half"


def _grade(item: Item) -> Grade:
    ranked = ranked_rewards(item)
    if ranked:
        margins = [better - worse for better, worse in itertools.combinations(ranked, 2)]
    else:
        margins = margins_between(rewards_of(item, "chosen"), rewards_of(item, "rejected"))
    wins = sum(margin > 0 for margin in margins) / len(margins)
    ties = sum(margin == 0 for margin in margins) / len(margins)
    return Grade((wins, wins + ties / 2), ties > 0, margins)


def _measures(means: MeanCells) -> list[Measure]:
    return [
        means.overall("accuracy", 0, _STRICT),
        *means.each(means.named_subsets, 0, _STRICT),
        means.overall("accuracy (half)", 1, _HALF),
    ]


BENCHMARK = Benchmark(
    name="pairs",
    title="labelled preferences: chosen against rejected responses",
    source="share of pairs whose rewards are in the labels' order",
    shapes=("preference", "rm-bench", "nemo-preference", "sharegpt-preference", "alpaca"),
    fields=("subset",),
    cells=("in_order", "half_for_ties"),
    grade=grade_each(subset_in("subset"), _grade),
    measures=_measures,
)
