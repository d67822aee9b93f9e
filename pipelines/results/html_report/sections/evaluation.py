"""The figures of an evaluation, benchmark by benchmark, its models side by side."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any

from pipelines.results.evaluation.results import MADE_UP
from pipelines.results.evaluation.saved_results import SavedEvaluation
from pipelines.results.html_report.shown_text import show

_CHARACTERS = 200
_ACCURACY = {"value": "accuracy", "low": "accuracy_low", "high": "accuracy_high"}


def evaluation(saved: Sequence[SavedEvaluation], differences: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """For each benchmark its models, and for each measure a figure of every model; None where a model lacks it.

    With them come what is published, accuracy by margin, votes, and the `differences` and the items of each two models, as
    `read_differences` has them.
    """
    ordered = sorted(saved, key=lambda result: result.benchmark)
    return [
        _benchmark(name, list(group), [pair for pair in differences if pair["benchmark"] == name])
        for name, group in groupby(ordered, key=lambda result: result.benchmark)
    ]


def _benchmark(
    name: str, evaluations: Sequence[SavedEvaluation], differences: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    by_model = [{figure["name"]: dict(figure) for figure in result.figures} for result in evaluations]
    measures = list(dict.fromkeys(measure for figures in by_model for measure in figures))
    conventions = {measure: figures[measure]["convention"] for figures in by_model for measure in figures}
    return {
        "name": name,
        "models": [show(result.model, _CHARACTERS) for result in evaluations],
        "note": MADE_UP if any(result.is_made_up for result in evaluations) else None,
        "rows": [
            {
                "measure": show(measure, _CHARACTERS),
                "convention": conventions[measure],
                "figures": [figures.get(measure) for figures in by_model],
            }
            for measure in measures
        ],
        "published": [table for result in evaluations for table in _published(result)],
        "margins": _margins(evaluations),
        "votes": _votes(evaluations),
        "differences": _differences(differences),
        "splits": _splits(differences),
    }


def _published(result: SavedEvaluation) -> list[dict[str, Any]]:
    """The published tables that have a model: their figures beside those here, as shares, and what else differs."""
    ours = {figure["name"]: figure for figure in result.figures}
    return [
        {
            "model": show(result.model, _CHARACTERS),
            "models": ["here", "published"],
            "about": _about(table),
            "differs": table["differs"],
            "rows": [
                {
                    "measure": show(figure["name"], _CHARACTERS),
                    "figures": [ours[figure["name"]], {"value": figure["published"] / 100, "low": None, "high": None}],
                }
                for figure in table["figures"]
                if figure["name"] in ours
            ],
        }
        for table in result.published
    ]


def _about(table: Mapping[str, Any]) -> str:
    parts = (table["source"], table["date"], f"split {table['split']}", table["averaging"], table["setting"])
    return ", ".join(part for part in parts if part)


def _votes(evaluations: Sequence[SavedEvaluation]) -> dict[str, Any] | None:
    """Shares by their names, those of the voting curve first, and the points of that; None if no model voted."""
    voted = [(show(result.model, _CHARACTERS), result.votes) for result in evaluations if result.votes]
    if not voted:
        return None
    by_model = [{share["name"]: share for share in (*votes["curve"], *votes["agreement"])} for _, votes in voted]
    curves = [
        {count: share["value"] for share in votes["curve"] if (count := _count(share["name"])) is not None}
        for _, votes in voted
    ]
    counts = sorted({count for curve in curves for count in curve})
    names = [
        *(name for count in counts for shares in by_model for name in shares if _count(name) == count),
        *(share["name"] for _, votes in voted for share in votes["agreement"]),
    ]
    return {
        "models": [model for model, _ in voted],
        "counts": counts,
        "curves": [[curve.get(count) for count in counts] for curve in curves],
        "rows": [
            {"measure": show(name, _CHARACTERS), "figures": [shares.get(name) for shares in by_model]}
            for name in dict.fromkeys(names)
        ],
        "about": [{name: votes[name] for name in ("votes", "items", "left_out")} for _, votes in voted],
    }


def _count(name: str) -> int | None:
    """The number of votes of a share's name, such as 4 of "accuracy of 4 votes"; None of another share."""
    matched = re.fullmatch(r"accuracy of (\d+) votes?", name)
    return int(matched[1]) if matched else None


def _splits(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """By subset the items for which one of each two models has more credit; None if there are no two."""
    if not pairs:
        return None
    by_pair = [{split["subset"]: split for split in pair.get("splits") or ()} for pair in pairs]
    subsets = list(dict.fromkeys(subset for splits in by_pair for subset in splits))
    return {
        "pairs": [{name: show(pair[name], _CHARACTERS) for name in ("first", "second")} for pair in pairs],
        "rows": [
            {"subset": show(subset, _CHARACTERS), "splits": [splits.get(subset) for splits in by_pair]} for subset in subsets
        ],
    }


def _margins(evaluations: Sequence[SavedEvaluation]) -> dict[str, Any] | None:
    """Accuracy by the difference of the two rewards: a row for each tenth of the comparisons; None if no model has it."""
    margins = [(show(result.model, _CHARACTERS), result.margins) for result in evaluations if result.margins]
    if not margins:
        return None
    bins = [[_bin(values) for values in of_model["bins"]] for _, of_model in margins]
    return {
        "models": [model for model, _ in margins],
        "rows": [{"figures": list(figures)} for figures in zip_longest(*bins)],
        "errors": [of_model["ece"] for _, of_model in margins],
    }


def _bin(values: Mapping[str, Any]) -> dict[str, Any]:
    accuracy = {name: values[key] for name, key in _ACCURACY.items()}
    return {**accuracy, "from": values["low"], "to": values["high"], "n": values["comparisons"]}


def _differences(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Each measure of a model less that of another on the same items, for each two models; None if there are no two."""
    if not pairs:
        return None
    by_pair = [{row["name"]: row for row in pair["differences"]} for pair in pairs]
    measures = list(dict.fromkeys(measure for rows in by_pair for measure in rows))
    return {
        "models": [show(f"{pair['first']} less {pair['second']}", _CHARACTERS) for pair in pairs],
        "rows": [
            {"measure": show(measure, _CHARACTERS), "figures": [rows.get(measure) for rows in by_pair]}
            for measure in measures
        ],
    }
