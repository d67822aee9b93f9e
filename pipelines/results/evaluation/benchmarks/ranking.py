"""Full rankings: are the rewards of a row's responses in the order of their ranks?

Of each row, Kendall's tau is the number of pairs of responses in the labelled order less those in the other one, divided by
the number of pairs (tau-a): two equal rewards count as neither, so that a constant reward gets 0. Tau-b divides by the
square root of all pairs times those with different rewards, as statistics packages do; it is 0 where all rewards are equal.
`best first` is the share of rows whose first response alone has the highest reward. All are means over rows.

The ranks are those of NeMo-RL's rows (`rank[0]`, the best, `rank[1]`, ...).
"""

import itertools
import math
from collections.abc import Sequence

from pipelines.results.evaluation.benchmark import (
    ALL,
    Array,
    Benchmark,
    Item,
    MeanCells,
    Measure,
    Ungraded,
    grade_each,
    ranked_names,
    reward,
)

_BEST_OF = "the first response alone has the highest reward"


def taus(rewards: Sequence[float]) -> tuple[float, float]:
    """Kendall's tau-a and tau-b of at least two rewards, whose responses are ordered from the best to the worst."""
    pairs = list(itertools.combinations(rewards, 2))
    difference = sum((better > worse) - (better < worse) for better, worse in pairs)
    untied = sum(better != worse for better, worse in pairs)
    return difference / len(pairs), difference / math.sqrt(len(pairs) * untied) if untied else 0.0


def _subset(item: Item) -> str:
    return str(item.fields.get("subset") or ALL)


def _grade(item: Item) -> tuple[tuple[float, ...], bool]:
    names = ranked_names(item)
    if not names:
        raise Ungraded("the row doesn't rank two responses or more")
    rewards = [reward(item, name) for name in names]
    is_tied = len(set(rewards)) < len(rewards)
    return (*taus(rewards), float(rewards[0] > max(rewards[1:]))), is_tied


def _measures(means: MeanCells) -> list[Measure]:
    all_subsets = sorted(means.by_subset)
    pooled, n = means.pooled(all_subsets), means.items(all_subsets)
    subsets = [_tau(name, means.by_subset[name], means.counts[name]) for name in all_subsets if all_subsets != [ALL]]
    return [
        _tau("tau", pooled, n),
        Measure("tau-b", pooled[..., 1], n, "Kendall's tau-b: without pairs of equal rewards", 0.0, is_share=False),
        Measure("best first", pooled[..., 2], n, _BEST_OF, None),
        *subsets,
    ]


def _tau(name: str, cells: Array, n: int) -> Measure:
    return Measure(name, cells[..., 0], n, "Kendall's tau-a: equal rewards count as neither", 0.0, is_share=False)


BENCHMARK = Benchmark(
    "ranking",
    "rows that rank their responses: Kendall's tau",
    "M. G. Kendall, A new measure of rank correlation, Biometrika 30 (1938)",
    ("nemo-rl",),
    ("subset",),
    (),
    ("tau", "tau_b", "best_first"),
    grade_each(_subset, _grade),
    _measures,
)
