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
    Benchmark,
    Grade,
    Item,
    MeanCells,
    Measure,
    Ungraded,
    grade_each,
    ranked_rewards,
    subset_in,
)

_TAU_A = "Kendall's tau-a: equal rewards count as neither"


def taus(rewards: Sequence[float]) -> tuple[float, float]:
    """Kendall's tau-a and tau-b of at least two rewards, whose responses are ordered from the best to the worst.

    Both from -1 to 1. The rank has no ties, so that tau-b's other factor is 1.
    """
    pairs = list(itertools.combinations(rewards, 2))
    difference = sum((better > worse) - (better < worse) for better, worse in pairs)
    untied = sum(better != worse for better, worse in pairs)
    return difference / len(pairs), difference / math.sqrt(len(pairs) * untied) if untied else 0.0


def _grade(item: Item) -> Grade:
    rewards = ranked_rewards(item)
    if not rewards:
        raise Ungraded("the row doesn't rank two responses or more")
    margins = [better - worse for better, worse in itertools.combinations(rewards, 2)]
    # The best alone: with an equal one behind it, nobody could pick it by its reward.
    return Grade((*taus(rewards), float(rewards[0] > max(rewards[1:]))), 0 in margins, margins)


def _measures(means: MeanCells) -> list[Measure]:
    subsets = [measure._replace(is_share=False) for measure in means.each(means.named_subsets, 0, _TAU_A, 0.0)]
    return [
        means.overall("tau", 0, _TAU_A, 0.0, is_share=False),
        means.overall("tau-b", 1, "Kendall's tau-b: without pairs of equal rewards", 0.0, is_share=False),
        means.overall("best first", 2, "the first response alone has the highest reward", None),
        *subsets,
    ]


BENCHMARK = Benchmark(
    name="ranking",
    title="rows that rank their responses: Kendall's tau",
    source="M. G. Kendall, A new measure of rank correlation, Biometrika 30 (1938)",
    shapes=("nemo-rl",),
    fields=("subset",),
    cells=("tau", "tau_b", "best_first"),
    grade=grade_each(subset_in("subset"), _grade),
    measures=_measures,
)
