"""What can go wrong with a store is an `OSError`, and a file that is written shows nothing else in the meantime."""

import sys
from collections import Counter
from random import Random
from typing import Any

import pytest
from fsspec.registry import _registry as loaded
from s3fs import S3FileSystem

from bench._simulated_store import content_of, simulated_store
from pipelines.data import storage
from pipelines.data.storage.patience import waits_at_most
from tests.support.object_store import BUCKET, TerseStore


def test_a_store_that_nobody_knows_is_an_os_error() -> None:
    with pytest.raises(OSError, match=r"nowhere://x: Protocol not known: nowhere"):
        storage.find("nowhere://x")


def test_a_store_whose_package_isnt_there_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for protocol in ("s3", "s3a"):
        monkeypatch.delitem(loaded, protocol, raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(OSError, match=r'^s3://bucket/x needs the package s3fs: pip install "assay\[s3\]"$'):
        storage.find("s3://bucket/x")


def test_a_bucket_that_isnt_there_is_an_os_error(s3: object) -> None:
    with pytest.raises(OSError, match="bucket"):
        storage.folder("s3://missing/a").make()


def test_a_stream_leaves_nothing_in_the_store_before_its_end(s3: Any) -> None:
    folder = storage.folder(f"{BUCKET}/a")
    with folder.writing("one") as stream:
        stream.write(b"half of it")
        stream.flush()
        assert s3.find(BUCKET) == []
    assert s3.find(BUCKET) == ["corpora/a/one"]


@pytest.fixture
def requests(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests to the store so far, by the name of the operation."""
    counted, send = Counter[str](), S3FileSystem._call_s3

    async def count(system: S3FileSystem, method: str, *arguments: Any, **named: Any) -> Any:
        counted[method] += 1
        return await send(system, method, *arguments, **named)

    monkeypatch.setattr(S3FileSystem, "_call_s3", count)
    return counted


def test_an_object_of_known_size_is_read_from_anywhere_in_it_by_ranges(s3: Any) -> None:
    content = Random(0).randbytes(300_000)
    s3.pipe_file(f"{BUCKET}/a", content)
    random = Random(1)
    with storage.open_read(f"{BUCKET}/a", len(content), block_bytes=10_000) as stream:
        for _ in range(200):
            start, length = random.randrange(len(content) + 10), random.choice([0, 1, 9_999, 10_000, 10_001, 50_000])
            stream.seek(start)
            assert stream.read(length) == content[start : start + length]
        stream.seek(-7, 2)
        assert stream.read() == content[-7:]


def test_an_object_of_known_size_that_fits_in_a_block_is_one_request(s3: Any, requests: Counter[str]) -> None:
    s3.pipe_file(f"{BUCKET}/a", bytes(100_000))
    requests.clear()
    with storage.open_read(f"{BUCKET}/a", 100_000) as stream:
        assert stream.seek(0, 2) == 100_000
        stream.seek(50)
        assert len(stream.read(7)) == 7
    assert len(storage.folder(BUCKET).read("a")) == 100_000
    assert requests == {"get_object": 2}


def test_an_object_that_is_shorter_than_its_listing_said_is_an_error(s3: Any) -> None:
    s3.pipe_file(f"{BUCKET}/a", b"short")
    with pytest.raises(OSError, match=r"a is shorter than it was when it was listed \(100 bytes\)"):
        storage.open_read(f"{BUCKET}/a", 100)


def test_an_empty_object_is_read_as_such(s3: Any) -> None:
    s3.pipe_file(f"{BUCKET}/a", b"")
    assert storage.open_read(f"{BUCKET}/a", 0).read() == b""
    assert storage.folder(BUCKET).read("a") == b""


def test_a_listing_of_several_pages_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store answers with 1,000 objects at most; what is on the last page must be scored, too."""
    with simulated_store(2345, 0.0) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        S3FileSystem.clear_instance_cache()  # one of another test talks to another server
        matches = storage.find("s3://simulated/in")
        entries = list(storage.folder("s3://simulated/in").entries())
    S3FileSystem.clear_instance_cache()
    assert matches is not None
    expected = [(f"s3://simulated/in/{number:08d}.jsonl", len(content_of("in", number))) for number in range(2345)]
    assert [(f"s3://simulated/in/{entry.name}", entry.size) for entry in entries] == expected
    assert [(file.path, file.size) for file in matches.files] == expected
    assert len({file.tag for file in matches.files}) == 2345


def test_a_store_that_doesnt_say_which_condition_failed_creates_a_file_once(terse_s3: TerseStore) -> None:
    folder = storage.folder(f"{BUCKET}/a")
    assert folder.create("one", b"first")
    assert not folder.create("one", b"second")
    assert folder.read("one") == b"first"


def test_a_file_is_there_once_whose_put_was_answered_too_late(terse_s3: TerseStore) -> None:
    folder, terse_s3.lost = storage.folder(f"{BUCKET}/a"), 1
    assert folder.create("one", b"first"), "it was sent again, and met itself"
    assert terse_s3.lost == 0
    assert not folder.create("one", b"other")
    assert [(entry.name, entry.size) for entry in folder.entries()] == [("one", 5)]


def test_a_put_that_met_another_one_is_sent_again(terse_s3: TerseStore) -> None:
    folder, terse_s3.conflicts = storage.folder(f"{BUCKET}/a"), 2
    assert folder.create("one", b"first")
    terse_s3.conflicts = 3
    with waits_at_most(0.1), pytest.raises(OSError, match="Again"):
        folder.create("two", b"")
    assert [entry.name for entry in folder.entries()] == ["one"]
