"""The result of an evaluation: one document, `results.json`, and the same as a Markdown table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from pipelines.results.evaluation.noise import NoiseReport
from pipelines.results.evaluation.published.figures import PublishedComparison
from pipelines.results.evaluation.published.presets import Preset
from pipelines.results.evaluation.sections import (
    Section,
    TwoReadings,
    margin_section,
    paired_sections,
    reading_sections,
    vote_section,
)
from pipelines.results.evaluation.statistics.margins import MarginReport
from pipelines.results.evaluation.statistics.paired import PairedComparison
from pipelines.results.evaluation.statistics.votes import VoteReport

VERSION = 1
"""Of the form of `results.json`."""
_OUTCOMES = ("rejected", "failed")
MADE_UP = "These rewards are made up: --engine fake is for trying a pipeline out, and says nothing of the model."


AS_PUBLISHED = ", as published"


def label_of(model: str, as_published: bool) -> str:
    """A model's name in tables, and whether it was run as authors did and not as its card says."""
    return f"{model}{AS_PUBLISHED}" if as_published else model


@dataclass(frozen=True)
class Figure:
    """A measure of one model on one benchmark.

    `value` and the interval `low` to `high` (95 %) are shares from 0 to 1, or a correlation unless `is_share`; null without
    graded items. `chance` is what guessing gets, null where it isn't known; `near_chance`: the interval includes it.
    `method` is how the interval was made.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    convention: str
    near_chance: bool
    chance: float | None = None
    is_share: bool = True
    method: str = ""

    def shown(self, value: float | None, digits: int = 2) -> str:
        """A value of this figure for people: a share in percent, a correlation as it is; never -0."""
        if value is None:
            return ""
        if self.is_share:
            return f"{round(100 * value, digits) + 0.0:.{digits}f}%"
        return f"{round(value, digits + 1) + 0.0:.{digits + 1}f}"

    @property
    def interval(self) -> str:
        """The interval for people; empty if there is none."""
        return "" if self.low is None else f"{self.shown(self.low, 1)} to {self.shown(self.high, 1)}"


@dataclass(frozen=True)
class SubsetCounts:
    """Items of a subset: how many there are and should be, were graded and tied, and why the others weren't graded.

    `correct`: the sum of the graded items' credits in the headline, each from 0 to 1; None if it counts none of them.
    """

    items: int
    expected: int | None
    graded: int
    tied: int
    reasons: Mapping[str, int]
    correct: float | None = None

    def as_json(self) -> dict[str, Any]:
        """For `results.json`: also how many have no grade since a response was rejected, and since it has failed."""
        kinds = {kind: sum(n for reason, n in self.reasons.items() if reason.startswith(kind)) for kind in _OUTCOMES}
        return {**asdict(self), **kinds, "coverage": self.graded / self.items if self.items else 0.0}


@dataclass(frozen=True)
class Evaluation:
    """One model on one benchmark: the headline first among `figures`.

    `files` has name, size and SHA-256 of the data, and the name of the published file that it is, if it is known.
    """

    benchmark: str
    title: str
    source: str
    model: str
    identity: Mapping[str, Any]
    versions: Mapping[str, Any]
    files: Sequence[Mapping[str, Any]]
    figures: Sequence[Figure]
    subsets: Mapping[str, SubsetCounts]
    work: Mapping[str, Any]
    split: str | None = None
    """The published split that these items are by their numbers; None if they are none."""
    published: Sequence[PublishedComparison] = ()
    margins: MarginReport | None = None
    """Accuracy by the difference of rewards; None without items of right and wrong responses."""
    votes: VoteReport | None = None
    """What a judge's votes say of it; None of a reward head."""
    compared: bool = False
    """Whether rewards only compare the responses of a row, and not those of different rows."""
    preset: Preset | None = None
    """How its model was run, if that was as authors did on this benchmark; None: as the model's card says."""
    repeated: int | None = None
    """How many rows repeat an earlier one's prompt, responses and labels; None if texts aren't there. Each counts."""
    noise: NoiseReport | None = None
    """The items that the noise of batching may decide; None where it isn't known, as of a judge's texts."""
    notes: Sequence[str] = ()
    """What is to be said of the items, and what of the output couldn't be written, and why."""
    kept: str | None = None
    """What a filter kept of the corpus, if its result was evaluated; None: all responses."""

    @property
    def label(self) -> str:
        """The model, and how it was run if not as its card says."""
        return label_of(self.model, self.preset is not None)

    @property
    def coverage(self) -> float:
        """The share of items that have a grade."""
        items = sum(counts.items for counts in self.subsets.values())
        return sum(counts.graded for counts in self.subsets.values()) / items if items else 0.0

    @property
    def tie_rate(self) -> float:
        """The share of graded items with equal rewards where the grade compares them."""
        graded = sum(counts.graded for counts in self.subsets.values())
        return sum(counts.tied for counts in self.subsets.values()) / graded if graded else 0.0

    @property
    def subset_figures(self) -> dict[str, float]:
        """The value of the figure of each subset, of those that have one."""
        values = {figure.name: figure.value for figure in self.figures if figure.value is not None}
        return {subset: values[subset] for subset in self.subsets if subset in values}

    def _figure_of_subset(self, name: str) -> dict[str, Any]:
        """Value, interval and convention of the figure of a subset, or of the headline if there is no other subset."""
        alone = self.figures[:1] if len(self.subsets) == 1 else []
        figure = next((figure for figure in (*self.figures, *alone) if figure.name == name or figure in alone), None)
        return {field: getattr(figure, field, None) for field in ("value", "low", "high", "convention")}

    @property
    def conventions(self) -> dict[str, list[str]]:
        """The names of the figures by the convention that they follow."""
        by_convention: dict[str, list[str]] = {}
        for figure in self.figures:
            by_convention.setdefault(figure.convention, []).append(figure.name)
        return by_convention

    @property
    def is_made_up(self) -> bool:
        """Whether the rewards are those of the fake engine, and say nothing of the model."""
        return self.identity.get("engine") == "fake"

    def as_json(self) -> dict[str, Any]:
        """For `results.json`."""
        subsets = {name: counts.as_json() | self._figure_of_subset(name) for name, counts in self.subsets.items()}
        preset = self.preset and self.preset.model_dump(mode="json", exclude_defaults=True)
        noise = asdict(self.noise) | {"difference": self.noise.difference} if self.noise else None
        of_all = {"subsets": subsets, "preset": preset, "noise": noise}
        return {**asdict(self), **of_all, "coverage": self.coverage, "tie_rate": self.tie_rate}

    @property
    def caveats(self) -> list[str]:
        """What a reader must know: made-up rewards, a part of a corpus, what isn't known of the judge or wasn't written."""
        served_at, limit = self.identity.get("served_at"), self.identity.get("limit")
        unknown = (
            f"{self.model} was asked at {served_at}; nothing is known of its weights, template and tokenizer but the name, "
            "so that another model may answer under it one day, and control tokens in responses aren't looked for."
        )
        limited = f"Scored with --limit {limit}: the rows after these count in no figure, nor in the coverage."
        kept = f"Only what a filter kept ({self.kept}) counts: neither figures nor coverage are of the whole corpus."
        caveats = {MADE_UP: self.is_made_up, unknown: served_at, limited: limit is not None, kept: self.kept is not None}
        noise = [self.noise.note] if self.noise and self.noise.note else []
        return [*(caveat for caveat, holds in caveats.items() if holds), *noise, *self.notes]

    @property
    def sections(self) -> list[Section]:
        """The figures, and the tables beside them."""
        margins = [margin_section(self.margins)] if self.margins else []
        return [_figure_section(self), *margins, *([vote_section(self.votes)] if self.votes else [])]


