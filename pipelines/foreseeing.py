"""A recipe's later steps, checked before its first engine starts: what is wrong with them shall not be told after days.

What a run is going to make is settled by its plan, so conditions, scores and formats are checked against its columns.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from actors.errors import SettingsError
from pipelines import ensembling, filtering, made, making, planning, sampling, scored_folder, storage
from pipelines.columns import Columns
from pipelines.filter_step import KeepSummary
from pipelines.making import Job, MadeSummary
from pipelines.settings import RefineSettings, SampleSettings, ScoreSettings

_JOBS: Mapping[str, Callable[[Any], Job]] = {
    "choose": made.choosing_job,
    "pairs": made.pairing_job,
    "export": made.exporting_job,
}


def check_steps(steps: Mapping[str, Any]) -> None:
    """Raise a `UserError` that names the step, if one that follows a run can't be done as it is asked for."""
    runs = {storage.absolute(step.output): name for name, step in steps.items() if name in _OF_RUNS}
    later = {name: step for name, step in steps.items() if name not in _OF_RUNS}
    jobs = {name: _JOBS[name](step) for name, step in later.items() if name in _JOBS}
    if "filter" in later:
        filtering.check(later["filter"])
    _check_folders(later)
    if not runs:
        return
    planned: dict[str, Columns] = {}
    for name, step in later.items():
        if finished(name, step) is not None:
            continue
        folder = storage.absolute(step.scored)
        if (run := runs.get(folder)) is None:
            if any(storage.overlap(folder, other) for other in runs):
                continue  # what a run keeps inside its own folder, such as the members of an ensemble
            columns = scored_folder.scored_manifest(folder).columns
        else:
            columns = planned[run] = planned.get(run) or _OF_RUNS[run](steps[run])
        if name in jobs:
            making.check_ahead(jobs[name], columns)
        else:
            filtering.check_ahead(step, columns)


def finished(name: str, step: Any) -> KeepSummary | MadeSummary | None:
    """What came of a later step that there is nothing to do for any more; None for any other step."""
    if name in _JOBS:
        return making.finished(_JOBS[name](step))
    return filtering.finished(step) if name == "filter" else None


def _check_folders(later: Mapping[str, Any]) -> None:
    """Raise `SettingsError` if two steps write into one folder: the second would find what the first left there."""
    taken: dict[str, str] = {}
    for name, step in later.items():
        for folder in filter(None, (step.output, getattr(step, "rest", None))):
            other = taken.setdefault(storage.absolute(folder), name)
            if other != name:
                raise SettingsError(f"{other} and {name} both write into {folder}; give each a folder of its own")


def _scored(step: ScoreSettings) -> Columns:
    return planning.plan(step).preparation.columns


def _sampled(step: SampleSettings) -> Columns:
    if step.policy.policy is None:
        return planning.plan(step).preparation.columns
    sampling.check(step)
    return planning.plan(step, unanswered=True).preparation.columns


def _refined(step: RefineSettings) -> Columns:
    return replace(planning.plan(step, unanswered=True).preparation.columns, refined=True)


_OF_RUNS: Mapping[str, Callable[[Any], Columns]] = {
    "sample": _sampled,
    "refine": _refined,
    "score": _scored,
    "ensemble": ensembling.columns_ahead,
}
