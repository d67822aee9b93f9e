"""Measures the time of a run: each session writes a note with its time beside the parts, and the run's time is their sum.

    scored/sessions/<when>-<run>.json     seconds, parts and engines of one session, written at its end, also after an error

A session that was killed writes no note. The run then has more parts than its notes count, and its time is reported as
unknown instead of too small. One that ended early by Ctrl-C or an error counts its parts when its workers have ended: they
commit parts that the driver isn't told of any more.
"""

import contextlib
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from actors.errors import EnginesLost
from actors.launch import placement
from actors.scorers.batch_noise import BatchNoise, largest_noise
from actors.workers.crash_ledger import EngineStarts
from pipelines.folders.run_folder.parts import Parts
from pipelines.run.runtime.engine_pool import engines_that_stay
from pipelines.run.runtime.progress import ForwardingProgress, Progress
from pipelines.settings.run_settings import JudgingSettings, ScoreSettings

_WHEN = re.compile(r"\d{20}")  # the time in a note's name; without it, as of a copy, a note would count twice


class _SessionNote(BaseModel):
    """What one session leaves. `starting`, `engines` and `gpus` are None where they are unknown."""

    seconds: float
    starting: float | None
    parts: int
    engines: int | None
    gpus: int | None
    noise: BatchNoise | None = None
    computed_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True)
class RunWork:
    """The work of all sessions of a run; None where it is unknown, for the reason `why`.

    `seconds` run from the start of the engines to the end of the session. `starting` are those of them before the first
    engine was ready, summed over sessions, and `start` is their mean per session that committed a part. Engines and
    GPU-hours are known only if the number of engines is constant. `noise` is that of batching, as far as sessions measured
    it. `computed_tokens` are those of prompts that went through the model, in sessions that weren't killed, and without
    those of `retry`; `cached_tokens` came from the engines' prefix caches, or went through the model with an equal prompt
    or in a longer one. For a run in turns all of it covers the judging only.
    """

    seconds: float | None = None
    starting: float | None = None
    start: float | None = None
    engines: int | None = None
    gpu_hours: float | None = None
    why: str | None = None
    noise: BatchNoise | None = None
    computed_tokens: int = 0
    cached_tokens: int = 0


class _PartRecorder(ForwardingProgress):
    """Forwards progress and collects the parts: as a set, since a restarted actor reports committed parts again."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.parts: set[tuple[int, int]] = set()
        self.tokens = self.cached_tokens = 0

    def part_done(self, part: Mapping[str, Any]) -> None:
        self.parts.add((part["file"], part["start"]))
        if "cached_tokens" in part:  # not of a part that `retry` writes again: its tokens are an earlier session's
            self.tokens += part["tokens"]
            self.cached_tokens += part["cached_tokens"]
        super().part_done(part)


@contextlib.contextmanager
def time_session(
    parts: Parts,
    settings: JudgingSettings,
    progress: Progress,
    engine_starts: Callable[[], EngineStarts | None],
    *,
    before: int,
    after_ray: contextlib.ExitStack,
) -> Iterator[Progress]:
    """Time the work in the block and write the session's note at its end. Yields the progress that the work must report to.

    `engine_starts` returns the engine starts so far, None if unknown; `before` is the number of parts that were there. After
    an error that ends the session, the note is written when `after_ray` ends, which must be later than the workers.
    """
    recorder, expected = _PartRecorder(progress), _planned_engines(settings)
    gpus = placement.engine_gpus(settings.engine)
    start, constant, is_whole, goes_on = time.time(), True, False, False
    try:
        yield recorder
        # The GPUs of a cluster may come and go during a session, so what was planned is computed again at its end.
        constant, is_whole, goes_on = _planned_engines(settings) == expected, True, True
    except EnginesLost:
        constant, goes_on = False, True
        raise
    finally:
        end, starts = time.time(), engine_starts()
        # Known only if exactly the planned engines started: GPUs may have been in use by others.
        engines = expected if expected is not None and constant and starts and starts.engines == expected else None

        # If this fails, the notes count fewer parts than there are, and the time is reported as unknown.
        def write_note() -> None:
            with contextlib.suppress(OSError):
                note = _SessionNote(
                    seconds=end - start,
                    starting=starts and (starts.at or end) - start,
                    # After an error the folder is listed: workers have committed parts that the driver wasn't told of.
                    parts=max(len(recorder.parts), 0 if is_whole else len(parts.listing()) - before),
                    engines=engines,
                    gpus=engines and engines * gpus if gpus else 0,
                    noise=starts and starts.noise,
                    computed_tokens=recorder.tokens - recorder.cached_tokens,
                    cached_tokens=recorder.cached_tokens,
                )
                # Nanoseconds, with zeros before them: names sort by time.
                name = parts.note_name(f"{time.time_ns():020d}", ".json")
                parts.sessions_folder.replace(name, note.model_dump_json().encode())

        if goes_on:
            write_note()
        else:
            after_ray.callback(write_note)


def read_run_work(parts: Parts, part_count: int) -> RunWork:
    """The work of all sessions of a run, which has `part_count` parts, from their notes."""
    folder, ending = parts.sessions_folder, parts.note_name("", ".json")
    names = sorted(entry.name for entry in folder.entries() if _WHEN.fullmatch(entry.name.removesuffix(ending)))
    notes, unreadable = list[_SessionNote](), list[str]()
    for name in names:
        try:
            notes.append(_SessionNote.model_validate_json(folder.read(name)))
        except ValidationError:  # truncated, as after a power cut or on a full disk
            unreadable.append(folder.file(name))
    work = RunWork(
        noise=largest_noise(note.noise for note in notes if note.noise is not None),
        computed_tokens=sum(note.computed_tokens for note in notes),
        cached_tokens=sum(note.cached_tokens for note in notes),
    )
    if unreadable:
        return replace(work, why=f"a session's note can't be read ({unreadable[0]}): its duration is unknown")
    noted_parts = sum(note.parts for note in notes)
    if noted_parts < part_count:
        parts_unknown = f"{part_count - noted_parts:,} of {part_count:,} parts"
        return replace(work, why=f"a session was killed: the duration of {parts_unknown} is unknown")
    # A session that was stopped while its engines started says nothing of how long a start takes, or how many there are.
    working = [note for note in notes if note.parts]
    engines = {note.engines for note in working}
    are_gpus_known = all(note.gpus is not None for note in notes)
    are_starts_known = all(note.starting is not None for note in notes)
    return replace(
        work,
        seconds=sum(note.seconds for note in notes),
        starting=sum(note.starting or 0.0 for note in notes) if are_starts_known else None,
        start=statistics.fmean(note.starting or 0.0 for note in working) if are_starts_known and working else None,
        engines=engines.pop() if len(engines) == 1 else None,
        gpu_hours=sum(note.seconds * (note.gpus or 0) for note in notes) / 3600 if are_gpus_known else None,
    )


def _planned_engines(settings: JudgingSettings) -> int | None:
    return engines_that_stay(settings.engine, settings.work) if isinstance(settings, ScoreSettings) else None
