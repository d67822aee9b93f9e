"""HelpSteer3: do rewards prefer what people preferred, are good edits better than bad ones, and are principles fulfilled?

`overall_preference` is below 0 where people preferred `response1`, above 0 where they preferred `response2`; at 0 they
preferred neither, and the pair is counted as `no preference`. Of a row of `edit_quality`, the good edit should have the
greater reward. A tie is wrong. The accuracy is over all pairs with a preference, and there is one for each domain.

Of a row of `principle`, the reward should be above 0 exactly where its `fulfilment` is "Yes". That is for models whose
reward has its sign as the verdict, and no figure for others.

Source: arXiv 2505.11475 (preferences), arXiv 2503.04378 (edits), arXiv 2509.21319 (principles); nvidia/HelpSteer3.
"""

import math

from pipelines.data.formats import ONLY_RESPONSE
from pipelines.results.evaluation.benchmark import Benchmark, Item, MeanCells, Measure, Ungraded, grade_each, number, reward

_NEITHER, _EDITS, _PRINCIPLES = "no preference", "edits", "principles"
_SIDES = ("response1", "response2")
_GOOD, _BAD = "good_edited_response", "bad_edited_response"
_STRICT, _SIGN = "a tie is wrong", "the reward's sign is the verdict"


def _subset(item: Item) -> str:
    if item.fields.get("overall_preference") == 0:
        return _NEITHER
    names = {*item.rewards, *item.missing}
    if _GOOD in names:
        return _EDITS
    return _PRINCIPLES if ONLY_RESPONSE in names else f"preferences, {item.fields.get('domain')}"


def _grade(item: Item) -> tuple[tuple[float, ...], bool]:
    subset = _subset(item)
    if subset == _PRINCIPLES:
        return (_fulfilled(item),), False
    worse, better = (reward(item, _BAD), reward(item, _GOOD)) if subset == _EDITS else _by_preference(item)
    return (math.nan if subset == _NEITHER else float(better > worse),), better == worse and subset != _NEITHER


def _by_preference(item: Item) -> tuple[float, float]:
    preference = number(item, "overall_preference")
    rewards = [reward(item, side) for side in _SIDES]
    return (rewards[0], rewards[1]) if preference >= 0 else (rewards[1], rewards[0])


def _fulfilled(item: Item) -> float:
    label = item.fields.get("fulfilment")
    if label not in ("Yes", "No"):
        raise Ungraded(f"the fulfilment {label!r} is neither Yes nor No")
    return float((reward(item, ONLY_RESPONSE) > 0) == (label == "Yes"))


def _measures(means: MeanCells) -> list[Measure]:
    domains = sorted(means.present("preferences, "))
    named = {name.partition(", ")[2]: (name, _STRICT) for name in domains}
    named |= {name: (name, convention) for name, convention in ((_EDITS, _STRICT), (_PRINCIPLES, _SIGN))}
    figures = [
        Measure(name, means.by_subset[subset][..., 0], means.counts[subset], convention)
        for name, (subset, convention) in named.items()
        if subset in means.by_subset
    ]
    if not domains:
        return figures
    over_all = f"over all pairs; {_STRICT}"
    return [Measure("accuracy", means.pooled(domains)[..., 0], means.items(domains), over_all), *figures]


BENCHMARK = Benchmark(
    "helpsteer3",
    "HelpSteer3: preferences by domain, edits, and principles",
    "arXiv 2505.11475, arXiv 2503.04378, arXiv 2509.21319; nvidia/HelpSteer3",
    ("helpsteer3",),
    ("overall_preference", "domain", "fulfilment"),
    (),
    ("correct",),
    grade_each(_subset, _grade),
    _measures,
)
