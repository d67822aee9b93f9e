"""Checks a recipe's later steps before its first engine starts, so that a mistake in them doesn't show after days.

The columns that a run will write follow from its settings, so conditions, scores and formats are checked against those.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from actors.errors import SettingsError
from pipelines.data import storage
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.scored_corpus import scored_folder
from pipelines.results.exports import export_job
from pipelines.results.exports.export_commands import JOBS
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.results.filtering import filter_corpus
from pipelines.results.filtering.filter_step import FilterSummary
from pipelines.run.prepare import resolve_run
from pipelines.run.sampling import sample_prompts
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.run_settings import MembersSettings, SampleSettings, ScoreSettings
from pipelines.workflows.benchmarking.benchmark_files import benchmark_files
from pipelines.workflows.cascades import score_cascade
from pipelines.workflows.ensembles import score_ensemble


def check_stages(stages: Sequence[Mapping[str, Any]]) -> None:
    """Raise a `UserError` if the first stage can't be done, or a later one reads what is neither there nor written before.

    Whether a later stage can be done is checked once its input is there.
    """
    written: list[str] = []
    for stage in stages:
        _check_settings(stage)
        outputs = [folder for step in stage.values() for folder in (step.output, getattr(step, "rest", None)) if folder]
        if written and (twice := [folder for folder in outputs if storage.absolute(folder) in written]):
            raise SettingsError(f"two stages of the recipe write into {twice[0]}; give each a folder of its own")
        inputs = [(name, path) for name, step in stage.items() if hasattr(step, "corpus") for path in step.corpus.inputs]
        for name, path in inputs if written else ():
            place = storage.absolute(path)
            if not any(storage.overlap(place, folder) for folder in written) and storage.find(place) is None:
                raise SettingsError(f"then: {name}: {path} isn't there, and no step before it writes it")
        written += map(storage.absolute, outputs)


def check_steps(steps: Mapping[str, Any]) -> None:
    """Raise a `UserError` that names the step, if a step after the run can't be done with its settings."""
    runs = {storage.absolute(step.output): name for name, step in steps.items() if name in _COLUMNS_OF_RUN}
    _check_shown(steps)
    later = {name: step for name, step in steps.items() if name not in (*_COLUMNS_OF_RUN, "evaluate", "report")}
    jobs = _check_settings(steps)
    _check_folders({name: step for name, step in steps.items() if name not in _COLUMNS_OF_RUN})
    if not runs:
        return
    filtered = {storage.absolute(folder): storage.absolute(step.scored) for folder, step in _filtered(later)}
    planned: dict[str, Columns] = {}
    for name, step in later.items():
        if read_finished_step(name, step) is not None:
            continue  # done by an earlier run of the recipe: its input may be gone
        folder = storage.absolute(step.scored)
        folder = filtered.get(folder, folder)  # what the recipe's filter keeps has the columns of what it filters
        if (run := runs.get(folder)) is None:
            if any(storage.overlap(folder, other) for other in runs):
                continue  # a folder inside the run's, such as an ensemble's models/: it doesn't exist yet
            columns = scored_folder.read_scored_manifest(folder, name).columns
        else:
            columns = planned[run] = planned.get(run) or _COLUMNS_OF_RUN[run](steps[run])
        if name in jobs:
            export_job.check_ahead(jobs[name], columns)
            if run is not None and _is_made_up(steps[run]):
                export_job.refuse_made_up(jobs[name])
        else:
            filter_corpus.check_ahead(step, columns)


def _check_settings(steps: Mapping[str, Any]) -> dict[str, export_job.ExportJob]:
    """The exports of a recipe. Raises a `UserError` for a setting that is wrong whatever the steps read."""
    for name, step in steps.items():
        if getattr(step, "hub", None) is not None:
            raise SettingsError(f"{name}: a recipe doesn't upload; `assay upload FOLDER {step.hub}` does, when it is done")
    if "filter" in steps:
        filter_corpus.check(steps["filter"])
    return {name: JOBS[name](step) for name, step in steps.items() if name in JOBS}


def _check_shown(steps: Mapping[str, Any]) -> None:
    """Raise a `UserError` if what `evaluate` or `report` reads neither is there nor will be."""
    outputs = (folder for step in steps.values() for folder in (step.output, getattr(step, "rest", None)))
    written = [storage.absolute(folder) for folder in outputs if folder is not None]
    for name, step in ((name, step) for name, step in steps.items() if name in ("evaluate", "report")):
        if name == "evaluate" and step.scores_files:
            benchmark_files(step)
            continue
        for folder in map(storage.absolute, step.scored):
            if storage.folder(folder).is_empty() and not any(storage.overlap(folder, other) for other in written):
                raise SettingsError(f"{name}: {folder} isn't there, and no step of the recipe writes it")


def _is_made_up(run: Any) -> bool:
    """Whether rewards of a run are made up by the fake engine."""
    engines = [model.engine or run.engine for model in run.models] if isinstance(run, MembersSettings) else [run.engine]
    return any(engine.engine == "fake" for engine in engines)


def _filtered(later: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The folders that the recipe's filter writes, each with the step."""
    step = later.get("filter")
    return [] if step is None else [(folder, step) for folder in (step.output, step.rest) if folder is not None]


def read_finished_step(name: str, step: Any) -> FilterSummary | ExportSummary | None:
    """The summary of a later step that is complete; None for any other step."""
    if name in JOBS:
        return export_job.read_finished_export(JOBS[name](step))
    return filter_corpus.read_finished_filter(step) if name == "filter" else None


def _check_folders(later: Mapping[str, Any]) -> None:
    """Raise `SettingsError` if two steps write into one folder: the second would find the output of the first there."""
    writers: dict[str, str] = {}
    for name, step in later.items():
        for folder in filter(None, (step.output, getattr(step, "rest", None))):
            other = writers.setdefault(storage.absolute(folder), name)
            if other != name:
                raise SettingsError(f"{other} and {name} both write into {folder}; give each a folder of its own")


def _scored_columns(step: ScoreSettings) -> Columns:
    return resolve_run.resolve(step).preparation.columns


def _sampled_columns(step: SampleSettings) -> Columns:
    sample_prompts.check(step)
    return resolve_run.resolve(step, unanswered=True).preparation.columns


def _refined_columns(step: RefineSettings) -> Columns:
    return replace(resolve_run.resolve(step, unanswered=True).preparation.columns, refined=True)


_COLUMNS_OF_RUN: Mapping[str, Callable[[Any], Columns]] = {
    "sample": _sampled_columns,
    "refine": _refined_columns,
    "score": _scored_columns,
    "ensemble": score_ensemble.columns_ahead,
    "cascade": score_cascade.columns_ahead,
}
