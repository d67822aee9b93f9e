"""What becomes of the tasks of a run when one of them fails."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from actors.errors import RunStopped
from pipelines.data.storage.lease import lease, tickets
from pipelines.data.storage.protocol import LEASE
from pipelines.run.runtime.workers import OnRay, _run_while_held
from tests.support.engines import until


def _fail_or_go_on(folder: str, place: int) -> None:
    here = Path(folder)
    if place == 0:
        until((here / "runs").exists)
        raise KeyError(place)
    (here / "runs").touch()
    until((here / "goes on").exists)
    (here / "ended").touch()


def test_a_task_that_runs_beside_one_that_fails_ends_by_itself(tmp_path: Path, local_ray: None) -> None:
    # Ray aborts a process that cancels a task whose result is just arriving: a race that one try in hundreds shows.
    with pytest.raises(RunStopped, match="a task failed"):
        list(OnRay().map(_fail_or_go_on, [(str(tmp_path), place) for place in range(2)]))
    (tmp_path / "goes on").touch()
    until((tmp_path / "ended").exists)


def test_it_is_said_once_that_no_task_has_a_result(
    local_ray: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipelines.run.runtime.workers.PLACE_S", 0.0)
    assert sorted(OnRay().map(str.upper, [("a",), ("b",)])) == ["A", "B"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("waiting for the result of a task, which takes a CPU; free are 0 GPUs and ")


def test_a_task_that_begins_after_its_run_has_ended_does_nothing(tmp_path: Path) -> None:
    with lease(str(tmp_path / "out")):
        run_tickets = tickets()
        assert _run_while_held(run_tickets, str.upper, "a") == "A"
    assert not (tmp_path / "out" / LEASE).exists()
    with pytest.raises(RunStopped, match="isn't held by this run any more"):
        _run_while_held(run_tickets, str.upper, "a")
    with lease(str(tmp_path / "out")), pytest.raises(RunStopped, match="isn't held by this run any more"):
        _run_while_held(run_tickets, str.upper, "a")  # another run's


def test_the_end_of_a_run_in_another_thread_doesnt_matter(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        other = ExitStack()
        thread.submit(other.enter_context, lease(str(tmp_path / "other"))).result()
        with lease(str(tmp_path / "out")):
            run_tickets = tickets()
            thread.submit(other.close).result()
            assert _run_while_held(run_tickets, str.upper, "a") == "A"
