"""Who watches a run, such as a log elsewhere. The run knows none of them, and tells all the same."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.run.runtime.progress import Progress
from pipelines.settings.run_settings import JudgingSettings


class RunObserver:
    """Watches one run. Every method does nothing here; a subclass has those that it needs.

    `check` raises a `UserError` before anything is read, if it can't watch a run into this folder, `started` if it can't
    watch this run after all. `finished` is called when all parts are there and summed up, and not after an error.
    """

    def check(self, output: str) -> None: ...

    @contextmanager
    def started(self, settings: JudgingSettings, manifest: Manifest, progress: Progress) -> Iterator[Progress]:
        """A context for the duration of the run; gives the progress that the run reports to from here on.

        The manifest holds all that decides the run's numbers, `settings` are those of this session.
        """
        yield progress

    def finished(self, summary: Summary) -> None: ...
