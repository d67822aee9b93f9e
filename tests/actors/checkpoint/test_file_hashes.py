"""Hashes of large files are kept, and never taken for those of another file."""

import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.checkpoint import file_hashes
from actors.checkpoint.file_hashes import content_hashes

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, which also keeps hashes of small files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(file_hashes, "_LARGE_BYTES", 1)
    return tmp_path / "cache" / "assay" / "hashes"


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that seems to lie there for an hour."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(CONTENT)
    settle(monkeypatch)
    return path


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 3600 * 10**9)


def hash_of(path: Path) -> str:
    return content_hashes([path])[0]


def forge(cache: Path) -> None:
    """Write another hash into the cache, by which a test sees that it is taken."""
    (entry,) = cache.iterdir()
    entry.write_text("f" * 64)


def test_a_large_file_is_read_once(cache: Path, weights: Path) -> None:
    assert hash_of(weights) == hashlib.sha256(CONTENT).hexdigest()
    forge(cache)
    assert hash_of(weights) == "f" * 64


def test_a_small_file_is_read_each_time(cache: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_hashes, "_LARGE_BYTES", len(CONTENT) + 1)
    hash_of(weights)
    assert not cache.exists()


def write_again(path: Path) -> None:
    path.write_bytes(bytes(len(CONTENT)))


def replace(path: Path) -> None:
    """By a file with the same size and the same time."""
    status, other = path.stat(), path.with_name("other")
    other.write_bytes(bytes(len(CONTENT)))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)


def set_back(path: Path) -> None:
    """Write into the file, and set its time back."""
    status = path.stat()
    with path.open("r+b") as stream:
        stream.write(bytes(len(CONTENT)))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", [write_again, replace, set_back])
def test_a_file_of_the_same_size_in_its_place_is_read(cache: Path, weights: Path, change: Callable[[Path], None]) -> None:
    hash_of(weights)
    change(weights)
    assert hash_of(weights) == hashlib.sha256(bytes(len(CONTENT))).hexdigest()


def test_the_hash_of_a_file_that_may_change_at_the_same_time_isnt_kept(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "fresh").write_bytes(CONTENT)
    hash_of(tmp_path / "fresh")
    assert not cache.exists()


def test_half_a_kept_hash_is_none(cache: Path, weights: Path) -> None:
    right = hash_of(weights)
    (entry,) = cache.iterdir()
    for damage in ("", "f" * 63, "é" * 40):
        entry.write_text(damage, encoding="utf-8")
        assert hash_of(weights) == right


def test_without_a_place_for_the_cache_files_are_read(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "model.safetensors"))  # a file
    monkeypatch.setattr(file_hashes, "_LARGE_BYTES", 1)
    assert hash_of(weights) == hashlib.sha256(CONTENT).hexdigest()


def test_what_takes_long_is_said(cache: Path, weights: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            hash_of(weights)
    (record,) = caplog.records
    assert record.getMessage() == f"hashing {weights} (0.0 GB), to know the model again"


def test_a_blob_in_the_hubs_cache_is_read_whatever_its_name_and_times(tmp_path: Path) -> None:
    """The client names a large blob by its SHA-256. A copy of a cache has links younger than a blob that changed."""
    blob, link = tmp_path / "blobs" / ("ab" * 32), tmp_path / "snapshots" / "1234" / "model.safetensors"
    for path in (blob, link):
        path.parent.mkdir(parents=True)
    blob.write_bytes(CONTENT)
    link.symlink_to(f"../../blobs/{blob.name}")
    assert hash_of(link) == hashlib.sha256(CONTENT).hexdigest()
