"""How long the work of a run took: each session notes its time beside the parts, and all of them together are the run's.

    scored/sessions/<when>-<run>.json     seconds, parts, engines of one session, written when it ends, however it ends

A session that was killed notes nothing. Then there are more parts than were noted, and the time isn't known: no number is
made up for it.
"""

import contextlib
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from actors.errors import EnginesLost
from actors.launch import placement
from actors.workers.crash_ledger import Begun
from pipelines.runtime.engine_pool import engines_that_stay
from pipelines.runtime.progress import PassedOn, Progress
from pipelines.scored_corpus.parts import Parts
from pipelines.settings.run_settings import JudgingSettings, ScoreSettings

_WHEN = re.compile(r"\d{20}")
_NOTED = {"seconds": int | float, "starting": int | float | None, "parts": int, "engines": int | None, "gpus": int | None}


@dataclass(frozen=True)
class RunWork:
    """What the sessions of a run did; None where it isn't known, for the reason `why`.

    Seconds are from when engines began to start to the end; `starting` are those in which no engine worked yet, and `start`
    how many of these a session had, on average. Engines and GPU-hours are known if the number of engines stays. Of a run in
    turns it is the judging.
    """

    seconds: float | None = None
    starting: float | None = None
    start: float | None = None
    engines: int | None = None
    gpu_hours: float | None = None
    why: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)


class _Watched(PassedOn):
    """Knows the parts it was told of. An actor that was started again tells those anew that its forerunner committed."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.parts: set[tuple[int, int]] = set()

    def part_done(self, part: Mapping[str, Any]) -> None:
        """See `Progress`."""
        self.parts.add((part["file"], part["start"]))
        super().part_done(part)


@contextlib.contextmanager
def time_session(
    parts: Parts, settings: JudgingSettings, progress: Progress, begun: Callable[[], Begun | None]
) -> Iterator[Progress]:
    """Note the time of a session's work, on a Ray that has room for it. It hears of parts by the progress that this gives.

    `begun` tells what engines there have been, None if nobody knows.
    """
    watched, planned, gpus = _Watched(progress), _engines(settings), placement.engine_gpus(settings.engine)
    start, stayed = time.time(), True
    try:
        yield watched
        stayed = _engines(settings) == planned
    except EnginesLost:
        stayed = False
        raise
    finally:
        end, found = time.time(), begun()
        # Others may have had GPUs, so that not all could begin.
        engines = planned if planned is not None and stayed and found and found.engines == planned else None
        note = {
            "seconds": end - start,
            "starting": found and (found.at or end) - start,
            "parts": len(watched.parts),
            "engines": engines,
            "gpus": engines and engines * gpus if gpus else 0,
        }
        # If this fails, too, fewer parts are noted than there are, and that is what will be said.
        with contextlib.suppress(OSError):
            name = parts.note_name(f"{time.time_ns():020d}", ".json")
            parts.sessions_folder.replace(name, json.dumps(note).encode())


def read_run_work(parts: Parts) -> RunWork:
    """What all sessions of a run did."""
    folder, ending = parts.sessions_folder, parts.note_name("", ".json")
    names = sorted(entry.name for entry in folder.entries() if _WHEN.fullmatch(entry.name.removesuffix(ending)))
    read = {name: _note(folder.read(name)) for name in names}
    if bad := [name for name, note in read.items() if note is None]:
        return RunWork(why=f"a session's note can't be read ({folder.file(bad[0])}): nobody knows how long it took")
    notes = [note for note in read.values() if note is not None]
    there, known = len(parts.listing()), sum(note["parts"] for note in notes)
    if known < there:
        return RunWork(why=f"a session was killed: nobody knows how long {there - known:,} of {there:,} parts took")
    worked = [note for note in notes if note["parts"]]
    engines = {note["engines"] for note in worked}
    starting, gpus = [note["starting"] for note in notes], [note["gpus"] for note in notes]
    return RunWork(
        seconds=sum(note["seconds"] for note in notes),
        starting=None if None in starting else sum(starting),
        start=None if None in starting or not worked else statistics.fmean(note["starting"] for note in worked),
        engines=engines.pop() if len(engines) == 1 else None,
        gpu_hours=None if None in gpus else sum(note["seconds"] * note["gpus"] for note in notes) / 3600,
    )


def _engines(settings: JudgingSettings) -> int | None:
    """How many engines are to work, if their number stays."""
    return engines_that_stay(settings.engine, settings.work) if isinstance(settings, ScoreSettings) else None


def _note(text: bytes) -> dict[str, Any] | None:
    """A session's note; None if a power cut or a full disk left only some of it."""
    try:
        note = json.loads(text)
    except ValueError:
        return None
    whole = isinstance(note, dict) and all(name in note and isinstance(note[name], kind) for name, kind in _NOTED.items())
    return note if whole else None
