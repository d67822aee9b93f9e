"""The figures of an evaluation, benchmark by benchmark, its models side by side."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pipelines.results.evaluation.results import MADE_UP, Evaluation, Results
from pipelines.results.evaluation.statistics.paired import PairedComparison
from pipelines.results.html_report.shown_text import show

_CHARACTERS = 200


class _Interval(NamedTuple):
    """A value as a chart shows it, with its interval if it has one."""

    value: float | None
    low: float | None = None
    high: float | None = None
    bin: Any = None
    """Of an accuracy by margin, what else is known of it."""


def evaluation(results: Sequence[Results]) -> list[dict[str, Any]]:
    """For each benchmark of some results its tables, each with a row for each measure and a column for each model."""
    evaluations = sorted((each for result in results for each in result), key=lambda each: each.benchmark)
    pairs = [pair for result in results for pair in result.paired]
    return [
        _benchmark(name, list(group), [pair for pair in pairs if pair.benchmark == name])
        for name, group in groupby(evaluations, key=lambda each: each.benchmark)
    ]


def _benchmark(name: str, evaluations: Sequence[Evaluation], pairs: Sequence[PairedComparison]) -> dict[str, Any]:
    return {
        "name": name,
        "note": MADE_UP if any(each.is_made_up for each in evaluations) else None,
        "figures": _table([(each.label, {figure.name: figure for figure in each.figures}) for each in evaluations]),
        "conventions": {
            show(figure.name, _CHARACTERS): figure.convention for each in evaluations for figure in each.figures
        },
        "published": [table for each in evaluations for table in _published(each)],
        "margins": _margins(evaluations),
        "votes": _votes(evaluations),
        "differences": _table(
            [(f"{pair.first} less {pair.second}", {row.name: row for row in pair.differences}) for pair in pairs]
        ),
        "splits": _table(
            [(f"{pair.first} or {pair.second}", {split.subset: split for split in pair.splits}) for pair in pairs]
        ),
    }


def _table(columns: Sequence[tuple[str, Mapping[str, Any]]], rows: Sequence[str] = ()) -> dict[str, Any] | None:
    """Columns by their headings, with what each has of every row; None without a column. `rows` come first."""
    if not columns:
        return None
    names = dict.fromkeys([*rows, *(name for _, cells in columns for name in cells)])
    return {
        "columns": [show(heading, _CHARACTERS) for heading, _ in columns],
        "rows": [{"name": show(name, _CHARACTERS), "cells": [cells.get(name) for _, cells in columns]} for name in names],
    }


def _published(evaluation: Evaluation) -> list[dict[str, Any]]:
    """The published tables that have a model: their figures beside those here, as shares, and what else differs."""
    ours = {figure.name: figure for figure in evaluation.figures}
    tables = []
    for comparison in evaluation.published:
        theirs = {figure.name: _Interval(figure.published / 100) for figure in comparison.figures}
        here = {name: ours[name] for name in theirs}
        about = {"model": show(evaluation.label, _CHARACTERS), "about": comparison.about, "differs": comparison.differs}
        tables.append({**about, "table": _table([("here", here), ("published", theirs)])})
    return tables


def _margins(evaluations: Sequence[Evaluation]) -> dict[str, Any] | None:
    """Accuracy by the difference of the two rewards: a row for each tenth of the comparisons; None if no model has it."""
    columns = []
    for each in evaluations:
        if each.margins is not None:
            bins = [_Interval(entry.accuracy, entry.accuracy_low, entry.accuracy_high, entry) for entry in each.margins.bins]
            columns.append((each.label, {f"{number}": entry for number, entry in enumerate(bins, start=1)}))
    table = _table(columns)
    return table and {**table, "errors": [each.margins.ece for each in evaluations if each.margins is not None]}


def _votes(evaluations: Sequence[Evaluation]) -> dict[str, Any] | None:
    """Shares by their names, those of the voting curve first, and the points of that; None if no model voted."""
    reports = [(each.label, each.votes) for each in evaluations if each.votes is not None]
    curves = [{share.votes: share for share in votes.curve if share.votes is not None} for _, votes in reports]
    counts = sorted({count for curve in curves for count in curve})
    by_count = {count: share.name for curve in curves for count, share in curve.items()}
    shares = [(model, {share.name: share for share in (*votes.curve, *votes.agreement)}) for model, votes in reports]
    table = _table(shares, [by_count[count] for count in counts])
    if table is None:
        return None
    values = [[curve[count].value if count in curve else None for count in counts] for curve in curves]
    series = list(zip(table["columns"], values, strict=True))
    return {**table, "counts": counts, "series": series, "reports": [votes for _, votes in reports]}
