"""Measures an engine's speed for a plan: scores the first rows of the corpus into a temporary folder, for a minute."""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow.compute as pc

from actors.errors import SettingsError
from pipelines.estimate.cost import EngineSpeed
from pipelines.run_folder.columns import PROMPT_TOKENS
from pipelines.run_folder.parts import Parts, read_table
from pipelines.runtime.progress import Silent
from pipelines.runtime.run_timing import read_session_notes
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
    with tempfile.TemporaryDirectory(prefix="assay-probe-") as folder:
        with suppress(_Enough):
            score_corpus.score(_probe_run(settings, folder), _ProbeClock(notify))
        return _speed(Parts(folder), settings.prefix)


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


def _speed(parts: Parts, prefix: str) -> EngineSpeed:
    """The speed by all parts that were committed, also those that weren't reported before the end."""
    committed = parts.listing()
    responses = sum(part.counts.responses for part in committed)
    tables = (read_table(parts.path(part)) for part in committed)
    tokens = sum(pc.sum(table.column(prefix + PROMPT_TOKENS)).as_py() or 0 for table in tables)
    note = next(filter(None, read_session_notes(parts).values()), None)
    if not tokens or note is None:
        raise SettingsError(
            f"--probe: none of the first {MOST_ROWS} rows was accepted, so they tell no speed; --tokens-per-s can"
        )
    seconds = note["seconds"] - note["starting"]
    source = f"measured by --probe on this machine: {tokens:,} tokens of {responses:,} responses in {seconds:,.1f} s"
    return EngineSpeed(tokens / seconds, None, source, start_s=note["starting"])


class _Enough(Exception):
    """The time is over."""


class _ProbeClock(Silent):
    """Ends the run when its time is over."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._first_at: float | None = None

    def noted(self, text: str) -> None:
        """See `Progress`."""
        self._notify(text)

    def part_done(self, part: Mapping[str, Any]) -> None:
        """See `Progress`. Raises `_Enough`."""
        now = time.monotonic()
        self._first_at = self._first_at or now
        if now - self._first_at >= MOST_S:
            raise _Enough
