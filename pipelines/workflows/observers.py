"""Who watches a run by its settings: its logs, and the exports that follow it."""

from collections.abc import Sequence

from pipelines.results.exports.export_commands import jobs_of_run
from pipelines.results.exports.export_job import ExportJob
from pipelines.results.exports.follow_run import FollowingExports
from pipelines.run.runtime.run_observer import RunObserver
from pipelines.settings.run_settings import JudgingSettings
from pipelines.workflows.run_logging.logged_progress import RunLogs


def observers_of(settings: JudgingSettings, jobs: Sequence[ExportJob] = ()) -> list[RunObserver]:
    """The observers of a run: its logs, the export of the candidates that it keeps, and `jobs`, which follow it, too."""
    jobs = [*jobs_of_run(settings), *jobs]
    return [*([FollowingExports(jobs)] if jobs else []), *([RunLogs(settings.log)] if settings.log else [])]
