"""The figures of an evaluation, benchmark by benchmark, its models side by side."""

from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any

from pipelines.evaluation.results import MADE_UP
from pipelines.evaluation.saved_results import SavedEvaluation
from pipelines.html_report.shown_text import show

_CHARACTERS = 200
_ACCURACY = {"value": "accuracy", "low": "accuracy_low", "high": "accuracy_high"}


def evaluation(saved: Sequence[SavedEvaluation], differences: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """For each benchmark its models, and for each measure a figure of every model; None where a model lacks it.

    And with them accuracy by margin, and the `differences` of each two models as `read_differences` has them.
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
        "margins": _margins(evaluations),
        "differences": _differences(differences),
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
