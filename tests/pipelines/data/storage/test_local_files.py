"""Half-written files, links and folders that can't be listed, on a disk."""

import os
import time
from pathlib import Path

from pipelines.data import storage
from pipelines.data.storage.local_files import LocalFolder

OLD, NEW = f"{'01' * 16}.tmp", f"{'02' * 16}.tmp"


def test_half_written_files_go_after_a_day_or_when_there_is_no_other_writer(tmp_path: Path) -> None:
    for name in (OLD, NEW, "mine.tmp"):
        (tmp_path / name).touch()
    yesterday = time.time() - 25 * 3600
    os.utime(tmp_path / OLD, (yesterday, yesterday))
    folder = LocalFolder(str(tmp_path))
    folder.make()
    assert sorted(os.listdir(tmp_path)) == [NEW, "mine.tmp"]
    assert folder.names() == ["mine.tmp"], "a half-written file is no content"
    folder.clear()
    assert os.listdir(tmp_path) == ["mine.tmp"]


def test_a_stream_is_under_another_name_until_its_end(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    with folder.writing("one") as stream:
        stream.write(b"half of it")
        stream.flush()
        assert folder.names() == []
        assert len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == ["one"]


def test_a_link_to_a_folder_counts_as_a_file_and_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "round").symlink_to(tmp_path)
    assert sorted(file.path for file in storage.files_below(str(tmp_path))) == [f"{tmp_path}/a.jsonl", f"{tmp_path}/round"]
