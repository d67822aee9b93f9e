"""Which paths and addresses lead to the same place, and which lead nowhere."""

from pathlib import Path

import pytest

from actors.errors import SettingsError
from pipelines import storage


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
