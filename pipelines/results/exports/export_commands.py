"""The jobs of the three commands that export scored candidates: `choose`, `pairs` and `export`."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from actors.errors import SettingsError
from actors.settings.same_plugin import find
from pipelines.data.corpus.assay_folders import CHOSEN, EXPORTED, PAIRS
from pipelines.folders.scored_corpus.candidates import Candidate, LabelAgreement, LeftField, count_left
from pipelines.results.exports import choose_candidates
from pipelines.results.exports.export_counts import ExportedRows, ExportSummary
from pipelines.results.exports.export_job import ExportJob, run_export
from pipelines.results.exports.pair_candidates import pairs
from pipelines.results.exports.trainer_format import Labels, PairFormat, ResponseFormat, TrainerFormat
from pipelines.results.exports.trainer_messages import Refusal, without_unkept_turns
from pipelines.results.exports.trainers import FORMATS, PAIR_FORMATS, RESPONSE_FORMATS
from pipelines.settings.export_settings import (
    ChoiceOfCandidates,
    ChooseSettings,
    ExportSettings,
    LabelsOfCorpus,
    PairingSettings,
    PairSettings,
    PairsOf,
)

__all__ = ["choose", "export", "make_pairs"]

Format = TypeVar("Format", bound=TrainerFormat)

_NOT_CHOSEN, _ALONE = "not chosen", "the only candidate for its prompt"
_EQUAL = "no two candidates with different rewards and texts"
_CLOSE = "no two candidates that differ enough (--min-margin)"
_AGAINST, _NO_LABEL = "against the label", "without a label"
_CHOSEN_RESERVED = (
    *("reward", "scores", "rank", "z_score", "of", "prompt_hash", "row", "response_name"),  # of `RankedCandidate.as_row`
    *RESPONSE_FORMATS["sft"].reserved,  # what is chosen is trained on as such conversations are
)


def choose(settings: ChooseSettings) -> ExportSummary:
    """Write the chosen candidates of each prompt as conversations for supervised training.

    Raises what `run_export` raises.
    """
    return run_export(choosing_job(settings))


def make_pairs(settings: PairSettings) -> ExportSummary:
    """Make preference pairs in a trainer's format.

    Raises what `run_export` raises, and `SettingsError` for an unknown format.
    """
    return run_export(pairing_job(settings))


def export(settings: ExportSettings) -> ExportSummary:
    """Write single responses in a trainer's format.

    Raises what `run_export` raises, and `SettingsError` for an unknown format or a threshold that it has no use for.
    """
    return run_export(exporting_job(settings))


def choosing_job(settings: ChooseSettings) -> ExportJob:
    """The job of `choose`, which a recipe checks before its first engine starts.

    Raises `SettingsError` if the settings contradict each other.
    """
    choose_candidates.check(settings)
    return ExportJob(
        CHOSEN,
        settings,
        partial(_choose_rows, settings=settings),
        _describe(settings, ChoiceOfCandidates),
        per=settings.per,
        needs=settings.voters,
        reserved=_CHOSEN_RESERVED,
    )


def pairing_job(settings: PairSettings) -> ExportJob:
    """The job of `pairs`. Raises `SettingsError` if its settings contradict each other."""
    form, plugin = _format(settings.trainer, PairFormat), FORMATS.plugin_of(settings.trainer)
    if settings.length_balanced and settings.pairs in (PairsOf.ALL, PairsOf.CONSECUTIVE):
        raise SettingsError(f"length_balanced chooses a partner for the best one, and --pairs {settings.pairs} needs none")
    return ExportJob(
        PAIRS,
        settings,
        partial(_pair_rows, plugin=plugin, settings=settings),
        _describe(settings, PairingSettings),
        per=settings.per,
        reserved=form.reserved,
        trainer_plugin=plugin,
    )


def exporting_job(settings: ExportSettings) -> ExportJob:
    """The job of `export`. Raises `SettingsError` if its settings contradict each other."""
    form, plugin = _format(settings.trainer, ResponseFormat), FORMATS.plugin_of(settings.trainer)
    if form.needs_threshold and settings.threshold is None:
        raise SettingsError(f"--for {form.name} tells desirable responses from others: give --threshold, a reward")
    if not form.needs_threshold and settings.threshold is not None:
        raise SettingsError(f"--for {form.name} has no use for --threshold")
    return ExportJob(
        EXPORTED,
        settings,
        partial(_response_rows, trainer=form.name, plugin=plugin, labels=Labels(settings.threshold)),
        _describe(settings, ExportSettings, "threshold"),
        per="conversation",  # a thread's turns are trained on as one row, so they must be seen together
        needs=form.needs_scores,
        reserved=form.reserved,
        trainer_plugin=plugin,
    )


JOBS: Mapping[str, Callable[[Any], ExportJob]] = {"choose": choosing_job, "pairs": pairing_job, "export": exporting_job}


def _describe(settings: ChooseSettings | PairSettings | ExportSettings, kind: type[Any], *names: str) -> str:
    """In one line: the format, those settings of a `kind` that aren't the defaults, or some of them, and which are read."""
    shown = settings.model_dump(mode="json", include={*(names or kind.model_fields)}, exclude_defaults=True)
    trainer = {} if isinstance(settings, ChooseSettings) else {"for": settings.trainer}
    more = {"where": settings.where, "fields": None if settings.fields else False}
    return ", ".join(f"{name}: {value}" for name, value in {**trainer, **shown, **more}.items() if value is not None)


