"""Published figures and files, read from `figures.yaml`, and what of them is like an evaluation of ours.

A figure is put beside ours where both are of the same model (by the last part of its name), the same split (as many items in
each subset) and the same average (the same name of a measure). What else may differ is said, and what isn't stated, too.
"""

import functools
from collections.abc import Mapping
from datetime import date

from pipelines.results.evaluation.published import YamlData, plain_name
from pipelines.results.evaluation.results import ComparedFigure, Evaluation, PublishedComparison


class PublishedFile(YamlData):
    """A data file of a benchmark as its authors published it.

    `sha256` is of the whole file: a copy that was converted or filtered has another.
    """

    benchmark: str
    name: str
    sha256: str


class PublishedTable(YamlData):
    """Figures in percent of several models, by the names of our measures. What the source doesn't state is None."""

    benchmark: str
    source: str
    date: date | None
    split: str
    averaging: str
    setting: str | None = None
    max_length: int | None
    dtype: str | None
    columns: tuple[str, ...]
    models: Mapping[str, tuple[float, ...]]

    def figures(self, model: str) -> Mapping[str, float] | None:
        # Hub ids of one model differ by owner and punctuation from paper to paper.
        rows = (values for name, values in self.models.items() if plain_name(name) == plain_name(model))
        values = next(rows, None)
        return None if values is None else dict(zip(self.columns, values, strict=True))


class PublishedData(YamlData):
    """All that `figures.yaml` holds.

    Read once a process; a test reads it whole, so that a mistake in it isn't met by a user.
    """

    files: tuple[PublishedFile, ...]
    tables: tuple[PublishedTable, ...]


@functools.cache
def published() -> PublishedData:
    """The published files and tables, read once."""
    return PublishedData.read("figures.yaml")


def known_file(benchmark: str, sha256: str | None) -> str | None:
    """The name of the published file with these bytes; None if it isn't known."""
    return next((file.name for file in published().files if (file.benchmark, file.sha256) == (benchmark, sha256)), None)


def compare_published(evaluation: Evaluation) -> list[PublishedComparison]:
    """The published tables of an evaluation's benchmark that have its model.

    Those of another split are there, too, without figures: `differs` says why.
    """
    tables = [table for table in published().tables if table.benchmark == evaluation.benchmark]
    pairs = [(table, table.figures(evaluation.model)) for table in tables]
    return [_compare(table, figures, evaluation) for table, figures in pairs if figures is not None]


def _compare(table: PublishedTable, figures: Mapping[str, float], evaluation: Evaluation) -> PublishedComparison:
    if evaluation.split == table.split:
        ours = {figure.name: 100 * figure.value for figure in evaluation.figures if figure.value is not None}
        compared = [ComparedFigure(name, value, ours[name]) for name, value in figures.items() if name in ours]
        differs = _differences(table, evaluation)
    else:
        split = evaluation.split or "no published split"
        compared, differs = [], [f"its split is {table.split}, and these items are {split}"]
    when = None if table.date is None else table.date.isoformat()
    return PublishedComparison(table.source, when, table.split, table.averaging, table.setting, compared, differs)


def _differences(table: PublishedTable, evaluation: Evaluation) -> list[str]:
    settings = {"max length": (table.max_length, "max_model_len"), "dtype": (table.dtype, "dtype")}
    differs = []
    for name, (stated, setting) in settings.items():
        here = evaluation.identity.get(setting)
        # What the source doesn't state differs as well: nobody can know that it is the same.
        if here is not None and here != stated:
            differs.append(f"{name} {'not stated' if stated is None else stated}, here {here}")
    if table.setting:
        differs.append(f"setting: {table.setting}")
    if evaluation.coverage < 1:
        differs.append(f"{1 - evaluation.coverage:.1%} of the items have no grade here")
    return differs
