"""Folders on a disk and in an object store: the same promises in both."""

import pytest

from pipelines.data.storage import Folder


def names(folder: Folder) -> list[str]:
    return sorted(entry.name for entry in folder.entries())


def test_a_folder_that_isnt_there_is_empty(folder: Folder) -> None:
    assert list(folder.entries()) == []
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


def test_a_file_is_moved_into_a_folder_that_isnt_there_yet(folder: Folder) -> None:
    folder.replace("[one] *.parquet", b"all of it")
    folder.move("[one] *.parquet", folder.sub("aside").sub("today"))
    assert names(folder) == []
    assert folder.sub("aside").sub("today").read("[one] *.parquet") == b"all of it"
    with pytest.raises(FileNotFoundError):
        folder.move("[one] *.parquet", folder.sub("aside"))