def _format(name: str, kind: type[Format]) -> Format:
    """The format of this name and kind. Raises `SettingsError` if there is none."""
    form = FORMATS.get(name)
    if isinstance(form, kind):
        return form
    what = {PairFormat: ("pairs", "pairs"), ResponseFormat: ("single responses", "export")}
    if form is None:
        names = ", ".join(form.name for form in FORMATS.values() if isinstance(form, kind))
        raise SettingsError(f"--for {name} is no format of {what[kind][0]}; there are {names}")
    made_of, command = what[type(form)]  # the other command's
    raise SettingsError(f"--for {name} is a format of {made_of}: `assay {command} --for {name}` writes it")


def _choose_rows(candidates: Sequence[Candidate], settings: ChoiceOfCandidates) -> ExportedRows:
    kept = choose_candidates.choose(candidates, settings)
    contents = [ranked.candidate.read() for ranked in kept]
    rows = [{**ranked.as_row(), **content.fields} for ranked, content in zip(kept, contents, strict=True)]
    left_fields = count_left(content.left for content in contents)
    return ExportedRows(rows, {_NOT_CHOSEN: len(candidates) - len(kept)}, left_fields=left_fields)


def _pair_rows(candidates: Sequence[Candidate], plugin: str | None, settings: PairSettings) -> ExportedRows:
    form = find(PAIR_FORMATS, settings.trainer, plugin)  # again, as a worker may have another version
    # Annotated: `list[float]()` takes 0.3 µs and `[]` 0.02, and this is done for each prompt.
    rows: list[Mapping[str, Any]] = []
    refusals: dict[str, int] = {}
    labels: dict[str, int] = {}
    left_fields: list[Mapping[str, LeftField]] = []
    all_pairs = pairs(candidates, settings)
    for pair in all_pairs:
        agreement = pair.agreement
        # Rows are those of the pairs that are written; agreement with labels is counted over all pairs, else a filter by
        # labels would always report full agreement.
        labels[agreement.value] = labels.get(agreement.value, 0) + 1
        if (reason := _refuse_label(agreement, settings.labels) or form.refuse(pair)) is not None:
            refusals[reason] = refusals.get(reason, 0) + 1
            continue
        fields, left_of_pair = pair.own_fields
        left_fields.append(left_of_pair)
        rows += [_add_fields(row, fields, form) for row in form.rows(pair)]
    if not all_pairs:
        # One for the prompt, however many candidates it has: what wasn't made is a pair.
        refusals[_ALONE if len(candidates) == 1 else _CLOSE if settings.min_margin else _EQUAL] = 1
    return ExportedRows(rows, refusals, labels, count_left(left_fields))


def _refuse_label(agreement: LabelAgreement, policy: LabelsOfCorpus) -> str | None:
    if policy is not LabelsOfCorpus.IGNORE and agreement is LabelAgreement.DISAGREES:
        return _AGAINST
    return _NO_LABEL if policy is LabelsOfCorpus.REQUIRE and agreement is LabelAgreement.UNLABELLED else None


def _response_rows(candidates: Sequence[Candidate], trainer: str, plugin: str | None, labels: Labels) -> ExportedRows:
    form = find(RESPONSE_FORMATS, trainer, plugin)
    reasons = [form.refuse_response(candidate) for candidate in candidates]
    accepted = [candidate for candidate, reason in zip(candidates, reasons, strict=True) if reason is None]
    exportable = without_unkept_turns(accepted) if form.whole else accepted
    refused = Counter(reason for reason in reasons if reason is not None)
    if len(exportable) < len(accepted):
        refused[Refusal.AFTER_UNKEPT_TURN] = len(accepted) - len(exportable)
    if not exportable:
        return ExportedRows((), refused)
    content = exportable[0].read()  # all are of one input row, and fields are the row's
    rows = [_add_fields(row, content.fields, form) for row in form.rows(exportable, labels)]
    return ExportedRows(rows, refused, left_fields=count_left([content.left] * len(rows)))


def _add_fields(row: Mapping[str, Any], fields: Mapping[str, Any], form: TrainerFormat) -> dict[str, Any]:
    """A row of a format with the input's own fields. Raises `SettingsError` for one that a field, or JSON, would change."""
    if unreserved := row.keys() - form.reserved:
        names = ", ".join(map(repr, sorted(unreserved)))
        raise SettingsError(f"--for {form.name}: `reserved` lacks {names} of its rows, whose place a field could take")
    if not _is_finite(row):
        raise SettingsError(f"--for {form.name}: its row has a NaN or an infinity, which JSON hasn't: {str(row)[:200]}")
    return {**row, **fields}


def _is_finite(value: object) -> bool:
    if isinstance(value, dict | list | tuple):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
