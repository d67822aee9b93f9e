"""Published figures and files, read from `figures.yaml`, and what of them is like an evaluation of ours.

A figure is put beside ours where both are of the same model (by the last part of its name), the same split (as many items in
each subset) and the same average (the same name of a measure). What else may differ is said, and what isn't stated, too.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import resources
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict

_FILE = "figures.yaml"


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PublishedFile(_Data):
    """A data file of a benchmark as its authors published it."""

    benchmark: str
    name: str
    sha256: str


class PublishedTable(_Data):
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
        """The figures of a model, in percent by name; None if it isn't in the table."""
        rows = (values for name, values in self.models.items() if plain_name(name) == plain_name(model))
        values = next(rows, None)
        return None if values is None else dict(zip(self.columns, values, strict=True))


class PublishedData(_Data):
    """The whole file."""

    files: tuple[PublishedFile, ...]
    tables: tuple[PublishedTable, ...]


class OurFigures(NamedTuple):
    """An evaluation as far as it is compared. `values` are shares by the name of the figure."""

    benchmark: str
    split: str | None
    identity: Mapping[str, Any]
    coverage: float
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class ComparedFigure:
    """A published figure and ours, both in percent."""

    name: str
    published: float
    here: float

    def __str__(self) -> str:
        difference = round(self.here - self.published, 2) + 0.0
        return f"{self.name} {self.published:g}, here {self.here:.2f} ({difference:+.2f})"


@dataclass(frozen=True)
class PublishedComparison:
    """A published table beside an evaluation. Without `figures` it isn't comparable, and `differs` says why."""

    source: str
    date: str | None
    split: str
    averaging: str
    setting: str | None
    figures: Sequence[ComparedFigure]
    differs: Sequence[str]

    def lines(self) -> list[str]:
        """For people: the source, the figures, and what differs."""
        about = ", ".join(
            part for part in (self.source, self.date, f"split {self.split}", self.averaging, self.setting) if part
        )
        figures = [str(figure) for figure in self.figures]
        compared = [f"Published ({about}): {'; '.join(figures)}"] if figures else [f"Published ({about}): not comparable"]
        return [*compared, *([f"  differs: {'; '.join(self.differs)}"] if self.differs else [])]


@functools.cache
def published() -> PublishedData:
    """What is known. Raises pydantic's `ValidationError` if the file of this package is damaged."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    return PublishedData.model_validate(yaml.safe_load(text))


def known_file(benchmark: str, sha256: str | None) -> str | None:
    """The name of the published file with these bytes; None if it isn't known."""
    return next((file.name for file in published().files if (file.benchmark, file.sha256) == (benchmark, sha256)), None)


def compare_published(ours: OurFigures) -> list[PublishedComparison]:
    """The published tables of this benchmark that have this model."""
    tables = [table for table in published().tables if table.benchmark == ours.benchmark]
    pairs = [(table, table.figures(str(ours.identity["model"]))) for table in tables]
    return [_compare(table, figures, ours) for table, figures in pairs if figures is not None]


def _compare(table: PublishedTable, figures: Mapping[str, float], ours: OurFigures) -> PublishedComparison:
    our_values = {name: value for name, value in ours.values.items() if value is not None}
    if ours.split == table.split:
        compared = [
            ComparedFigure(name, value, 100 * our_values[name]) for name, value in figures.items() if name in our_values
        ]
        differs = _differences(table, ours)
    else:
        compared, differs = [], [f"its split is {table.split}, and these items are {ours.split or 'no published split'}"]
    when = None if table.date is None else table.date.isoformat()
    return PublishedComparison(table.source, when, table.split, table.averaging, table.setting, compared, differs)


def _differences(table: PublishedTable, ours: OurFigures) -> list[str]:
    """What isn't known to be the same as here: maximum length, precision, setting, and items without a grade."""
    our_settings = {"max length": ours.identity.get("max_model_len"), "dtype": ours.identity.get("dtype")}
    their_settings = {"max length": table.max_length, "dtype": table.dtype}
    return [
        *(
            f"{name} {'not stated' if their_settings[name] is None else their_settings[name]}, here {value}"
            for name, value in our_settings.items()
            if value is not None and their_settings[name] != value
        ),
        *([f"setting: {table.setting}"] if table.setting else []),
        *([f"{1 - ours.coverage:.1%} of the items have no grade here"] if ours.coverage < 1 else []),
    ]


def plain_name(model: str) -> str:
    """The last part of a hub id or a path, in lower case and with one kind of punctuation (`3_3` is also written `3.3`)."""
    return model.rstrip("/").rpartition("/")[2].lower().replace("_", ".")
