"""A store that doesn't answer is waited for; what it refuses fails at once; who has lost the folder writes nothing."""

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from actors.errors import RunStopped
from pipelines.data import storage
from pipelines.data.storage import lease as leases
from pipelines.data.storage import patience
from pipelines.data.storage.lease import Ticket, check_held, lease
from pipelines.data.storage.patience import patient, patiently, waits_at_most
from tests.support.object_store import BUCKET, TerseStore, unreachable

OUTAGE_S = 0.3


@contextmanager
def outage(server: TerseStore, seconds: float = OUTAGE_S) -> Iterator[None]:
    """From the beginning of the block, and for some seconds after the first request, the store answers nothing."""
    server.missed.clear()
    server.is_out = True
    end = threading.Timer(seconds, setattr, (server, "is_out", False))

    def start_timer() -> None:
        server.missed.wait(30)
        end.start()

    starter = threading.Thread(target=start_timer)
    starter.start()
    try:
        yield
    finally:
        starter.join()
        end.join()


def hold() -> None:
    """A run that holds its folder."""


def lose() -> None:
    raise RunStopped("another run has taken it over")


OPERATIONS: dict[str, Callable[[storage.Folder], object]] = {
    "create": lambda folder: folder.create("new", b"content"),
    "replace": lambda folder: folder.replace("old", b"content"),
    "read": lambda folder: folder.read("old"),
    "read a range": lambda folder: storage.open_read(folder.file("old"), 3).read(),
    "list": lambda folder: list(folder.entries()),
    "look": lambda folder: storage.file_status(folder.file("old")),
    "find": lambda folder: storage.find(folder.path),
    "move": lambda folder: folder.move("old", folder.sub("aside")),
    "delete": lambda folder: folder.delete("old"),
    "delete all": lambda folder: folder.delete_all(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_a_run_does_waits_for_the_store(operation: str, terse_s3: TerseStore) -> None:
    folder = storage.folder(f"{BUCKET}/a")
    folder.replace("old", b"old")
    began = time.monotonic()
    with outage(terse_s3), patient(30.0, hold):
        OPERATIONS[operation](folder)
    assert OUTAGE_S <= time.monotonic() - began < 10


def test_a_stream_waits_for_the_store_at_its_end(terse_s3: TerseStore) -> None:
    folder = storage.folder(f"{BUCKET}/a")
    with outage(terse_s3), patient(30.0, hold), folder.writing("one") as stream:
        stream.write(b"all of it")
    assert folder.read("one") == b"all of it"


def test_a_store_that_nobody_listens_for_is_given_up_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    for name, value in unreachable().items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()
    began = time.monotonic()
    with patient(1.0, hold), pytest.raises(RunStopped, match=r"a store hasn't answered for \d s: .*127.0.0.1:9"):
        storage.folder(f"{BUCKET}/a").replace("one", b"")
    with waits_at_most(0.5), pytest.raises(OSError, match=r"127.0.0.1:9"):
        storage.folder(f"{BUCKET}/a").replace("one", b"")
    assert time.monotonic() - began < 10
    S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    ("code", "status"), [("InternalError", 500), ("ServiceUnavailable", 503), ("SlowDown", 503), ("RequestTimeout", 400)]
)
def test_a_store_that_has_no_time_is_asked_again(code: str, status: int, terse_s3: TerseStore) -> None:
    folder = storage.folder(f"{BUCKET}/a")
    folder.replace("old", b"old")
    terse_s3.refused, terse_s3.refusal, terse_s3.code = "old", status, code
    end = threading.Timer(OUTAGE_S, setattr, (terse_s3, "refused", None))
    end.start()
    assert folder.read("old") == b"old"


@pytest.mark.parametrize(("code", "status"), [("AccessDenied", 403), ("NoSuchBucket", 404), ("NotImplemented", 501)])
def test_what_a_store_refuses_fails_at_once(code: str, status: int, terse_s3: TerseStore) -> None:
    folder, began = storage.folder(f"{BUCKET}/a"), time.monotonic()
    terse_s3.refused, terse_s3.refusal, terse_s3.code = "old", status, code
    with patient(60.0, hold), pytest.raises(OSError, match="No"):
        folder.read("old")
    assert time.monotonic() - began < 30, "it waited for the store, whose patience is 60 s"


def test_a_run_that_has_lost_its_folder_meanwhile_writes_nothing(terse_s3: TerseStore) -> None:
    folder = storage.folder(f"{BUCKET}/a")
    for write in ("create", "replace"):
        with outage(terse_s3), patient(30.0, lose), pytest.raises(RunStopped, match="taken it over"):
            OPERATIONS[write](folder)
    assert list(folder.entries()) == []


def test_a_put_that_was_done_before_the_store_went_is_done(terse_s3: TerseStore) -> None:
    folder, terse_s3.lost = storage.folder(f"{BUCKET}/a"), 3
    with patient(30.0, hold):
        assert folder.create("one", b"first")
        assert not folder.create("one", b"other")
    assert folder.read("one") == b"first"


def test_a_run_says_that_its_store_is_silent_and_goes_on(terse_s3: TerseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.2)
    monkeypatch.setattr(leases, "_TOLD_AFTER_S", 0.5)
    messages: list[str] = []
    with lease(f"{BUCKET}/a", messages.append, 30.0):
        for _ in range(2):
            with outage(terse_s3, 2.0):
                leases._leases[-1]._renewed -= leases.STALE_S / 2  # as late in an outage: nobody may have taken it
                check_held()
            time.sleep(1.0)
    assert len(messages) == 2, "once an outage"
    for silent in messages:
        assert silent.startswith(f"{BUCKET}/a doesn't answer since ")
        assert silent.endswith("the run waits for it up to 30 s (storage_patience_s)")
    assert list(storage.folder(f"{BUCKET}/a").entries()) == []


def test_a_run_that_ends_in_an_outage_doesnt_wait(terse_s3: TerseStore) -> None:
    def work() -> None:
        with lease(f"{BUCKET}/a", patience_s=60.0):
            terse_s3.is_out = True
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - began < 30, "it waited for the store, whose patience is 60 s"


def test_a_worker_that_gets_a_ticket_waits_as_its_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience._process, "patience", patience._Patience())
    pickle.loads(pickle.dumps(Ticket(f"{BUCKET}/a", "token", 300.0)))
    assert patience._process.patience.seconds == 300.0


def test_an_error_that_says_nothing_of_the_store_is_raised_at_once() -> None:
    def fail() -> None:
        raise ValueError("a mistake of ours")

    with patient(60.0, hold), pytest.raises(OSError, match="a mistake of ours"):
        patiently(fail)()
