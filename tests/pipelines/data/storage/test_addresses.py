"""Which paths and addresses lead to the same place, and which lead nowhere."""

from pathlib import Path

import pytest

from actors.errors import SettingsError
from pipelines.data import storage


def test_folders_inside_one_another() -> None:
    cases: list[tuple[str, str, bool]] = [
        ("s3://a/b", "s3://a/b/", True),
        ("s3://a/b", "s3://a/b/c", True),
        ("s3://a/b", "s3://a/bc", False),
        ("/a/b/../c", "/a/c/d", True),
        ("/a/b", "s3://a/b", False),
        ("s3a://a/b", "s3://a/b/c", True),
        ("local:///a/b", "/a/b/c", True),
        ("file:///a/b", "local:///a/b", True),
    ]
    for item, other, overlapping in cases:
        assert storage.overlap(item, other) is overlapping
        assert storage.overlap(other, item) is overlapping


def test_a_place_has_one_address() -> None:
    cases: list[tuple[str, str]] = [
        ("s3a://a/b/", "s3://a/b"),
        ("s3://a/b/", "s3://a/b"),
        ("local:///a/b/", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("https://a/b", "https://a/b"),
        ("nowhere://a/b", "nowhere://a/b"),
    ]
    for alias, address in cases:
        assert storage.absolute(alias) == storage.folder(alias).path == address


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
