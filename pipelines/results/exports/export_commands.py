"""The jobs of the three commands that export scored candidates: `choose`, `pairs` and `export`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from actors.errors import SettingsError
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import CHOSEN, EXPORTED, PAIRS, OutputKind
from pipelines.folders.scored_corpus.candidates import Candidate, LabelAgreement, LeftField, count_left
from pipelines.results.exports import choose_candidates, export_job
from pipelines.results.exports.export_counts import ExportedRows, ExportSummary, RowMaker
from pipelines.results.exports.export_job import ExportJob
from pipelines.results.exports.pair_candidates import pairs
from pipelines.results.exports.trainer_format import Labels, PairFormat, ResponseFormat
from pipelines.results.exports.trainer_messages import Refusal, without_unkept_turns
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from pipelines.settings.export_settings import (
    ChoiceOfCandidates,
    ChooseSettings,
    ExportSettings,
    LabelsOfCorpus,
    PairingSettings,
    PairSettings,
    PairsOf,
)
from pipelines.settings.run_settings import JudgingSettings, RefineSettings, SampleSettings

__all__ = ["choose", "export", "export_while_scoring", "jobs_of_run", "make_pairs"]

_NOT_CHOSEN, _ALONE = "not chosen", "the only candidate for its prompt"
_NO_PAIR = "no two candidates that differ enough (--min-margin)"
_AGAINST, _NO_LABEL = "against the label", "without a label"
_CHOSEN_RESERVED = (
    *("reward", "scores", "rank", "z_score", "of", "prompt_hash", "row", "response_name"),
    *RESPONSE_FORMATS["sft"].reserved,  # what is chosen is trained on as such conversations are
)


@dataclass(frozen=True)
class _Choosing:
    settings: ChoiceOfCandidates

    def __call__(self, candidates: Sequence[Candidate]) -> ExportedRows:
        kept = choose_candidates.choose(candidates, self.settings)
        contents = [ranked.candidate.read() for ranked in kept]
        rows = [{**ranked.as_row(), **content.fields} for ranked, content in zip(kept, contents, strict=True)]
        left_fields = count_left(content.left for content in contents)
        return ExportedRows(rows, {_NOT_CHOSEN: len(candidates) - len(kept)}, left_fields=left_fields)


@dataclass(frozen=True)
class _Pairing:
    """Holds the name of the format, not the format: its functions needn't be pickled for the workers."""

    settings: PairingSettings
    trainer: str

    def __call__(self, candidates: Sequence[Candidate]) -> ExportedRows:
        form = PAIR_FORMATS[self.trainer]
        # Annotated: `list[float]()` takes 0.3 µs and `[]` 0.02, and this is done for each prompt.
        rows: list[Mapping[str, Any]] = []
        left: dict[str, int] = {}
        labels: dict[str, int] = {}
        left_fields: list[Mapping[str, LeftField]] = []
        all_pairs = pairs(candidates, self.settings)
        for pair in all_pairs:
            agreement = pair.agreement
            # Rows are those of the pairs that are written; agreement with labels is counted over all pairs, else a filter by
            # labels would always report full agreement.
            labels[agreement.value] = labels.get(agreement.value, 0) + 1
            if (reason := self._label_refusal(agreement) or form.check(pair)) is not None:
                left[reason] = left.get(reason, 0) + 1
                continue
            fields, left_of_pair = pair.own_fields
            left_fields.append(left_of_pair)
            rows += [{**row, **fields} for row in form.rows(pair)]
        if not all_pairs:
            left[_ALONE if len(candidates) == 1 else _NO_PAIR] = 1
        return ExportedRows(rows, left, labels, count_left(left_fields))

    def _label_refusal(self, agreement: LabelAgreement) -> str | None:
        """Why a pair is left out because of the corpus' label, or None."""
        policy = self.settings.labels
        if policy is not LabelsOfCorpus.IGNORE and agreement is LabelAgreement.DISAGREES:
            return _AGAINST
        return _NO_LABEL if policy is LabelsOfCorpus.REQUIRE and agreement is LabelAgreement.UNLABELLED else None


@dataclass(frozen=True)
class _Exporting:
    trainer: str
    labels: Labels

    def __call__(self, candidates: Sequence[Candidate]) -> ExportedRows:
        form = RESPONSE_FORMATS[self.trainer]
        refused = Counter(reason for candidate in candidates if (reason := form.check(candidate)) is not None)
        accepted = [candidate for candidate in candidates if form.check(candidate) is None]
        exportable = without_unkept_turns(accepted) if form.whole else accepted
        if len(exportable) < len(accepted):
            refused[Refusal.AFTER_UNKEPT_TURN] = len(accepted) - len(exportable)
        if not exportable:
            return ExportedRows((), refused)
        content = exportable[0].read()  # all are of one input row
        rows = [{**row, **content.fields} for row in form.rows(exportable, self.labels)]
        return ExportedRows(rows, refused, left_fields=count_left([content.left] * len(rows)))


def choose(settings: ChooseSettings) -> ExportSummary:
    """Write the chosen candidates of each prompt as conversations for supervised training.

    Raises what `run_export` raises.
    """
    return export_job.run_export(choosing_job(settings))


def make_pairs(settings: PairSettings) -> ExportSummary:
    """Make preference pairs in a trainer's format.

    Raises what `run_export` raises, and `SettingsError` for an unknown format.
    """
    return export_job.run_export(pairing_job(settings))


def export(settings: ExportSettings) -> ExportSummary:
    """Write single responses in a trainer's format. Raises as `make_pairs`."""
    return export_job.run_export(exporting_job(settings))


