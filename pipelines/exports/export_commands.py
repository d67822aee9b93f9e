"""The three things that are made of scored candidates: a choice, pairs for a trainer, and other exports for trainers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from actors.errors import SettingsError
from pipelines import storage
from pipelines.exports import choose_candidates, export_job
from pipelines.exports.export_job import ExportedRows, ExportJob, ExportSummary, RowMaker
from pipelines.exports.pair_candidates import pairs
from pipelines.exports.rpo_scale import scale_advice
from pipelines.exports.trainer_format import Labels, PairFormat, ResponseFormat
from pipelines.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from pipelines.scored_corpus.candidates import Candidate, LabelAgreement, PreferencePair
from pipelines.scored_corpus.output_folder import OutputKind
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

__all__ = ["advice", "choose", "export", "export_while_scoring", "jobs_of_run", "make_pairs"]

CHOSEN, PAIRS, EXPORTED = OutputKind("choose", ("chosen",)), OutputKind("pairs", ("pairs",)), OutputKind("export", ("rows",))
_NOT_CHOSEN, _NO_PAIR = "not chosen", "no two that differ enough"
_AGAINST, _NO_LABEL = "against the label", "without a label"
_RPO = "nemo-aligner-rpo"


@dataclass(frozen=True)
class _Choosing:
    settings: ChoiceOfCandidates

    def __call__(self, candidates: Sequence[Candidate]) -> ExportedRows:
        chosen = choose_candidates.choose(candidates, self.settings)
        return ExportedRows([one.as_row() for one in chosen], {_NOT_CHOSEN: len(candidates) - len(chosen)})


@dataclass(frozen=True)
class _Pairing:
    """Its format is known by its name: functions don't travel to workers in it."""

    settings: PairingSettings
    trainer: str

    def __call__(self, candidates: Sequence[Candidate]) -> ExportedRows:
        form = PAIR_FORMATS[self.trainer]
        found = pairs(candidates, self.settings)
        why = {at: self._unlabelled(pair) or form.check(pair) for at, pair in enumerate(found)}
        refused = Counter(reason for reason in why.values() if reason is not None)
        told: list[PreferencePair] = [pair for at, pair in enumerate(found) if why[at] is None]
        left = {**refused, **({} if found else {_NO_PAIR: 1})}
        labels = dict(Counter(pair.agreement.value for pair in found))
        return ExportedRows([row for pair in told for row in form.rows(pair)], left, [pair.margin for pair in told], labels)

    def _unlabelled(self, pair: PreferencePair) -> str | None:
        """Why a pair isn't made for what the corpus' own label says of it."""
        asked, found = self.settings.labels, pair.agreement
        if asked is not LabelsOfCorpus.IGNORE and found is LabelAgreement.DISAGREES:
            return _AGAINST
        return _NO_LABEL if asked is LabelsOfCorpus.REQUIRE and found is LabelAgreement.UNLABELLED else None


@dataclass(frozen=True)
class _Exporting:
    trainer: str
    labels: Labels

    def __call__(self, candidates: Sequence[Candidate]) -> ExportedRows:
        form = RESPONSE_FORMATS[self.trainer]
        refused = Counter(reason for one in candidates if (reason := form.check(one)) is not None)
        return ExportedRows(list(form.rows([one for one in candidates if form.check(one) is None], self.labels)), refused)


def choose(settings: ChooseSettings) -> ExportSummary:
    """Keep the candidates of each prompt that are asked for, as conversations for supervised training.

    Raises what `run_export` raises.
    """
    return export_job.run_export(choosing_job(settings))


def make_pairs(settings: PairSettings) -> ExportSummary:
    """Make preference pairs in a trainer's format.

    Raises what `run_export` raises, and `SettingsError` for a format that isn't known.
    """
    return export_job.run_export(pairing_job(settings))


def export(settings: ExportSettings) -> ExportSummary:
    """Write single responses, or pairs, in a trainer's format. Raises as `make_pairs`."""
    return export_job.run_export(exporting_job(settings))


def choosing_job(settings: ChooseSettings) -> ExportJob:
    """What `choose` does. Raises `SettingsError` unless what is asked for goes together."""
    choose_candidates.check(settings)
    own = ChoiceOfCandidates(**{name: getattr(settings, name) for name in ChoiceOfCandidates.model_fields})
    asked = own.model_dump(mode="json", exclude_defaults=True)
    return _job(CHOSEN, settings, _Choosing(own), asked, needs=own.voters)


def pairing_job(settings: PairSettings) -> ExportJob:
    """What `pairs` does. Raises `SettingsError` unless what is asked for goes together."""
    return _pairs_job(PAIRS, settings, pair_format(settings.trainer))


