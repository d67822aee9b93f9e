"""LLMBar: which of two outputs follows the instruction? Ties count half on average, and not at all for `both`.

Source: arXiv 2310.07641; princeton-nlp/LLMBar, which asks in both orders: rewards that don't depend on the order give the
average with half a credit for ties, and `both` without. Of a judge that was asked in one order alone, that order counts.
"""

import math

from pipelines.results.evaluation.benchmark import (
    ALL,
    Benchmark,
    Item,
    MeanCells,
    Measure,
    Ungraded,
    grade_labelled,
    integer,
    labelled,
)


def _subset(item: Item) -> str:
    return str(item.fields.get("subset") or ALL)


def _grade(item: Item) -> tuple[tuple[float, ...], bool, float]:
    label = integer(item.fields.get("label"))
    if label not in (1, 2):
        raise Ungraded(f"the label {item.fields.get('label')!r} is neither 1 nor 2")
    games, margin = pair = labelled(item, f"output_{label}", f"output_{3 - label}")
    credits_of_games = [float(lead > 0) + 0.5 * float(lead == 0) for lead in games]
    pair_credits = (sum(credits_of_games) / 2, float(min(games) > 0)) if len(games) == 2 else (math.nan, math.nan)
    return (*pair_credits, credits_of_games[0]), pair.tied, margin


def _measures(means: MeanCells) -> list[Measure]:
    all_subsets = sorted(means.by_subset)
    pooled, n = means.pooled(all_subsets), means.items(all_subsets)
    average, strict = "average of both orders: a tie counts half", "right in both orders: a tie is wrong"
    if means.is_lacking(0):  # a judge that was asked in one order
        in_one = "the first order: a tie counts half"
        by_subset = [
            Measure(f"{name}, one order", means.by_subset[name][..., 2], means.counts[name], in_one) for name in all_subsets
        ]
        return [Measure("one order", pooled[..., 2], n, in_one), *(by_subset if all_subsets != [ALL] else [])]
    subsets = [Measure(name, means.by_subset[name][..., 0], means.count(name, 0), average) for name in all_subsets]
    return [
        Measure("average", pooled[..., 0], n, average),
        Measure("both", pooled[..., 1], n, strict),
        *(subsets if all_subsets != [ALL] else []),
    ]


BENCHMARK = Benchmark(
    "llmbar",
    "LLMBar: two outputs to an instruction, one of which follows it",
    "arXiv 2310.07641; princeton-nlp/LLMBar",
    ("llmbar",),
    ("label", "subset"),
    ("label",),
    ("average", "both", "one_order"),
    grade_labelled(_subset, _grade),
    _measures,
)
