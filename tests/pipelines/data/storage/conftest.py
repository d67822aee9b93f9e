"""A folder on a disk and one in an object store: what holds of one holds of the other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.data import storage
from pipelines.data.storage import Folder
from tests.support.object_store import BUCKET


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    if request.param == "s3":
        request.getfixturevalue("s3")
        yield storage.folder(f"{BUCKET}/a/b/")
    else:
        yield storage.folder(str(tmp_path / "a" / "b"))