def exporting_job(settings: ExportSettings) -> ExportJob:
    """What `export` does. Raises `SettingsError` unless what is asked for goes together."""
    if settings.trainer in PAIR_FORMATS:
        if settings.threshold is not None:
            raise SettingsError(f"--for {settings.trainer} is made of pairs, and has no use for --threshold")
        return _pairs_job(EXPORTED, settings, PAIR_FORMATS[settings.trainer])
    form = response_format(settings.trainer)
    if form.needs_threshold and settings.threshold is None:
        raise SettingsError(f"--for {form.name} tells desirable responses from others: give --threshold, a reward")
    unused = settings.model_dump(include={"per", *PairingSettings.model_fields}, exclude_defaults=True)
    if unused:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(unused))
        raise SettingsError(f"--for {form.name} is made of single responses, and has no use for {flags}")
    if not form.needs_threshold and settings.threshold is not None:
        raise SettingsError(f"--for {form.name} has no use for --threshold")
    asked = {"for": form.name, "threshold": settings.threshold}
    labels = Labels(settings.threshold)
    maker = _Exporting(form.name, labels)
    return _job(EXPORTED, settings, maker, asked, per="conversation", needs=form.needs_scores)


def jobs_of_run(settings: SampleSettings | RefineSettings) -> list[ExportJob]:
    """What a run chooses of its own candidates, into a folder inside its own. Raises as `choosing_job`."""
    choice = settings.choice
    if choice.keep is None:
        if choice.model_dump(exclude_defaults=True):
            raise SettingsError("there is nothing to choose by: give --keep, too")
        return []
    folder = storage.folder(settings.output).sub(export_job.OWN).path
    own = ChooseSettings(scored=settings.output, output=folder, per="row", overwrite=True, **choice.model_dump())
    return [replace(choosing_job(own), by_part=True)]


def export_while_scoring(run: JudgingSettings | None, steps: Mapping[str, Any]) -> dict[str, ExportJob]:
    """Those of a recipe's steps, by name, that can be done while its run is under way: they read its folder, row by row.

    Raises as the jobs do.
    """
    if run is None:
        return {}
    of: dict[str, Callable[[Any], ExportJob]] = {"choose": choosing_job, "pairs": pairing_job, "export": exporting_job}
    folder = storage.absolute(run.output)
    asked = {name: step for name, step in steps.items() if name in of and storage.absolute(step.scored) == folder}
    jobs = {name: replace(of[name](step), by_part=True) for name, step in asked.items()}
    return {name: job for name, job in jobs.items() if job.per != "prompt"}


def _pairs_job(kind: OutputKind, settings: PairSettings | ExportSettings, form: PairFormat) -> ExportJob:
    if settings.length_balanced and settings.pairs in (PairsOf.ALL, PairsOf.CONSECUTIVE):
        raise SettingsError(f"--length-balanced chooses a partner for the best one, and --pairs {settings.pairs} needs none")
    own = PairingSettings(**{name: getattr(settings, name) for name in PairingSettings.model_fields})
    asked = {"for": form.name, **own.model_dump(mode="json", exclude_defaults=True)}
    return _job(kind, settings, _Pairing(own, form.name), asked)


def _job(
    kind: OutputKind,
    settings: ChooseSettings | PairSettings | ExportSettings,
    maker: RowMaker,
    asked: Mapping[str, Any],
    **more: Any,
) -> ExportJob:
    told = {**asked, "where": settings.where}
    own = {
        "kind": kind,
        "scored": settings.scored,
        "output": settings.output,
        "per": settings.per,
        "maker": maker,
        "asked": ", ".join(f"{name}: {value}" for name, value in told.items() if value is not None),
        "settings": settings.model_dump(mode="json", exclude={"overwrite"}),
        "where": settings.where,
        "partial": settings.partial,
        "overwrite": settings.overwrite,
        "fake_ok": isinstance(settings, ChooseSettings) or settings.fake_ok,
    }
    return ExportJob(**{**own, **more})


def pair_format(name: str) -> PairFormat:
    """A format by its name. Raises `SettingsError` if there is none."""
    if name not in PAIR_FORMATS:
        hint = " (of single responses: `assay export` makes it)" if name in RESPONSE_FORMATS else ""
        raise SettingsError(f"--for {name} is no format of pairs{hint}; there are {', '.join(PAIR_FORMATS)}")
    return PAIR_FORMATS[name]


def response_format(name: str) -> ResponseFormat:
    """A format of single responses by its name. Raises `SettingsError` if there is none."""
    if name not in RESPONSE_FORMATS:
        raise SettingsError(f"--for {name} is no format; there are {', '.join([*RESPONSE_FORMATS, *PAIR_FORMATS])}")
    return RESPONSE_FORMATS[name]


def advice(trainer: str, summary: ExportSummary) -> dict[str, Any] | None:
    """For a format whose trainer goes by how much better a response is: what its scale should be."""
    if trainer != _RPO or not summary.measures:
        return None
    return {**scale_advice(summary.measures).as_json(), "pairs": summary.rows}
