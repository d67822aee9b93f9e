"""The figures of an evaluation, benchmark by benchmark, its models side by side."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pipelines.evaluation.results import MADE_UP
from pipelines.evaluation.saved_results import SavedEvaluation
from pipelines.html_report.shown_text import show

_CHARACTERS = 200


def evaluation(saved: Sequence[SavedEvaluation]) -> list[dict[str, Any]]:
    """For each benchmark its models, and for each measure a figure of every model; None where a model lacks it."""
    ordered = sorted(saved, key=lambda one: one.benchmark)
    return [_benchmark(name, list(group)) for name, group in groupby(ordered, key=lambda one: one.benchmark)]


def _benchmark(name: str, evaluations: Sequence[SavedEvaluation]) -> dict[str, Any]:
    by_model = [{figure["name"]: dict(figure) for figure in one.figures} for one in evaluations]
    measures = list(dict.fromkeys(measure for figures in by_model for measure in figures))
    conventions = {measure: figures[measure]["convention"] for figures in by_model for measure in figures}
    return {
        "name": name,
        "models": [show(one.model, _CHARACTERS) for one in evaluations],
        "note": MADE_UP if any(one.is_made_up for one in evaluations) else None,
        "rows": [
            {
                "measure": show(measure, _CHARACTERS),
                "convention": conventions[measure],
                "figures": [figures.get(measure) for figures in by_model],
            }
            for measure in measures
        ],
    }