def choosing_job(settings: ChooseSettings) -> ExportJob:
    """The job of `choose`. Raises `SettingsError` if its settings contradict each other."""
    choose_candidates.check(settings)
    choice = ChoiceOfCandidates(**{name: getattr(settings, name) for name in ChoiceOfCandidates.model_fields})
    shown = choice.model_dump(mode="json", exclude_defaults=True)
    return _job(
        CHOSEN,
        settings,
        _Choosing(choice),
        shown,
        per=settings.per,
        spill=settings.spill,
        needs=choice.voters,
        reserved=_CHOSEN_RESERVED,
    )


def pairing_job(settings: PairSettings) -> ExportJob:
    """The job of `pairs`. Raises `SettingsError` if its settings contradict each other."""
    form = pair_format(settings.trainer)
    if settings.length_balanced and settings.pairs in (PairsOf.ALL, PairsOf.CONSECUTIVE):
        raise SettingsError(f"--length-balanced chooses a partner for the best one, and --pairs {settings.pairs} needs none")
    pairing = PairingSettings(**{name: getattr(settings, name) for name in PairingSettings.model_fields})
    return _job(
        PAIRS,
        settings,
        _Pairing(pairing, form.name),
        {"for": form.name, **pairing.model_dump(mode="json", exclude_defaults=True)},
        per=settings.per,
        spill=settings.spill,
        reserved=form.reserved,
    )


def exporting_job(settings: ExportSettings) -> ExportJob:
    """The job of `export`. Raises `SettingsError` if its settings contradict each other."""
    form = response_format(settings.trainer)
    if form.needs_threshold and settings.threshold is None:
        raise SettingsError(f"--for {form.name} tells desirable responses from others: give --threshold, a reward")
    if not form.needs_threshold and settings.threshold is not None:
        raise SettingsError(f"--for {form.name} has no use for --threshold")
    shown = {"for": form.name, "threshold": settings.threshold}
    maker = _Exporting(form.name, Labels(settings.threshold))
    return _job(EXPORTED, settings, maker, shown, per="conversation", needs=form.needs_scores, reserved=form.reserved)


JOBS: Mapping[str, Callable[[Any], ExportJob]] = {"choose": choosing_job, "pairs": pairing_job, "export": exporting_job}
"""The job of each command's settings, by its name."""


def jobs_of_run(settings: JudgingSettings) -> list[ExportJob]:
    """The job of a run with --keep, into a folder inside the run's; else none. Raises as `choosing_job`."""
    if not isinstance(settings, SampleSettings | RefineSettings):
        return []
    choice = settings.choice
    if choice.keep is None:
        if choice.model_dump(exclude_defaults=True):
            raise SettingsError("there is nothing to choose by: give --keep, too")
        return []
    folder = storage.folder(settings.output).sub(export_job.KEPT_FOLDER).path
    chosen = ChooseSettings(scored=settings.output, output=folder, per="row", overwrite=True, **choice.model_dump())
    return [replace(choosing_job(chosen), by_part=True)]


def export_while_scoring(run: JudgingSettings | None, steps: Mapping[str, Any]) -> dict[str, ExportJob]:
    """The export steps of a recipe, by name, that can run while the corpus is scored: those that read its folder row by row.

    Raises as the jobs do.
    """
    if run is None:
        return {}
    folder = storage.absolute(run.output)
    of_run = {name: step for name, step in steps.items() if name in JOBS and storage.absolute(step.scored) == folder}
    jobs = {name: replace(JOBS[name](step), by_part=True) for name, step in of_run.items()}
    return {name: job for name, job in jobs.items() if job.per != "prompt"}


def _job(
    kind: OutputKind,
    settings: ChooseSettings | PairSettings | ExportSettings,
    maker: RowMaker,
    shown: Mapping[str, Any],
    *,
    per: Literal["row", "prompt", "conversation"],
    spill: str | None = None,
    needs: Sequence[str] = (),
    reserved: Sequence[str],
) -> ExportJob:
    """The job of some settings; `shown` are the settings that its one-line description names."""
    description = {**shown, "where": settings.where, **({} if settings.fields else {"fields": False})}
    return ExportJob(
        kind=kind,
        scored=settings.scored,
        output=settings.output,
        per=per,
        maker=maker,
        asked=", ".join(f"{name}: {value}" for name, value in description.items() if value is not None),
        settings=settings.model_dump(mode="json", exclude={"overwrite", "spill"}),
        needs=needs,
        reserved=tuple(reserved) if settings.fields else None,
        where=settings.where,
        partial=settings.partial,
        overwrite=settings.overwrite,
        spill=spill,
        fake_ok=isinstance(settings, ChooseSettings) or settings.fake_ok,
    )


def pair_format(name: str) -> PairFormat:
    """The format of pairs of this name. Raises `SettingsError` if there is none."""
    if name in RESPONSE_FORMATS:
        raise SettingsError(f"--for {name} is a format of single responses: `assay export --for {name}` writes it")
    if name not in PAIR_FORMATS:
        raise SettingsError(f"--for {name} is no format of pairs; there are {', '.join(PAIR_FORMATS)}")
    return PAIR_FORMATS[name]


def response_format(name: str) -> ResponseFormat:
    """The format of single responses of this name. Raises `SettingsError` if there is none."""
    if name in PAIR_FORMATS:
        raise SettingsError(f"--for {name} is a format of pairs: `assay pairs --for {name}` writes it")
    if name not in RESPONSE_FORMATS:
        raise SettingsError(f"--for {name} is no format of single responses; there are {', '.join(RESPONSE_FORMATS)}")
    return RESPONSE_FORMATS[name]
