"""Whether the reward is of something else than quality: its correlation with length, form, language and turns."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

from pipelines.folders.run_folder.columns import REWARD
from pipelines.results.comparison.shown_responses import Place
from pipelines.results.html_report.features import MEASURES, Features
from pipelines.results.html_report.languages import UNCLEAR
from pipelines.results.html_report.responses import Responses

# A correlation is warned of from this absolute value on, and from so many responses on. The standard error of 100 without
# any is 0.1, so that 0.3 comes by chance in three of a thousand features.
STRONG, ENOUGH = 0.3, 100
AHEAD, ENOUGH_WITH = 0.75, 30
"""And what few responses have, if they are ahead of the others in this share of pairs, and there are so many of both.

A correlation doesn't tell: of a feature that 2 % have it is at most 0.24. The share of 30 by chance is 0.5 with a standard
error of 0.05. Of most features only being ahead is warned of: a good reward has refusals behind. Other languages than the
main one shouldn't be behind, either.
"""
_ADVICE = (
    "Training or filtering by this reward may select for that instead of quality; look at examples of both kinds, or "
    "compare responses of like kind."
)
_POINTS, _MOST_SHOWN = 2_000, 12
_OTHER_LANGUAGE = "other_language"


class _Measure(NamedTuple):
    label: str
    more: str
    less: str
    some: str | None = None  # responses that have it at all; None for what all have
    both_ways: bool = False  # whether their being behind is warned of, too
    than: str = "others"  # those that they are ahead of or behind


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
}  # fmt: skip


def correlations(responses: Responses) -> dict[str, Any]:
    """Spearman's correlation of the reward with each feature over the sample, warnings, points and languages."""
    rewards, measured = _scored_sample(responses)
    values: dict[str, list[int | None]] = {name: [getattr(response, name) for response in measured] for name in MEASURES}
    measures = dict(_LABELS)
    if (main := _main_language(measured)) is not None:
        measures[_OTHER_LANGUAGE] = _language_measure(main)
        # An unclear text is no other language: None leaves it out of this feature alone.
        values[_OTHER_LANGUAGE] = [
            None if response.language == UNCLEAR else int(response.language != main) for response in measured
        ]
    rows = [_row(name, measures[name], rewards, values[name]) for name in values]
    warnings = [row["warning"] for row in rows if row["warning"]]
    # No correlation is defined then, and without this the page would look as if all were well.
    if len(rewards) >= ENOUGH and min(rewards) == max(rewards):
        warnings.append(
            f"All {len(rewards):,} rewards that were looked at are {rewards[0]:g}: they tell no response from another"
        )
    if main is not None and rows[-1]["warning"] is None:
        warnings += _language_warnings(rewards, [response.language for response in measured], main)
    return {
        "count": len(rewards),
        "rows": rows,
        "warnings": warnings,
        "limit": STRONG,
        "enough": ENOUGH,
        "ahead": AHEAD,
        "enough_with": ENOUGH_WITH,
        "points": {"reward": rewards[:_POINTS].tolist(), **{name: values[name][:_POINTS] for name in values}},
        "languages": _means(rewards, [response.language for response in measured]),
    }


def _main_language(features_of_sample: Sequence[Features]) -> str | None:
    counts = Counter(response.language for response in features_of_sample if response.language != UNCLEAR)
    # Of equally frequent ones the first by its code, so that warnings don't depend on the order of the sample.
    return min(counts, key=lambda language: (-counts[language], language), default=None)


def _language_measure(main: str) -> _Measure:
    measured, comparison = f'Responses in other languages than "{main}"', f'those in "{main}"'
    return _Measure(
        f'language other than "{main}"', measured, f'Responses in "{main}"', measured, both_ways=True, than=comparison
    )


def _language_warnings(rewards: NDArray[np.float64], languages: Sequence[str], main: str) -> list[str]:
    spoken = np.array(languages)
    # Among all other languages a single one that is ahead, or behind, may not be seen.
    whats = []
    for language in sorted(set(languages) - {main, UNCLEAR}):
        either = (spoken == main) | (spoken == language)
        measure = _language_measure(main)._replace(some=f'Responses in "{language}"')
        whats.append(_ahead(measure, rewards[either], spoken[either] == language))
    return [f"{what}. {_ADVICE}" for what in whats if what]


def spearman(first: NDArray[Any], second: NDArray[Any]) -> float | None:
    """Spearman's rank correlation, equal values sharing their mean rank; None if either has a single value."""
    if min(len(np.unique(first)), len(np.unique(second))) < 2:
        return None
    return float(spearmanr(first, second).statistic)


def _scored_sample(responses: Responses) -> tuple[NDArray[np.float64], list[Features]]:
    rewards = {place: row[responses.columns.prefix + REWARD] for place, row in responses.rows(responses.sampled).items()}
    pairs: list[tuple[Place, Features]] = [
        (place, measured)
        for place in responses.sampled
        if rewards[place] is not None and (measured := responses.texts[place].features) is not None
    ]
    return np.array([rewards[place] for place, _ in pairs], dtype=np.float64), [measured for _, measured in pairs]


def _row(name: str, measure: _Measure, all_rewards: NDArray[np.float64], all_values: Sequence[int | None]) -> dict[str, Any]:
    has_value = np.array([value is not None for value in all_values], dtype=bool)
    rewards, values = all_rewards[has_value], np.array([value for value in all_values if value is not None])
    rho = spearman(rewards, values)
    # One warning a feature: a correlation says more than that some are ahead.
    what = _correlated(measure, rewards, rho) or _ahead(measure, rewards, values)
    return {
        "name": name,
        "label": measure.label,
        "rho": rho,
        "mean": float(values.mean()) if len(values) else None,
        "warning": what and f"{what}. {_ADVICE}",
    }


def _correlated(measure: _Measure, rewards: NDArray[np.float64], rho: float | None) -> str | None:
    if rho is None or abs(rho) < STRONG or len(rewards) < ENOUGH:
        return None
    return (
        f"{measure.more if rho > 0 else measure.less} have higher rewards: Spearman's correlation is {rho:+.2f} over "
        f"{len(rewards):,} responses"
    )


def _ahead(measure: _Measure, rewards: NDArray[np.float64], values: NDArray[Any]) -> str | None:
    has_some = values > 0
    count, without = int(has_some.sum()), int((~has_some).sum())
    if measure.some is None or min(count, without) < ENOUGH_WITH:
        return None
    # Mann-Whitney's U over the number of pairs; of equal rewards half a pair.
    share = float((rankdata(rewards)[has_some].mean() - (count + 1) / 2) / without)
    is_behind = measure.both_ways and 1 - share >= AHEAD
    if share < AHEAD and not is_behind:
        return None
    return (
        f"{measure.some} have {'lower' if is_behind else 'higher'} rewards than {measure.than}: in "
        f"{1 - share if is_behind else share:.0%} of pairs, over {count:,} of them and {without:,} others"
    )


def _means(rewards: NDArray[np.float64], kinds: Sequence[str]) -> list[tuple[str, int, float]]:
    # The most frequent kinds of responses: name, responses of the sample, and mean reward.
    by_kind: defaultdict[str, list[float]] = defaultdict(list)
    for reward, kind in zip(rewards, kinds, strict=True):
        by_kind[kind].append(float(reward))
    ordered = sorted(by_kind.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return [(kind, len(values), sum(values) / len(values)) for kind, values in ordered[:_MOST_SHOWN]]
