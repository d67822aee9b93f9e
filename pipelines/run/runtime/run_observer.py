"""Who watches a run, such as a log elsewhere. The run knows none of them, and tells all the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.run.runtime.progress import Progress
from pipelines.settings.run_settings import JudgingSettings


class RunFacts(NamedTuple):
    """What is known of a run when it starts: all that decides its numbers, and the settings of this session."""

    settings: JudgingSettings
    manifest: Manifest


class RunObserver:
    """Watches one run. Every method does nothing here; a subclass has those that it needs."""

    def check(self, output: str) -> None:
        """Raise `UserError` if it can't watch a run into this folder. Called before anything is read."""

    @contextmanager
    def started(self, run: RunFacts, progress: Progress) -> Iterator[Progress]:
        """A context for the duration of the run; gives the progress that the run reports to from here on.

        Raises a `UserError` if it can't watch this run after all.
        """
        yield progress

    def finished(self, summary: Summary) -> None:
        """All parts are there and are summed up."""
