"""Files are found, read and described the same way on a disk and in an object store."""

import pytest

from pipelines.data import storage
from pipelines.data.storage import Folder


def test_files_are_read_from_anywhere_in_them(folder: Folder) -> None:
    content = b"".join(b"line %d\n" % number for number in range(500_000))
    folder.replace("lines", content)
    with storage.open_read(folder.file("lines")) as stream:
        stream.seek(len(content) - 14)
        assert stream.read() == content[-14:]
        stream.seek(5_000_000)
        assert stream.readline() == content[5_000_000:].split(b"\n")[0] + b"\n"


def paths(text: str) -> list[str]:
    matches = storage.find(text)
    assert matches is not None
    return sorted(file.path for file in matches.files)


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


@pytest.mark.parametrize("name", ["part[1].jsonl", "part*.jsonl", "part?.jsonl", "**"])
def test_a_file_of_exactly_this_name_is_no_pattern(folder: Folder, name: str) -> None:
    for other in (name, "part1.jsonl", "part2.jsonl"):
        folder.replace(other, b"x")
    assert paths(folder.file(name)) == [folder.file(name)]


def test_a_folder_of_exactly_this_name_is_no_pattern(folder: Folder) -> None:
    for other in ("[v1]", "v1"):
        folder.sub(other).replace("a.jsonl", b"x")
    named = folder.sub("[v1]")
    assert paths(named.path) == paths(named.file("a.jsonl")) == [named.file("a.jsonl")]
    assert paths(folder.file("v[12]/*.jsonl")) == [folder.sub("v1").file("a.jsonl")]


def test_the_folders_that_a_pattern_matches_too_are_known(folder: Folder) -> None:
    folder.replace("one.jsonl", b"x")
    folder.sub("below").sub("it").replace("two.jsonl", b"x")
    below = folder.sub("below").path
    matches = storage.find(f"{folder.path}/*")
    assert matches is not None
    assert matches.folders == [below]
    assert [file.path for file in storage.files_below(below)] == [folder.sub("below").sub("it").file("two.jsonl")]
    for named in (folder.path, folder.file("one.jsonl")):
        matches = storage.find(named)
        assert matches is not None
        assert matches.folders is None, "it is no pattern"


def test_files_below_a_folder_are_found_by_any_of_its_addresses(folder: Folder) -> None:
    folder.replace("a.jsonl", b"x")
    alias = folder.path.replace("s3://", "s3a://") if "://" in folder.path else f"local://{folder.path}"
    (path,) = paths(alias)
    assert path == folder.file("a.jsonl")
    assert storage.below(path, alias) == "a.jsonl"
    with storage.open_read(f"{alias}/a.jsonl") as stream:
        assert (stream.read(), storage.file_status(f"{alias}/a.jsonl").size) == (b"x", 1)
