"""LLMBar: which of two outputs follows the instruction? Ties count half on average, and not at all for `both`.

Source: arXiv 2310.07641; princeton-nlp/LLMBar, which asks in both orders: rewards that don't depend on the order give the
average with half a credit for ties, and `both` without.
"""

from pipelines.evaluation.benchmark import ALL, Benchmark, Item, MeanCells, Measure, Ungraded, grade_each, integer, reward


def _subset(item: Item) -> str:
    return str(item.fields.get("subset") or ALL)


def _grade(item: Item) -> tuple[tuple[float, ...], bool]:
    label = integer(item.fields.get("label"))
    if label not in (1, 2):
        raise Ungraded(f"the label {item.fields.get('label')!r} is neither 1 nor 2")
    right, wrong = reward(item, f"output_{label}"), reward(item, f"output_{3 - label}")
    return (float(right > wrong) + 0.5 * float(right == wrong), float(right > wrong)), right == wrong


def _measures(means: MeanCells) -> list[Measure]:
    all_subsets = sorted(means.by_subset)
    pooled, n = means.pooled(all_subsets), means.items(all_subsets)
    average, strict = "average of both orders: a tie counts half", "right in both orders: a tie is wrong"
    subsets = [Measure(name, means.by_subset[name][..., 0], means.counts[name], average) for name in all_subsets]
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
    ("average", "both"),
    grade_each(_subset, _grade),
    _measures,
)
