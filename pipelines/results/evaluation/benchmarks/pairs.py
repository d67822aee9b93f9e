"""Labelled preferences of any kind: is the chosen response's reward greater than the rejected one's?

With several chosen or rejected responses in a row, the share of their pairs that are in order. A tie is wrong, and counted.
With `--as pairs`, rows with ranks, too: each response against each that is ranked below it.
"""

import itertools

from pipelines.results.evaluation.benchmark import (
    ALL,
    Benchmark,
    Item,
    MeanCells,
    Measure,
    grade_each,
    ranked_names,
    reward,
    rewards_of,
)

_STRICT, _HALF = "a tie is wrong", "a tie counts half"


def _subset(item: Item) -> str:
    return str(item.fields.get("subset") or ALL)


def _grade(item: Item) -> tuple[tuple[float, ...], bool]:
    pairs = _ranked_pairs(item) or list(itertools.product(rewards_of(item, "chosen"), rewards_of(item, "rejected")))
    wins, ties = (sum(map(test, pairs)) / len(pairs) for test in (_wins, _ties))
    return (wins, wins + ties / 2), ties > 0


def _ranked_pairs(item: Item) -> list[tuple[float, float]]:
    """Each response of a ranking with each that is ranked below it; empty for other rows."""
    names = ranked_names(item)
    return list(itertools.combinations([reward(item, name) for name in names], 2)) if names else []


def _wins(pair: tuple[float, float]) -> bool:
    return pair[0] > pair[1]


def _ties(pair: tuple[float, float]) -> bool:
    return pair[0] == pair[1]


def _measures(means: MeanCells) -> list[Measure]:
    all_subsets = sorted(means.by_subset)
    pooled, n = means.pooled(all_subsets), means.items(all_subsets)
    subsets = [
        Measure(name, means.by_subset[name][..., 0], means.counts[name], _STRICT)
        for name in all_subsets
        if all_subsets != [ALL]
    ]
    return [Measure("accuracy", pooled[..., 0], n, _STRICT), *subsets, Measure("accuracy (half)", pooled[..., 1], n, _HALF)]


BENCHMARK = Benchmark(
    "pairs",
    "labelled preferences: chosen against rejected responses",
    "share of pairs whose rewards are in the labels' order",
    ("preference", "rm-bench", "nemo-preference", "sharegpt-preference", "alpaca"),
    ("subset",),
    (),
    ("in_order", "half_for_ties"),
    grade_each(_subset, _grade),
    _measures,
)
