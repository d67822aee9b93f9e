"""Whether the reward is of something else than quality: its rank correlation with length, form, script and turns."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.html_report.features import MEASURES, Features
from pipelines.html_report.responses import Place, Responses
from pipelines.run_folder.columns import REWARD

STRONG, ENOUGH = 0.3, 100
"""A correlation is warned of from this absolute value on, and from so many responses on."""
AHEAD, ENOUGH_WITH = 0.75, 30
"""And what few responses have, if they are ahead of the others in this share of pairs, and there are so many of both.

A correlation doesn't tell: of a feature that 2 % have it is at most 0.24. The share of 30 by chance is 0.5 with a standard
error of 0.05. Only being ahead is warned of: a good reward has refusals behind.
"""
_ADVICE = (
    "Training or filtering by this reward may select for that instead of quality; look at examples of both kinds, or "
    "compare responses of like kind."
)
_POINTS, _MOST_SCRIPTS = 2_000, 12


class _Measure(NamedTuple):
    label: str
    more: str
    less: str
    some: str | None = None
    """Responses that have it at all; None for what all have."""


_LABELS = {
    "characters": _Measure("length, in characters", "Longer responses", "Shorter responses"),
    "markdown": _Measure("Markdown: headings, bold, tables", "Responses with more Markdown", "Responses with less Markdown",
                         "Responses with Markdown"),
    "list_items": _Measure("list items", "Responses with more list items", "Responses with fewer list items",
                           "Responses with list items"),
    "code": _Measure("code: fences and spans", "Responses with more code", "Responses with less code",
                     "Responses with code"),
    "refusal": _Measure("refusal, by English phrases", "Refusals", "Responses that aren't refusals", "Refusals"),
    "turns": _Measure("turns before the response", "Responses after more turns", "Responses after fewer turns"),
    "other_script": _Measure("script other than Latin", "Responses not in Latin script", "Responses in Latin script",
                             "Responses not in Latin script"),
}  # fmt: skip


def correlations(responses: Responses) -> dict[str, Any]:
    """Spearman's correlation of the reward with each feature over the sample, warnings, points to draw, and scripts."""
    rewards, measured = _scored_sample(responses)
    rows = [_row(name, rewards, np.array([getattr(response, name) for response in measured])) for name in MEASURES]
    return {
        "count": len(rewards),
        "rows": rows,
        "warnings": [row["warning"] for row in rows if row["warning"]],
        "limit": STRONG,
        "enough": ENOUGH,
        "ahead": AHEAD,
        "enough_with": ENOUGH_WITH,
        "points": {
            "reward": rewards[:_POINTS].tolist(),
            **{name: [getattr(response, name) for response in measured[:_POINTS]] for name in MEASURES},
        },
        "scripts": _scripts(rewards, measured),
    }


def spearman(first: NDArray[Any], second: NDArray[Any]) -> float | None:
    """Spearman's rank correlation, equal values sharing their mean rank; None if either has a single value."""
    ranks = _ranks(first), _ranks(second)
    if min(len(first), *(np.ptp(rank) if len(rank) else 0 for rank in ranks)) == 0:
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (counts.cumsum() - (counts - 1) / 2)[places]
    return ranks


def _scored_sample(responses: Responses) -> tuple[NDArray[np.float64], list[Features]]:
    rewards = {place: row[responses.columns.prefix + REWARD] for place, row in responses.rows(responses.sampled).items()}
    pairs: list[tuple[Place, Features]] = [
        (place, measured)
        for place in responses.sampled
        if rewards[place] is not None and (measured := responses.texts[place].features) is not None
    ]
    return np.array([rewards[place] for place, _ in pairs], dtype=np.float64), [measured for _, measured in pairs]


def _row(name: str, rewards: NDArray[np.float64], values: NDArray[Any]) -> dict[str, Any]:
    rho = spearman(rewards, values) if len(rewards) else None
    what = _correlated(name, rewards, rho) or _ahead(name, rewards, values)
    return {
        "name": name,
        "label": _LABELS[name].label,
        "rho": rho,
        "mean": float(values.mean()) if len(values) else None,
        "warning": what and f"{what}. {_ADVICE}",
    }


def _correlated(name: str, rewards: NDArray[np.float64], rho: float | None) -> str | None:
    if rho is None or abs(rho) < STRONG or len(rewards) < ENOUGH:
        return None
    measure = _LABELS[name]
    return (
        f"{measure.more if rho > 0 else measure.less} have higher rewards: Spearman's correlation is {rho:+.2f} over "
        f"{len(rewards):,} responses"
    )


def _ahead(name: str, rewards: NDArray[np.float64], values: NDArray[Any]) -> str | None:
    """What the responses with some of a feature are ahead of the others in, if that is worth a warning."""
    has_some = values > 0
    count, others = int(has_some.sum()), int((~has_some).sum())
    if _LABELS[name].some is None or min(count, others) < ENOUGH_WITH:
        return None
    # Mann-Whitney's U over the number of pairs; of equal rewards half a pair.
    share = float((_ranks(rewards)[has_some].mean() - (count + 1) / 2) / others)
    if share < AHEAD:
        return None
    return (
        f"{_LABELS[name].some} have higher rewards than others: in {share:.0%} of pairs, over {count:,} of them and "
        f"{others:,} others"
    )


def _scripts(rewards: NDArray[np.float64], features_of_sample: Sequence[Features]) -> list[tuple[str, int, float]]:
    """The most frequent scripts: name, responses of the sample, and mean reward."""
    by_script: defaultdict[str, list[float]] = defaultdict(list)
    for reward, features in zip(rewards, features_of_sample, strict=True):
        by_script[features.script].append(float(reward))
    ordered = sorted(by_script.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return [(script, len(values), sum(values) / len(values)) for script, values in ordered[:_MOST_SCRIPTS]]