@dataclass(frozen=True)
class Results(Sequence[Evaluation]):
    """The evaluations, as a sequence, and what every two models of one benchmark come to beside each other."""

    evaluations: Sequence[Evaluation]
    paired: Sequence[PairedComparison] = ()

    @overload
    def __getitem__(self, index: int) -> Evaluation: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Evaluation]: ...
    def __getitem__(self, index: int | slice) -> Evaluation | Sequence[Evaluation]:
        return self.evaluations[index]

    def __len__(self) -> int:
        return len(self.evaluations)

    @property
    def sections(self) -> list[Section]:
        """The tables of each evaluation, then those of every two models, and of two readings of one model."""
        by_name = {(evaluation.benchmark, evaluation.label): evaluation for evaluation in self}
        sections = [section for evaluation in self for section in evaluation.sections]
        for comparison in self.paired:
            first, second = (by_name.get((comparison.benchmark, name)) for name in (comparison.first, comparison.second))
            if first and second and first.preset:
                shown = [{figure.name: figure.shown(figure.value) for figure in each.figures} for each in (second, first)]
                sections += reading_sections(comparison, TwoReadings(shown[0], shown[1], first.preset.lines()))
            else:
                sections += paired_sections(comparison)
        return sections

    def document(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The whole of `results.json`."""
        return {
            "assay_results": VERSION,
            "settings": dict(settings),
            "evaluations": [evaluation.as_json() for evaluation in self],
            "paired": [asdict(comparison) for comparison in self.paired],
        }

    def markdown(self) -> str:
        """The tables as a document."""
        return "\n".join(section.markdown() for section in self.sections)


def _figure_section(evaluation: Evaluation) -> Section:
    """The measures with intervals, the headline first; their sources, caveats, coverage, and items without a grade."""
    published = [line for comparison in evaluation.published for line in comparison.lines()]
    published_files = [f"{file['name']} is {file['published']}" for file in evaluation.files if file["published"]]
    ungraded = [
        f"Without a grade: {count:,} of {subset}: {reason}"
        for subset, counts in evaluation.subsets.items()
        for reason, count in counts.reasons.items()
    ]
    return Section(
        f"{evaluation.label} on {evaluation.benchmark}",
        ("measure", "value", "95 % interval", "chance", "items"),
        [_cells(figure) for figure in evaluation.figures],
        [
            *(f"{convention}: {', '.join(names)}" for convention, names in evaluation.conventions.items()),
            evaluation.source,
            *published,
            *published_files,
            *evaluation.caveats,
            f"Coverage {evaluation.coverage:.1%}, ties {evaluation.tie_rate:.1%}",
            *ungraded,
        ],
    )


def _cells(figure: Figure) -> tuple[str, ...]:
    chance = "near " * figure.near_chance + figure.shown(figure.chance, 0 if figure.is_share else 1)
    return figure.name, figure.shown(figure.value), figure.interval, chance, f"{figure.n:,}"
