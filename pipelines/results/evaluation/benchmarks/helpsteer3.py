"""HelpSteer3: do rewards prefer what people preferred, are good edits better than bad ones, and are principles fulfilled?

`overall_preference` is below 0 where people preferred `response1`, above 0 where they preferred `response2`; at 0 they
preferred neither, and the pair is counted as `no preference`. Of a row of `edit_quality`, the good edit should have the
greater reward. A tie is wrong. The accuracy is over all pairs with a preference, and there is one for each domain.

Of a row of `principle`, the reward should be above 0 exactly where its `fulfilment` is "Yes". That is for models whose
reward has its sign as the verdict, and no figure for others.

Source: arXiv 2505.11475 (preferences), arXiv 2503.04378 (edits), arXiv 2509.21319 (principles); nvidia/HelpSteer3.
"""

from pipelines.data.formats import ONLY_RESPONSE
from pipelines.results.evaluation.benchmark import (
    Benchmark,
    Grade,
    Item,
    MeanCells,
    Measure,
    Ungraded,
    grade_each,
    grade_preference,
    number,
    reward,
)

_NEITHER, _EDITS, _PRINCIPLES = "no preference", "edits", "principles"
_PREFERENCES = "preferences, "
_GOOD, _BAD = "good_edited_response", "bad_edited_response"
_STRICT = "a tie is wrong"


def _subset(item: Item) -> str:
    if item.fields.get("overall_preference") == 0:
        return _NEITHER
    if _GOOD in item.names:
        return _EDITS
    return _PRINCIPLES if ONLY_RESPONSE in item.names else f"{_PREFERENCES}{item.fields.get('domain')}"


def _grade(item: Item) -> Grade:
    subset = _subset(item)
    if subset == _PRINCIPLES:
        return Grade((_fulfilled(item),))
    if subset == _EDITS:
        return grade_preference(reward(item, _GOOD) - reward(item, _BAD), 1)
    preference = number(item, "overall_preference")
    return grade_preference(reward(item, "response2") - reward(item, "response1"), preference)


def _fulfilled(item: Item) -> float:
    label = item.fields.get("fulfilment")
    if label not in ("Yes", "No"):
        raise Ungraded(f"the fulfilment {label!r} is neither Yes nor No")
    # A reward of 0 is no Yes: only what is above 0 says that the principle is fulfilled.
    return float((reward(item, ONLY_RESPONSE) > 0) == (label == "Yes"))


def _measures(means: MeanCells) -> list[Measure]:
    domains = sorted(means.present(_PREFERENCES))
    by_domain = [
        measure._replace(name=measure.name.removeprefix(_PREFERENCES)) for measure in means.each(domains, 0, _STRICT)
    ]
    figures = [
        *by_domain,
        *means.each(means.present(_EDITS), 0, _STRICT),
        *means.each(means.present(_PRINCIPLES), 0, "the reward's sign is the verdict"),
    ]
    if not domains:
        return figures
    # Edits and principles are other questions, and have figures of their own.
    over_all = f"over all pairs; {_STRICT}"
    return [Measure("accuracy", means.pooled(domains)[..., 0], means.items(domains), over_all), *figures]


BENCHMARK = Benchmark(
    name="helpsteer3",
    title="HelpSteer3: preferences by domain, edits, and principles",
    source="arXiv 2505.11475, arXiv 2503.04378, arXiv 2509.21319; nvidia/HelpSteer3",
    shapes=("helpsteer3",),
    fields=("overall_preference", "domain", "fulfilment"),
    cells=("correct",),
    grade=grade_each(_subset, _grade),
    measures=_measures,
)
