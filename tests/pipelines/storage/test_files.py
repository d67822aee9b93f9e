"""Folders on a disk and in an object store: the same promises in both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.errors import SettingsError
from pipelines import storage
from pipelines.storage import Folder
from tests.support.object_store import BUCKET


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    if request.param == "s3":
        request.getfixturevalue("s3")
        yield storage.folder(f"{BUCKET}/a/b/")
    else:
        yield storage.folder(str(tmp_path / "a" / "b"))


def names(folder: Folder) -> list[str]:
    return sorted(entry.name for entry in folder.entries())


def test_a_folder_that_isnt_there_is_empty(folder: Folder) -> None:
    assert folder.entries() == []
    assert folder.is_empty()
    folder.delete_all()
    folder.delete("nothing")
    with pytest.raises(FileNotFoundError):
        folder.read("nothing")


def test_a_file_is_created_once(folder: Folder) -> None:
    folder.make()
    assert folder.is_empty()
    assert folder.create("one", b"first") is True
    assert folder.create("one", b"second") is False
    assert folder.read("one") == b"first"
    ((name, size, written),) = folder.entries()
    assert (name, size) == ("one", 5)
    assert written > 1.7e9
    assert not folder.is_empty()


def test_a_file_is_replaced_and_deleted(folder: Folder) -> None:
    folder.replace("one", b"first")
    folder.replace("one", b"second")
    assert folder.read("one") == b"second"
    folder.sub("below").replace("other", b"")
    assert names(folder) == ["one"]
    assert names(folder.sub("below")) == ["other"]
    folder.delete("one")
    assert names(folder) == []
    folder.delete_all()
    assert names(folder.sub("below")) == []


def test_a_stream_becomes_a_file_only_if_it_ends_well(folder: Folder) -> None:
    folder.make()
    with folder.writing("one") as stream:
        stream.write(b"all of it")
    assert folder.read("one") == b"all of it"
    with pytest.raises(RuntimeError), folder.writing("one") as stream:  # noqa: PT012
        stream.write(b"half of it")
        raise RuntimeError
    assert folder.read("one") == b"all of it"
    assert names(folder) == ["one"]


def test_files_are_read_from_anywhere_in_them(folder: Folder) -> None:
    content = b"".join(b"line %d\n" % number for number in range(500_000))
    folder.replace("lines", content)
    with storage.open_read(folder.file("lines")) as stream:
        stream.seek(len(content) - 14)
        assert stream.read() == content[-14:]
        stream.seek(5_000_000)
        assert stream.readline() == content[5_000_000:].split(b"\n")[0] + b"\n"


def paths(text: str) -> list[str]:
    found = storage.find(text)
    assert found is not None
    return sorted(file.path for file in found.files)


def test_files_are_found_by_name_by_pattern_and_by_folder(folder: Folder) -> None:
    for name in ("one.jsonl", "two.jsonl"):
        folder.replace(name, b"x")
    folder.sub("below").replace("three.jsonl", b"x")
    path = folder.path
    assert paths(folder.file("one.jsonl")) == [folder.file("one.jsonl")]
    below = folder.sub("below").file("three.jsonl")
    everything = [below, folder.file("one.jsonl"), folder.file("two.jsonl")]
    assert paths(f"{path}/*.jsonl") == everything[1:]
    assert paths(f"{path}/**/*.jsonl") == everything
    assert paths(path) == everything
    assert storage.find(f"{path}/nothing") is None
    assert storage.find(f"{path}/*.nothing") is None
    assert storage.find(f"{path}/b*") is None, "a pattern that matches folders alone leads nowhere"


def test_the_folders_that_a_pattern_matches_too_are_known(folder: Folder) -> None:
    folder.replace("one.jsonl", b"x")
    folder.sub("below").sub("it").replace("two.jsonl", b"x")
    below = folder.sub("below").path
    matched = storage.find(f"{folder.path}/*")
    assert matched is not None
    assert matched.folders == [below]
    assert [file.path for file in storage.files_below(below)] == [folder.sub("below").sub("it").file("two.jsonl")]
    for named in (folder.path, folder.file("one.jsonl")):
        found = storage.find(named)
        assert found is not None
        assert found.folders is None, "it is no pattern"


@pytest.mark.parametrize(
    ("one", "other", "overlapping"),
    [
        ("s3://a/b", "s3://a/b/", True),
        ("s3://a/b", "s3://a/b/c", True),
        ("s3://a/b", "s3://a/bc", False),
        ("/a/b/../c", "/a/c/d", True),
        ("/a/b", "s3://a/b", False),
        ("s3a://a/b", "s3://a/b/c", True),
        ("local:///a/b", "/a/b/c", True),
        ("file:///a/b", "local:///a/b", True),
    ],
)
def test_folders_inside_one_another(one: str, other: str, overlapping: bool) -> None:
    assert storage.overlap(one, other) is overlapping
    assert storage.overlap(other, one) is overlapping


@pytest.mark.parametrize(
    ("alias", "address"),
    [
        ("s3a://a/b/", "s3://a/b"),
        ("s3://a/b/", "s3://a/b"),
        ("local:///a/b/", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("https://a/b", "https://a/b"),
        ("nowhere://a/b", "nowhere://a/b"),
    ],
)
def test_a_place_has_one_address(alias: str, address: str) -> None:
    assert storage.absolute(alias) == storage.folder(alias).path == address


def test_files_below_a_folder_are_found_by_any_of_its_addresses(folder: Folder) -> None:
    folder.replace("a.jsonl", b"x")
    alias = folder.path.replace("s3://", "s3a://") if "://" in folder.path else f"local://{folder.path}"
    (path,) = paths(alias)
    assert path == folder.file("a.jsonl")
    assert storage.below(path, alias) == "a.jsonl"
    with storage.open_read(f"{alias}/a.jsonl") as stream:
        assert (stream.read(), storage.file_status(f"{alias}/a.jsonl").size) == (b"x", 1)


def test_a_store_that_nobody_knows_is_an_os_error() -> None:
    with pytest.raises(OSError, match=r"nowhere://x: Protocol not known: nowhere"):
        storage.find("nowhere://x")


def test_a_bucket_that_isnt_there_is_an_os_error(s3: object) -> None:
    with pytest.raises(OSError, match="bucket"):
        storage.folder("s3://missing/a").make()


def test_a_path_in_the_folder_of_a_job_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not storage.is_in_job()
    unpacked = tmp_path / "runtime_resources" / "working_dir_files" / "_ray_pkg_0"
    unpacked.mkdir(parents=True)
    monkeypatch.chdir(unpacked)
    assert storage.is_in_job()
    for path in ("out", "./out/", str(unpacked / "out")):
        with pytest.raises(SettingsError, match="lies in the folder that Ray unpacked for this job"):
            storage.folder(path)
    assert storage.absolute(str(tmp_path)) == str(tmp_path)
    assert storage.absolute("s3://bucket/out/") == "s3://bucket/out"
