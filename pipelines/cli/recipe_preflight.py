"""Checks a recipe's later steps before its first engine starts, so that a mistake in them doesn't show after days.

The columns that a run will write follow from its settings, so conditions, scores and formats are checked against those.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from actors.errors import SettingsError
from pipelines.cli.report import is_made_up
from pipelines.data import storage
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.scored_corpus import scored_folder
from pipelines.results.exports import export_job
from pipelines.results.exports.export_commands import JOBS
from pipelines.results.filtering import filter_corpus
from pipelines.run.prepare import resolve_run
from pipelines.run.sampling import sample_prompts
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.report_settings import ReportSettings
from pipelines.settings.run_settings import SampleSettings, ScoreSettings
from pipelines.workflows.benchmarking.benchmark_files import benchmark_files
from pipelines.workflows.cascades import score_cascade
from pipelines.workflows.ensembles import score_ensemble


def check_stages(stages: Sequence[Mapping[str, Any]]) -> None:
    """Raise a `UserError` for a setting that is wrong whatever a step reads, and for folders that don't go together.

    Two steps may not write into one folder, and what a step reads must be there or be written by a step before it.
    """
    writers: dict[str, str] = {}  # by folder, the step that writes it
    for number, stage in enumerate(stages):
        for name, step in stage.items():
            title = "then: " * number + name
            if getattr(step, "hub", None) is not None:
                raise SettingsError(
                    f"{name}: a recipe doesn't upload; `assay upload FOLDER {step.hub}` does, when it is done"
                )
            if name == "filter":
                filter_corpus.check(step)
            if name in JOBS:
                JOBS[name](step)  # refuses wrong settings by itself; the job is made again when its stage comes
            _check_inputs(title, step, writers)
            for folder in filter(None, (step.output, getattr(step, "rest", None))):
                writer = writers.setdefault(storage.absolute(folder), title)
                if writer != title:
                    raise SettingsError(f"{writer} and {title} both write into {folder}; give each a folder of its own")


def _check_inputs(title: str, step: Any, writers: Mapping[str, str]) -> None:
    has_corpus = hasattr(step, "corpus")
    is_shown = isinstance(step, ReportSettings) or (isinstance(step, EvaluateSettings) and not step.scores_files)
    paths = step.corpus.inputs if has_corpus else step.scored if is_shown else ()
    # The first step looks at what it reads itself, and says more of it: before it nothing is lost.
    for path in paths if writers else ():
        place = storage.absolute(path)
        # Only inputs may be patterns. A scored folder isn't listed whole: it may have a million parts.
        is_missing = storage.find(place) is None if has_corpus else storage.folder(place).is_empty()
        if is_missing and not any(storage.overlap(place, folder) for folder in writers):
            raise SettingsError(f"{title}: {path} isn't there, and no step before it writes it")


def check_steps(steps: Mapping[str, Any]) -> None:
    """Raise a `UserError` that names the step, if a step after the run can't be done with its settings.

    The steps are those of one stage, whose input is there: an earlier stage may have written it.
    """
    runs = {storage.absolute(step.output): name for name, step in steps.items() if name in _COLUMNS_OF_RUN}
    if "evaluate" in steps and steps["evaluate"].scores_files:
        benchmark_files(steps["evaluate"])
    jobs = {name: JOBS[name](step) for name, step in steps.items() if name in JOBS}
    if not runs:
        return
    filtered: dict[str, str] = {}  # what the recipe's filter keeps has the columns of what it filters
    if (kept := steps.get("filter")) is not None:
        folders = filter(None, (kept.output, kept.rest))
        filtered = {storage.absolute(folder): storage.absolute(kept.scored) for folder in folders}
    planned: dict[str, Columns] = {}
    for name, step in steps.items():
        if name not in (*jobs, "filter"):
            continue
        job = jobs.get(name)
        finished = filter_corpus.read_finished_filter(step) if job is None else export_job.read_finished_export(job)
        if finished is not None:
            continue  # an earlier run of the recipe did it, and its input may be gone
        folder = storage.absolute(step.scored)
        folder = filtered.get(folder, folder)
        if (run := runs.get(folder)) is None:
            if any(storage.overlap(folder, other) for other in runs):
                continue  # a folder inside the run's, such as an ensemble's models/: it doesn't exist yet
            columns = scored_folder.read_scored_manifest(folder, name).columns
        else:
            # Resolved once for a run, since that reads the model's files and a sample of the rows.
            columns = planned[run] = planned.get(run) or _COLUMNS_OF_RUN[run](steps[run])
        if job is None:
            filter_corpus.check_ahead(step, columns)
        else:
            export_job.check_ahead(job, columns)
            if run is not None and is_made_up(steps[run]):
                export_job.refuse_made_up(job)


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
