"""A logger in a thread of its own, so that its failures can't affect the run.

The run puts its figures into a bounded queue and never waits for the logger. What the logger notes is passed on in the run's
thread, when it logs next or ends.
"""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from actors.extensions import Extensions
from pipelines.workflows.run_logging.run_logger import LoggerKind, RunToLog

LOGGERS = Extensions("assay.loggers", "pipelines.workflows.run_logging.run_loggers", "LOGGER", LoggerKind)

_END_S, _END_EARLY_S = 30.0, 5.0  # that the end of a run waits for its log; early: after Ctrl-C, or a failure
_MOST_WAITING = 360  # figures that may wait for a logger: an hour's, as they come every ten seconds
_MAX_ERROR = 300  # characters of a client's error that are shown, of its first line


class _Event(NamedTuple):
    figures: Mapping[str, float]
    step: int
    is_complete: bool | None = None  # None but of the last one


class LogThread:
    """The run's side of one logger. No method raises what the logger raises, nor waits, but `end`, for at most 30 s."""

    def __init__(self, kind: LoggerKind, run: RunToLog, notify: Callable[[str], None]) -> None:
        self._name, self._notify = kind.name, notify
        self._events: queue.Queue[_Event] = queue.Queue(_MOST_WAITING)
        self._place: str | None = None
        self._failure: str | None = None
        self._has_failed = False
        # A daemon: one that hangs doesn't keep the process alive.
        self._thread = threading.Thread(target=self._work, args=(kind, run), name=f"log {kind.name}", daemon=True)
        self._thread.start()

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._put(_Event(figures, step))
        self._pass_notes_on()

    def end(self, summary: Mapping[str, float], step: int, *, is_complete: bool) -> None:
        """Pass the summary on, and wait a little until all is sent."""
        self._put(_Event(summary, step, is_complete))
        patience_s = _END_S if is_complete else _END_EARLY_S
        if not self._has_failed:
            self._thread.join(patience_s)
        is_at_work = self._thread.is_alive()
        self._pass_notes_on()
        if is_at_work:
            self._fail(f"isn't done {patience_s:g} s after the run's end, and is left unfinished")

    def _put(self, event: _Event) -> None:
        if self._has_failed:
            return
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._fail("takes nothing more")

    def _pass_notes_on(self) -> None:
        # Here, in the run's thread: the logger's sets texts, and calls nothing of the run.
        if self._place is not None and not self._has_failed:
            place, self._place = self._place, None
            self._notify(f"log {self._name}: {place}")
        if self._failure is not None:
            self._fail(f"failed: {self._failure}")

    def _fail(self, what: str) -> None:
        # Once: figures that come later would make a log with a gap that nobody sees.
        if not self._has_failed:
            self._notify(f"log {self._name} {what}; the run goes on without it")
        self._has_failed = True

    def _work(self, kind: LoggerKind, run: RunToLog) -> None:
        try:
            logger = kind.start(run)
            self._place = logger.place
            step = 0
            while (event := self._events.get()).is_complete is None:
                step = max(step, event.step)  # W&B drops figures of a step before the last one's
                logger.log(event.figures, step)
            logger.end(event.figures, max(step, event.step), is_complete=event.is_complete)
        except BaseException as error:  # noqa: BLE001  whatever a client raises; some call sys.exit()
            self._failure = _error_text(error)


def _error_text(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_MAX_ERROR]
