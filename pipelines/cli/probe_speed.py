"""Measures an engine's speed for a plan: scores the first rows of the corpus into a temporary folder, for a minute."""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from actors.errors import SettingsError
from pipelines.estimate.cost import EngineSpeed
from pipelines.runtime.progress import Silent
from pipelines.runtime.run_timing import RunWork, read_run_work
from pipelines.scored_corpus.parts import Parts
from pipelines.scoring import score_corpus
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.settings.run_settings import ScoreSettings

MOST_ROWS, MOST_S = 256, 60.0
_PART_ROWS = 16  # the clock is read after each part


def probe_speed(settings: PlanSettings, notify: Callable[[str], None]) -> EngineSpeed:
    """The speed of one engine on this machine, from its first part of work on. Raises `SettingsError` if none was scored."""
    notify(
        f"--probe: starting an engine and scoring the first {MOST_ROWS} rows, which ends {MOST_S:.0f} s after its first part"
    )
    clock = _ProbeClock(notify)
    with tempfile.TemporaryDirectory(prefix="assay-probe-") as folder:
        with suppress(_Enough):
            score_corpus.score(_probe_run(settings, folder), clock)
        work = read_run_work(Parts(folder))
    return _speed(clock, work)


def _probe_run(settings: PlanSettings, folder: str) -> ScoreSettings:
    run = settings.as_score()
    rows = min(MOST_ROWS, run.corpus.limit or MOST_ROWS)
    return run.model_copy(
        update={
            "output": folder,
            "corpus": run.corpus.model_copy(update={"limit": rows}),
            "work": run.work.model_copy(update={"replicas": 1, "part_rows": _PART_ROWS}),
        }
    )


def _speed(clock: "_ProbeClock", work: RunWork) -> EngineSpeed:
    if not clock.tokens or not work.working:
        why = work.why or "none of their responses was accepted"
        raise SettingsError(
            f"--probe: the first {MOST_ROWS} rows don't tell how fast an engine is: {why}; give --tokens-per-s"
        )
    source = (
        f"measured by --probe on this machine: {clock.tokens:,} tokens of {clock.responses:,} responses in "
        f"{work.working:,.1f} s"
    )
    return EngineSpeed(clock.tokens / work.working, None, source, start_s=work.start)


class _Enough(Exception):
    """The time is over."""


class _ProbeClock(Silent):
    """Counts what is scored, and ends the run when its time is over."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._first_at: float | None = None
        self.responses = 0
        self.tokens = 0

    def noted(self, text: str) -> None:
        """See `Progress`."""
        self._notify(text)

    def part_done(self, part: Mapping[str, Any]) -> None:
        """See `Progress`. Raises `_Enough`."""
        now = time.monotonic()
        self._first_at = self._first_at or now
        self.responses += part["scored"] + part["rejected"] + part["failed"]
        self.tokens += part["tokens"]
        if now - self._first_at >= MOST_S:
            raise _Enough
