"""How long a run took: all its sessions together, or that nobody knows."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from actors.launch import placement
from actors.scorers.batch_noise import BatchNoise
from actors.workers.crash_ledger import EngineStarts
from pipelines.data.corpus.corpus_files import Range
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.run.runtime import run_timing
from pipelines.run.runtime.progress import Progress
from pipelines.run.runtime.run_timing import read_run_work, time_session
from pipelines.settings.run_settings import JudgingSettings
from tests.support.corpora import settings


def _interrupted(parts: Parts) -> None:
    with session(parts, working_engine) as progress:
        progress.part_done(commit(parts, 3))
        raise KeyboardInterrupt


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    created = Parts(str(tmp_path / "out"), "0123456789abcdef")
    created.create()
    return created


def working_engine() -> EngineStarts:
    """The starts of a pool whose only engine works at once."""
    return EngineStarts(1, time.time())


def run(parts: Parts, **options: object) -> JudgingSettings:
    return settings(Path("c.jsonl"), Path(parts.folder), **options)


@contextmanager
def session(parts: Parts, starts: Callable[[], EngineStarts | None], **options: object) -> Iterator[Progress]:
    """A session of a run whose workers have ended when it has."""
    with (
        ExitStack() as after_ray,
        time_session(
            parts, run(parts, **options), Progress(), starts, before=len(parts.listing()), after_ray=after_ray
        ) as progress,
    ):
        yield progress


def commit(parts: Parts, at: int) -> dict[str, int]:
    part = Part(0, Range(10 * at, 10 * at + 10), Counts(1, 1))
    parts.commit(part, pa.table({"a": [1]}), {})
    return {"file": 0, "start": 10 * at, "tokens": 100, "cached_tokens": 30}


def test_sessions_add_up(parts: Parts) -> None:
    with session(parts, working_engine) as progress:
        for at in range(3):
            progress.part_done(commit(parts, at))
    with pytest.raises(KeyboardInterrupt):
        _interrupted(parts)
    work = read_run_work(parts, len(parts.listing()))
    notes = [json.loads(path.read_text()) for path in sorted(Path(parts.folder, "sessions").iterdir())]
    assert [note["parts"] for note in notes] == [3, 1]
    assert work.seconds is not None
    assert work.starting is not None
    assert work.seconds == pytest.approx(sum(note["seconds"] for note in notes))
    assert work.starting == pytest.approx(sum(note["starting"] for note in notes))
    assert work.start == pytest.approx(work.starting / 2)
    assert work.engines == 1
    assert work.gpu_hours == 0  # without a cluster there are none
    assert (work.computed_tokens, work.cached_tokens) == (280, 120)
    assert work.why is None


def test_until_an_engine_works_it_starts(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1000.0, 1100.0, 2000.0, 2005.0, 3000.0, 3001.0])  # beginnings and ends
    monkeypatch.setattr(run_timing, "time", SimpleNamespace(time=lambda: next(clock), time_ns=time.time_ns))
    with session(parts, lambda: EngineStarts(1, 1020.0)) as progress:
        progress.part_done(commit(parts, 0))
    with session(parts, lambda: EngineStarts(1, None)):
        pass  # stopped before an engine worked
    work = read_run_work(parts, len(parts.listing()))
    assert (work.seconds, work.starting, work.start) == (105, 25, 20)
    with session(parts, lambda: None):
        pass
    work = read_run_work(parts, len(parts.listing()))
    assert (work.seconds, work.starting, work.start) == (106, None, None), "nobody knows it of the last"


def test_the_noise_of_a_run_is_the_largest_of_its_sessions_also_beside_one_that_was_killed(parts: Parts) -> None:
    assert read_run_work(parts, len(parts.listing())).noise is None
    for noise in (BatchNoise(2e-6, 10), None, BatchNoise(1e-6, 6)):
        with session(parts, lambda noise=noise: EngineStarts(1, 1020.0, noise)):  # type: ignore[misc]
            pass
    assert read_run_work(parts, len(parts.listing())).noise == BatchNoise(2e-6, 16)
    commit(parts, 0)
    work = read_run_work(parts, len(parts.listing()))
    assert (work.seconds, work.noise) == (None, BatchNoise(2e-6, 16))
    assert asdict(work)["noise"] == {"largest": 2e-6, "responses": 16}


def test_a_killed_session_is_not_made_up(parts: Parts) -> None:
    with session(parts, working_engine) as progress:
        progress.part_done(commit(parts, 0))
    commit(parts, 1)
    commit(parts, 2)
    work = read_run_work(parts, len(parts.listing()))
    assert (work.seconds, work.gpu_hours, work.engines) == (None, None, None)
    assert work.why == "a session was killed: the duration of 2 of 3 parts is unknown"


def test_a_session_that_was_stopped_is_no_killed_one(parts: Parts) -> None:
    """Its workers commit parts that the driver isn't told of, until they are ended."""
    with session(parts, working_engine) as progress:
        progress.part_done(commit(parts, 0))
    with ExitStack() as after_ray:
        timed = time_session(parts, run(parts), Progress(), working_engine, before=1, after_ray=after_ray)
        with suppress(KeyboardInterrupt), timed as progress:
            progress.part_done(commit(parts, 1))
            commit(parts, 2)
            raise KeyboardInterrupt
        commit(parts, 3)
    work = read_run_work(parts, len(parts.listing()))
    assert (work.why, work.engines) == (None, 1)
    commit(parts, 4)
    assert "the duration of 1 of 5 parts is unknown" in str(read_run_work(parts, len(parts.listing())).why)


