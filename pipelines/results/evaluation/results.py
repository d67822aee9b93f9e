"""The result of an evaluation as data: what `results.json` holds, and the tables that are made of it."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import pyarrow as pa
from pydantic import TypeAdapter

from actors.text.readable import Readable
from pipelines.results.evaluation.item_matching import EvaluatedModel
from pipelines.results.evaluation.noise import NoiseReport
from pipelines.results.evaluation.published.presets import Preset
from pipelines.results.evaluation.sections import Section, margin_section, paired_sections, vote_section
from pipelines.results.evaluation.statistics.margins import MarginReport
from pipelines.results.evaluation.statistics.paired import PairedComparison
from pipelines.results.evaluation.statistics.votes import VoteReport

VERSION = 1  # of the form of results.json: another number is refused by read_results, never guessed at
MADE_UP = "These rewards are made up: --engine fake is for trying a pipeline out, and says nothing of the model."


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
            # Rounding -0.004 gives -0.0, and adding 0.0 makes it 0.0.
            return f"{round(100 * value, digits) + 0.0:.{digits}f}%"
        return f"{round(value, digits + 1) + 0.0:.{digits + 1}f}"

    @property
    def interval(self) -> str:
        return "" if self.low is None else f"{self.shown(self.low, 1)} to {self.shown(self.high, 1)}"


@dataclass(frozen=True)
class SubsetCounts:
    """Items of a subset: how many there are and should be, were graded and tied, and why the others weren't graded.

    `rejected` and `failed` count those without a grade since a response was. `correct`: the sum of the graded items' credits
    in the headline, each from 0 to 1; None if it counts none of them. `value`, `low`, `high` and `convention` are those of
    the subset's figure, or of the headline if there is no other subset; None if it has no figure.
    """

    items: int
    expected: int | None
    graded: int
    tied: int
    reasons: Mapping[str, int]
    rejected: int
    failed: int
    coverage: float
    correct: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    convention: str | None = None


@dataclass(frozen=True)
class ComparedFigure:
    """A published figure and ours, both in percent.

    `name` is that of our measure: a published one that we have under no name isn't compared.
    """

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

    @property
    def about(self) -> str:
        parts = (self.source, self.date, f"split {self.split}", self.averaging, self.setting)
        return ", ".join(part for part in parts if part)

    def lines(self) -> list[str]:
        """For people: the source, the figures, and what differs."""
        figures = "; ".join(map(str, self.figures)) or "not comparable"
        differs = [f"  differs: {'; '.join(self.differs)}"] if self.differs else []
        return [f"Published ({self.about}): {figures}", *differs]


@dataclass(frozen=True)
class Evaluation:
    """One model on one benchmark: the headline first among `figures`.

    `files` has name, size and SHA-256 of the data, and the name of the published file that it is, if it is known.
    `coverage` is the share of items that have a grade, and `tie_rate` that of graded items with equal rewards where the
    grade compares them.
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
    coverage: float
    tie_rate: float
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
    called: str | None = None
    """A short name of the model, which tells it from the others of these results; None: its id or path."""

    @property
    def label(self) -> str:
        model = self.called or self.model  # `called` is unique among these results, where ids or paths end alike
        return model if self.preset is None else f"{model}, as published"

    @property
    def judged(self) -> bool:
        return self.identity.get("judge") is not None

    @property
    def is_made_up(self) -> bool:
        return self.identity.get("engine") == "fake"

    def with_items(self, items: pa.Table, name: str | None = None) -> EvaluatedModel:
        return EvaluatedModel(name or self.label, items, self.files, self.judged, self.compared)

    @property
    def subset_figures(self) -> dict[str, float]:
        # A benchmark calls the figure of a subset by the subset's name.
        values = {figure.name: figure.value for figure in self.figures if figure.value is not None}
        return {subset: values[subset] for subset in self.subsets if subset in values}

    @property
    def conventions(self) -> dict[str, list[str]]:
        by_convention: dict[str, list[str]] = {}
        for figure in self.figures:
            by_convention.setdefault(figure.convention, []).append(figure.name)
        return by_convention

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
        # From the gravest to the mildest: whoever reads one line reads that the rewards are made up.
        caveats = {MADE_UP: self.is_made_up, unknown: served_at, limited: limit is not None, kept: self.kept is not None}
        noise = [self.noise.note] if self.noise and self.noise.note else []
        return [*(caveat for caveat, holds in caveats.items() if holds), *noise, *self.notes]

    @property
    def tables(self) -> list[Section]:
        """The tables beside the figures: accuracy by margin, and a judge's votes; without those that it doesn't have."""
        margins = [margin_section(self.margins)] if self.margins else []
        return [*margins, *([vote_section(self.votes)] if self.votes else [])]


@dataclass(frozen=True)
class Results(Readable, Sequence[Evaluation]):
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

    def __str__(self) -> str:
        return self.markdown()

    @property
    def sections(self) -> list[Section]:
        """The tables of each evaluation, then those of every two models, and of two readings of one model."""
        of_models = [section for each in self for section in (_figure_section(each), *each.tables)]
        return of_models + [section for comparison in self.paired for section in self.sections_of(comparison)]

    def sections_of(self, comparison: PairedComparison) -> list[Section]:
        by_name = {each.label: each for each in self if each.benchmark == comparison.benchmark}
        first, second = by_name.get(comparison.first), by_name.get(comparison.second)
        # Names get a number where two runs have one label, and then no evaluation is found by them.
        if first is None or second is None or first.preset is None:
            return paired_sections(comparison)
        readings = [{figure.name: figure.shown(figure.value) for figure in each.figures} for each in (second, first)]
        return paired_sections(comparison, readings, first.preset.lines())

    def document(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The whole of `results.json`."""
        return {"assay_results": VERSION, "settings": dict(settings), **results_data().dump_python(self, mode="json")}

    def markdown(self) -> str:
        return "\n".join(section.markdown() for section in self.sections)


@functools.cache
def results_data() -> TypeAdapter[Results]:
    """Turns results into the data of `results.json`, and such data into results."""
    return TypeAdapter(Results)


def _figure_section(evaluation: Evaluation) -> Section:
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
