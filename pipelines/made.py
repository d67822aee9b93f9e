"""The three things that are made of scored candidates: a choice, pairs for a trainer, and other exports for trainers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actors.errors import SettingsError
from pipelines import choosing, making
from pipelines.candidates import Candidate, Pair
from pipelines.filtering import scored_manifest
from pipelines.kept_folder import Kind
from pipelines.make_settings import (
    ChoiceOfCandidates,
    ChooseSettings,
    ExportSettings,
    PairingSettings,
    PairSettings,
    PairsOf,
)
from pipelines.making import Job, Made, MadeSummary
from pipelines.pairing import pairs
from pipelines.trainers import PAIR_FORMATS, RESPONSE_FORMATS, Labels, PairFormat, ResponseFormat, scale_advice

__all__ = ["choose", "export", "make_pairs"]

CHOSEN, PAIRS, EXPORTED = Kind("choose", ("chosen",)), Kind("pairs", ("pairs",)), Kind("export", ("rows",))
_NOT_CHOSEN, _NO_PAIR = "not chosen", "no two that differ enough"
_RPO = "nemo-aligner-rpo"


@dataclass(frozen=True)
class _Choosing:
    settings: ChoiceOfCandidates

    def __call__(self, candidates: Sequence[Candidate]) -> Made:
        chosen = choosing.choose(candidates, self.settings)
        return Made([one.as_row() for one in chosen], {_NOT_CHOSEN: len(candidates) - len(chosen)})


@dataclass(frozen=True)
class _Pairing:
    """Its format is known by its name: functions don't travel to workers in it."""

    settings: PairingSettings
    trainer: str

    def __call__(self, candidates: Sequence[Candidate]) -> Made:
        form = PAIR_FORMATS[self.trainer]
        found = pairs(candidates, self.settings)
        refused = Counter(reason for pair in found if (reason := form.check(pair)) is not None)
        told: list[Pair] = [pair for pair in found if form.check(pair) is None]
        left = {**refused, **({} if found else {_NO_PAIR: 1})}
        return Made([row for pair in told for row in form.rows(pair)], left, [pair.margin for pair in told])


@dataclass(frozen=True)
class _Exporting:
    trainer: str
    labels: Labels

    def __call__(self, candidates: Sequence[Candidate]) -> Made:
        form = RESPONSE_FORMATS[self.trainer]
        refused = Counter(reason for one in candidates if (reason := form.check(one)) is not None)
        return Made(list(form.rows([one for one in candidates if form.check(one) is None], self.labels)), refused)


def choose(settings: ChooseSettings) -> MadeSummary:
    """Keep the candidates of each prompt that are asked for, as conversations for supervised training. Raises as `make`."""
    choosing.check(settings)
    making.check_scores(scored_manifest(settings.scored), settings.voters, "--voters")
    own = ChoiceOfCandidates(**{name: getattr(settings, name) for name in ChoiceOfCandidates.model_fields})
    return making.make(
        Job(
            CHOSEN,
            settings.scored,
            settings.output,
            settings.per,
            _Choosing(own),
            _told(own.model_dump(mode="json", exclude_defaults=True)),
            settings.model_dump(mode="json", exclude={"overwrite"}),
            settings.partial,
            settings.overwrite,
        )
    )


def make_pairs(settings: PairSettings) -> MadeSummary:
    """Make preference pairs in a trainer's format. Raises as `make`, and `SettingsError` for a format that isn't known."""
    return making.make(_pairs_job(PAIRS, settings, settings.trainer, pair_format(settings.trainer)))


def export(settings: ExportSettings) -> MadeSummary:
    """Write single responses, or pairs, in a trainer's format. Raises as `make_pairs`."""
    if settings.trainer in PAIR_FORMATS:
        if settings.threshold is not None:
            raise SettingsError(f"--for {settings.trainer} is made of pairs, and has no use for --threshold")
        return making.make(_pairs_job(EXPORTED, settings, settings.trainer, PAIR_FORMATS[settings.trainer]))
    form = response_format(settings.trainer)
    if form.needs_threshold and settings.threshold is None:
        raise SettingsError(f"--for {form.name} tells desirable responses from others: give --threshold, a reward")
    unused = settings.model_dump(include={"per", *PairingSettings.model_fields}, exclude_defaults=True)
    if unused:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(unused))
        raise SettingsError(f"--for {form.name} is made of single responses, and has no use for {flags}")
    if not form.needs_threshold and settings.threshold is not None:
        raise SettingsError(f"--for {form.name} has no use for --threshold")
    making.check_scores(scored_manifest(settings.scored), form.needs_scores, f"--for {form.name}")
    return making.make(
        Job(
            EXPORTED,
            settings.scored,
            settings.output,
            "conversation",
            _Exporting(form.name, Labels(settings.threshold)),
            _told({"for": form.name, "threshold": settings.threshold}),
            settings.model_dump(mode="json", exclude={"overwrite"}),
            settings.partial,
            settings.overwrite,
        )
    )


def _pairs_job(kind: Kind, settings: PairSettings | ExportSettings, trainer: str, form: PairFormat) -> Job:
    if settings.length_balanced and settings.pairs in (PairsOf.ALL, PairsOf.CONSECUTIVE):
        raise SettingsError(f"--length-balanced chooses a partner for the best one, and --pairs {settings.pairs} needs none")
    own = PairingSettings(**{name: getattr(settings, name) for name in PairingSettings.model_fields})
    return Job(
        kind,
        settings.scored,
        settings.output,
        settings.per,
        _Pairing(own, form.name),
        _told({"for": trainer, **own.model_dump(mode="json", exclude_defaults=True)}),
        settings.model_dump(mode="json", exclude={"overwrite"}),
        settings.partial,
        settings.overwrite,
    )


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


def advice(trainer: str, summary: MadeSummary) -> dict[str, Any] | None:
    """For a format whose trainer goes by how much better a response is: what its scale should be."""
    if trainer != _RPO or not summary.measures:
        return None
    return {**scale_advice(summary.measures).as_json(), "pairs": summary.rows}


def _told(asked: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in asked.items() if value is not None)
