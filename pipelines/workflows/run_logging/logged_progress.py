"""Logs a run elsewhere while it works: figures every ten seconds, and the summary at its end (`log`)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from actors.errors import SettingsError
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Part
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.run.runtime.progress import ForwardingProgress, Meter, Progress
from pipelines.run.runtime.run_observer import RunObserver
from pipelines.settings.run_settings import JudgingSettings
from pipelines.workflows.run_logging.log_thread import LOGGERS, LogThread
from pipelines.workflows.run_logging.run_logger import RunToLog

_EVERY_S = 10.0  # seconds: 8,640 points a day


class RunLogs(RunObserver):
    """The logs of one run, each by the name of its logger."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def check(self, output: str) -> None:
        """Raise `SettingsError` for a logger that there isn't, that isn't installed, or that can't log into this folder."""
        for name in self._names:
            if name not in LOGGERS:
                raise SettingsError(f"--set log={name}: there is no such logger; there are {', '.join(LOGGERS)}")
            LOGGERS[name].check(output)

    @contextmanager
    def started(self, settings: JudgingSettings, manifest: Manifest, progress: Progress) -> Iterator[Progress]:
        config = {**settings.model_dump(mode="json"), "identity": manifest.identity, "made_with": manifest.made_with}
        facts = RunToLog(manifest.run, storage.absolute(settings.output), config)
        with logged(self._names, facts, progress) as self._progress:
            yield self._progress

    def finished(self, summary: Summary) -> None:
        self._progress.summarised(summary.figures())


def observers_of(settings: JudgingSettings) -> list[RunObserver]:
    """Who watches a run by its settings: its logs.

    Commands hand them to the run, which knows no logger.
    """
    return [RunLogs(settings.log)] if settings.log else []


@contextmanager
def logged(names: Sequence[str], run: RunToLog, progress: Progress) -> Iterator["LoggedProgress"]:
    """Log the run in the block. Yields the progress that it must report to, and that must get the summary.

    Whatever a logger does, the run goes on: it is said once.
    """
    threads = [LogThread(LOGGERS[name], run, progress.noted) for name in dict.fromkeys(names)]
    logging = LoggedProgress(progress, threads)
    try:
        yield logging
    finally:
        logging.end()


class LoggedProgress(ForwardingProgress):
    """Passes events on, and figures of them to loggers."""

    def __init__(self, progress: Progress, threads: Sequence[LogThread]) -> None:
        super().__init__(progress)
        self._threads = threads
        self._meter: Meter | None = None
        self._before = 0
        self._logged_at = 0.0
        self._summary: Mapping[str, float] | None = None

    def __reduce__(self) -> tuple[type[ForwardingProgress], tuple[Progress]]:
        # Ray Data carries the progress to its workers along with the callbacks; the loggers' threads stay with the driver.
        return ForwardingProgress, (self._progress,)

    @contextmanager
    def running(self, files: Sequence[InputFile], done: Sequence[Part]) -> Iterator[Any]:
        meter = self._meter = Meter(files, done, time.monotonic())
        self._before = sum(part.counts.responses for part in done)
        with super().running(files, done) as inner:
            yield inner
        meter.complete()

    def part_done(self, part: Mapping[str, Any]) -> None:
        super().part_done(part)
        if self._meter is not None:
            now = time.monotonic()
            self._meter.add(part, now)
            if now - self._logged_at >= _EVERY_S:
                self._logged_at = now
                self._log(self._meter, now)

    def summarised(self, figures: Mapping[str, float]) -> None:
        self._summary = figures

    def end(self) -> None:
        if self._meter is not None and self._meter.has_parts:
            self._log(self._meter, time.monotonic())
        summary = {f"summary/{name}": value for name, value in (self._summary or {}).items()}
        for thread in self._threads:
            thread.end(summary, self._step, is_complete=self._summary is not None)

    @property
    def _step(self) -> int:
        # The number of responses that are done, in all sessions: a resumed run goes on where its log ended.
        if self._summary is not None:
            return int(self._summary["responses"])
        return self._before + (self._meter.responses if self._meter else 0)

    def _log(self, meter: Meter, now: float) -> None:
        figures = {f"progress/{name}": value for name, value in meter.figures(now).items()}
        for thread in self._threads:
            thread.log(figures, self._before + meter.responses)
