"""LLMBar: which of two outputs follows the instruction? Ties count half on average, and not at all for `both`.

Source: arXiv 2310.07641; princeton-nlp/LLMBar, which asks in both orders: rewards that don't depend on the order give the
average with half a credit for ties, and `both` without. Of a judge that was asked in one order alone, that order counts.
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
    integer,
    labelled,
    subset_in,
)


def _grade(item: Item) -> Grade:
    label = integer(item.fields.get("label"))
    if label not in (1, 2):
        raise Ungraded(f"the label {item.fields.get('label')!r} is neither 1 nor 2")
    pair = labelled(item, f"output_{label}", f"output_{3 - label}")
    # A head plays the same game twice, so its tie is 0.5 in the average of both orders.
    game_credits = [float(lead > 0) + 0.5 * float(lead == 0) for lead in pair.games]
    both_orders = (math.nan, math.nan)  # a judge of one order has neither figure
    if len(game_credits) == 2:
        both_orders = (sum(game_credits) / 2, float(min(pair.games) > 0))
    return Grade((*both_orders, game_credits[0]), pair.tied, [pair.margin])


def _measures(means: MeanCells) -> list[Measure]:
    if means.is_lacking(0):  # a judge that was asked in one order
        in_one = "the first order: a tie counts half"
        return [
            means.overall("one order", 2, in_one),
            *means.each(means.named_subsets, 2, in_one, suffix=", one order"),
        ]
    average = "average of both orders: a tie counts half"
    return [
        means.overall("average", 0, average),
        means.overall("both", 1, "right in both orders: a tie is wrong"),
        *means.each(means.named_subsets, 0, average),
    ]


BENCHMARK = Benchmark(
    name="llmbar",
    title="LLMBar: two outputs to an instruction, one of which follows it",
    source="arXiv 2310.07641; princeton-nlp/LLMBar",
    shapes=("llmbar",),
    fields=("label", "subset"),
    needs=("label",),
    cells=("average", "both", "one_order"),
    counts_games=True,
    grade=grade_each(subset_in("subset"), _grade),
    measures=_measures,
)
