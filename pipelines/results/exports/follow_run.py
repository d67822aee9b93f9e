"""Exports that follow a run: rows are written for each part right after its commit."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from pipelines.data.storage.lease import lease
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.results.exports import export_job
from pipelines.results.exports.export_job import ExportJob, FinishedExport
from pipelines.run.runtime.progress import Progress
from pipelines.run.runtime.run_observer import RunFacts, RunObserver


class FollowingExports(RunObserver):
    """Some jobs that go row by row. Parts of earlier sessions that lack their rows get them at the end."""

    def __init__(self, jobs: Sequence[ExportJob]) -> None:
        self._jobs = jobs

    @contextmanager
    def started(self, run: RunFacts, progress: Progress) -> Iterator[Progress]:
        """See `RunObserver`. Holds the leases of the folders that are written to."""
        unfinished = [job for job in self._jobs if export_job.read_finished_export(job) is None]
        for job in unfinished:
            export_job.check(job, run.manifest)
        with ExitStack() as leases:
            for job in unfinished:
                leases.enter_context(lease(job.output, progress.noted, run.settings.work.storage_patience_s))
            steps = [export_job.begin(job, OpenedCorpus(job.settings.scored, run.manifest, []))[0] for job in unfinished]
            self.follow_parts = functools.partial(export_job.follow, steps=steps) if steps else None
            yield progress

    def finished(self, summary: Summary) -> Summary:
        """See `RunObserver`: the summary with the counts of each export."""
        made = [FinishedExport(job, export_job.read_finished_export(job) or export_job.complete(job)) for job in self._jobs]
        return replace(summary, made=made)
