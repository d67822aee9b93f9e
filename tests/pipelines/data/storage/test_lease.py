"""One run writes a folder at a time; what a dead or a stopped one held is taken over."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from actors.errors import OutputError, RunStopped
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import Range
from pipelines.data.storage import LEASE
from pipelines.data.storage import lease as leases
from pipelines.data.storage.lease import Holder, check_held, lease, ticket
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from tests.conftest import REPOSITORY
from tests.support.object_store import BUCKET, TerseStore


def take(folder: str) -> None:
    with lease(folder):
        pass


def write_lease(folder: Path, holder: Holder) -> None:
    folder.mkdir()
    (folder / LEASE).write_bytes(holder.content)


def test_a_folder_is_held_by_one_and_free_afterwards_however_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def work() -> None:
        with lease(str(folder)):
            holder = Holder.read((folder / LEASE).read_bytes())
            assert (holder.pid, holder.is_here) == (os.getpid(), True)
            with pytest.raises(
                OutputError, match=f"is being written by another run: process {os.getpid()} on {holder.host}"
            ):
                take(str(folder))
            check_held()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert list(folder.iterdir()) == []
    take(str(folder))


def test_a_folder_in_an_object_store_is_held_too(s3: Any) -> None:
    folder = f"{BUCKET}/out"
    with lease(folder):
        with pytest.raises(OutputError, match="is being written by another run"):
            take(folder)
        assert storage.folder(folder).is_empty(), "but for the lease"
    assert list(storage.folder(folder).entries()) == []


def test_what_a_process_held_that_was_killed_is_taken_over_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    script = f"import os\nfrom pipelines.data.storage.lease import lease\nwith lease({str(folder)!r}):\n    os._exit(9)"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=False)
    assert done.returncode == 9
    assert (folder / LEASE).exists()
    assert storage.folder(str(folder)).is_empty(), "a run that was killed at its very start leaves no more"
    take(str(folder))


@pytest.mark.parametrize(
    "change",
    [
        lambda holder: replace(holder, start=holder.start - 1),
        lambda holder: replace(holder, renewed=holder.renewed - 2 * leases.STALE_S),
    ],
    ids=["its process id is another process' by now", "it was stopped for long"],
)
def test_what_a_holder_of_this_machine_has_lost_is_taken_over_at_once(
    change: Callable[[Holder], Holder], tmp_path: Path
) -> None:
    write_lease(tmp_path / "out", change(Holder.this_process()))
    take(str(tmp_path / "out"))


@pytest.mark.parametrize("content", [replace(Holder.this_process(), machine="another").content, b"{", b"[1]"])
def test_what_another_machine_holds_is_taken_over_when_it_isnt_renewed(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "STALE_S", 0.1)
    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    (tmp_path / LEASE).write_bytes(content)
    take(str(tmp_path))


def test_what_another_machine_holds_and_renews_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    texts: list[str] = []
    with lease(str(tmp_path)):
        monkeypatch.setattr(leases, "_machine", lambda: "another")
        with (
            pytest.raises(OutputError, match=r"is being written by another run: process \d+ on .*, last sign of life 20"),
            lease(str(tmp_path), texts.append),
        ):
            pass
    (waited,) = texts
    assert f"is held by process {os.getpid()} on " in waited
    assert "watching for up to 60 s whether that run is alive" in waited


def test_a_holder_that_was_stopped_for_long_sees_that_it_has_lost_the_folder(tmp_path: Path) -> None:
    other = replace(Holder.this_process(), host="elsewhere", token="another")

    def work() -> None:
        with lease(str(tmp_path)):
            (tmp_path / LEASE).write_bytes(other.content)
            leases._leases[-1]._renewed -= leases.STALE_S
            check_held()
            pytest.fail("it wasn't seen")

    with pytest.raises(RunStopped, match=r"another run has taken .* over, .*: process \d+ on elsewhere"):
        work()
    assert json.loads((tmp_path / LEASE).read_bytes())["token"] == "another", "which isn't ours to delete"


def test_a_holder_that_was_stopped_while_another_run_did_it_all_sees_that_too(tmp_path: Path) -> None:
    def work() -> None:
        with lease(str(tmp_path)):
            (tmp_path / LEASE).unlink()
            leases._leases[-1]._renewed -= 2 * leases.STALE_S

    with pytest.raises(RunStopped, match="one that has ended since"):
        work()
    assert not (tmp_path / LEASE).exists()


def test_a_holder_that_isnt_asked_sees_it_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "STALE_S", 0.0)
    with pytest.raises(RunStopped, match="taken"), lease(str(tmp_path)):
        (tmp_path / LEASE).write_bytes(replace(Holder.this_process(), token="another").content)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file, and a folder is needed"):
        take(str(tmp_path / "file"))


def test_a_worker_writes_no_part_into_a_folder_that_its_run_has_lost(tmp_path: Path) -> None:
    table, first, second = pa.table({"a": [1]}), Part(0, Range(0, 1), Counts(1, 1)), Part(0, Range(1, 2), Counts(1, 1))
    with lease(str(tmp_path)):
        parts = Parts(str(tmp_path), "0" * 16, ticket(str(tmp_path)))
        parts.create()
        assert parts.commit(first, table, {})
    with pytest.raises(RunStopped, match="isn't held by this run any more"):
        parts.commit(second, table, {})
    with lease(str(tmp_path)), pytest.raises(RunStopped, match="isn't held by this run any more"):
        parts.commit(second, table, {})
    assert [part.range for part in parts.listing()] == [first.range]
    assert ticket(str(tmp_path)) is None


def test_what_a_dead_process_held_in_a_store_that_answers_as_minio_is_taken_over(terse_s3: TerseStore) -> None:
    folder, living = storage.folder(f"{BUCKET}/out"), Holder.this_process()
    folder.replace(LEASE, replace(living, start=(living.start or 0) - 1).content)
    take(folder.path)
    assert list(folder.entries()) == []
