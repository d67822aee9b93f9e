"""How long the work of a run took: each session notes its time beside the parts, and all of them together are the run's.

    scored/sessions/<when>.json     seconds, parts, engines of one session, written when it ends, however it ends

A session that was killed notes nothing. Then there are more parts than were noted, and the time isn't known: no number is
made up for it.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from actors import placement
from actors.errors import EnginesLost
from pipelines.engine_pool import engines_that_stay
from pipelines.parts import Parts
from pipelines.progress import PassedOn, Progress
from pipelines.settings import JudgingSettings, ScoreSettings
from pipelines.storage import Folder


@dataclass(frozen=True)
class Work:
    """What the sessions of a run did; None where it isn't known, for the reason `why`.

    Seconds are from when engines began to start to the end, those `starting` to the first part, which had `first_tokens`.
    Engines and GPU-hours are known if the number of engines stays.
    """

    seconds: float | None = None
    starting: float | None = None
    first_tokens: int = 0
    engines: int | None = None
    gpu_hours: float | None = None
    why: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)


class _Watched(PassedOn):
    """What was told of parts. An actor that was started again tells those anew that its forerunner committed."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self._start = time.monotonic()
        self._parts: set[tuple[int, int]] = set()
        self.first_tokens = 0
        self.starting = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    @property
    def parts(self) -> int:
        return len(self._parts)

    def part_done(self, part: Mapping[str, Any]) -> None:
        """See `Progress`."""
        if not self._parts:
            self.starting, self.first_tokens = self.seconds, part["tokens"]
        self._parts.add((part["file"], part["start"]))
        super().part_done(part)


@contextlib.contextmanager
def timed(
    parts: Parts, settings: JudgingSettings, progress: Progress, begun: Callable[[], int | None]
) -> Iterator[Progress]:
    """Note the time of a session's work, on a Ray that has room for it. It hears of parts by the progress that this gives.

    `begun` tells how many engines there have been, None if nobody knows.
    """
    watched, planned, gpus = _Watched(progress), _engines(settings), placement.engine_gpus(settings.engine)
    stayed = True
    try:
        yield watched
        stayed = _engines(settings) == planned
    except EnginesLost:
        stayed = False
        raise
    finally:
        # Others may have had GPUs, so that not all could begin.
        engines = planned if planned is not None and stayed and begun() == planned else None
        note = {
            "seconds": watched.seconds,
            "starting": watched.starting,
            "parts": watched.parts,
            "first_tokens": watched.first_tokens,
            "engines": engines,
            "gpus": engines and engines * gpus if gpus else 0,
        }
        # If this fails, too, fewer parts are noted than there are, and that is what will be said.
        with contextlib.suppress(OSError):
            _folder(parts).replace(f"{time.time_ns():020d}.json", json.dumps(note).encode())


def work_of(parts: Parts) -> Work:
    """What all sessions of a run did."""
    folder = _folder(parts)
    notes = [json.loads(folder.read(entry.name)) for entry in sorted(folder.entries(), key=lambda entry: entry.name)]
    there, known = len(parts.listing()), sum(note["parts"] for note in notes)
    if known < there:
        return Work(why=f"a session was killed: nobody knows how long {there - known:,} of {there:,} parts took")
    engines = {note["engines"] for note in notes if note["parts"]}
    gpus = [note["gpus"] for note in notes]
    return Work(
        seconds=sum(note["seconds"] for note in notes),
        starting=sum(note["starting"] for note in notes),
        first_tokens=sum(note["first_tokens"] for note in notes),
        engines=engines.pop() if len(engines) == 1 else None,
        gpu_hours=None if None in gpus else sum(note["seconds"] * note["gpus"] for note in notes) / 3600,
    )


def _engines(settings: JudgingSettings) -> int | None:
    """How many engines are to work, if their number stays."""
    return engines_that_stay(settings.engine, settings.work) if isinstance(settings, ScoreSettings) else None


def _folder(parts: Parts) -> Folder:
    return parts.sessions_folder