def test_a_note_with_something_else_in_it_isnt_counted(parts: Parts) -> None:
    with session(parts, working_engine) as progress:
        progress.part_done(commit(parts, 0))
    (path,) = Path(parts.folder, "sessions").iterdir()
    path.with_name(f"copy-of-{path.name}").write_bytes(path.read_bytes())
    work = read_run_work(parts, len(parts.listing()))
    assert (work.why, work.computed_tokens) == (None, 70), "a copy isn't counted either"
    path.with_name(f"1{path.name[1:]}").write_text(json.dumps(json.loads(path.read_text()) | {"parts": "three"}))
    work = read_run_work(parts, len(parts.listing()))
    assert work.why == f"a session's note can't be read ({path.with_name(f'1{path.name[1:]}')}): its duration is unknown"
    assert work.computed_tokens == 70, "those of the other session"


def test_a_part_that_is_told_twice_hides_no_killed_session(parts: Parts) -> None:
    with session(parts, working_engine) as progress:
        report = commit(parts, 0)
        progress.part_done(report)
        progress.part_done(report)  # by an actor that was started again
    commit(parts, 1)
    assert read_run_work(parts, len(parts.listing())).why == "a session was killed: the duration of 1 of 2 parts is unknown"


@pytest.mark.parametrize(
    ("begun", "expected"), [(EngineStarts(4, None), (4, 8)), (EngineStarts(3, None), (None, None)), (None, (None, None))]
)
def test_engines_that_never_began_arent_counted(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, begun: EngineStarts | None, expected: tuple[int | None, int | None]
) -> None:
    """Others may have their GPUs."""
    monkeypatch.setattr(placement, "engine_gpus", lambda settings: 2)
    monkeypatch.setattr(placement, "cluster_gpus", lambda: 8)
    with session(parts, lambda: begun) as progress:
        progress.part_done(commit(parts, 0))
    (note,) = (json.loads(path.read_text()) for path in Path(parts.folder, "sessions").iterdir())
    assert (note["engines"], note["gpus"]) == expected


def test_a_number_of_engines_that_changes_isnt_one(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "engine_gpus", lambda settings: 1)
    with session(parts, working_engine, max_replicas=4) as progress:
        progress.part_done(commit(parts, 0))
    work = read_run_work(parts, len(parts.listing()))
    assert work.seconds is not None
    assert (work.engines, work.gpu_hours) == (None, None)
