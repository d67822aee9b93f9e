"""The figures of an evaluation, benchmark by benchmark, its models side by side."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pipelines.results.evaluation.results import MADE_UP, Evaluation, Results
from pipelines.results.evaluation.sections import Section
from pipelines.results.html_report.shown_text import show

_CHARACTERS = 200  # of the name of a model or a measure, so that none makes a column as wide as the page


def evaluation(results: Sequence[Results]) -> list[dict[str, Any]]:
    """For each benchmark of some results its figures, a row for each measure and a column for each model, and its tables.

    The tables are those of `table.md`, each with the model that it is of; those of two models have both in their titles.
    """
    evaluations = sorted((each for result in results for each in result), key=lambda each: each.benchmark)
    of_pairs = [
        (comparison.benchmark, ("", section))
        for result in results
        for comparison in result.paired
        for section in result.sections_of(comparison)
    ]
    return [
        _benchmark(name, list(group), [table for benchmark, table in of_pairs if benchmark == name])
        for name, group in groupby(evaluations, key=lambda each: each.benchmark)
    ]


def _benchmark(name: str, evaluations: Sequence[Evaluation], of_pairs: Sequence[tuple[str, Section]]) -> dict[str, Any]:
    of_models = [(show(each.label, _CHARACTERS), section) for each in evaluations for section in each.tables]
    return {
        "name": name,
        "note": MADE_UP if any(each.is_made_up for each in evaluations) else None,
        "figures": _figures(evaluations),
        "conventions": {
            show(figure.name, _CHARACTERS): figure.convention for each in evaluations for figure in each.figures
        },
        "published": [(show(each.label, _CHARACTERS), table.lines()) for each in evaluations for table in each.published],
        "tables": [*of_models, *of_pairs],
    }


def _figures(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    # By position and not by label: two folders of results may have models of one name.
    by_model = [{figure.name: figure for figure in each.figures} for each in evaluations]
    names = dict.fromkeys(name for figures in by_model for name in figures)
    return {
        "columns": [show(each.label, _CHARACTERS) for each in evaluations],
        "rows": [{"name": show(name, _CHARACTERS), "cells": [each.get(name) for each in by_model]} for name in names],
    }
