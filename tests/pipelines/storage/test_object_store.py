"""What can go wrong with a store is an `OSError`, and a file that is written shows nothing else in the meantime."""

from typing import Any

import pytest

from pipelines import storage
from tests.support.object_store import BUCKET


def test_a_store_that_nobody_knows_is_an_os_error() -> None:
    with pytest.raises(OSError, match=r"nowhere://x: Protocol not known: nowhere"):
        storage.find("nowhere://x")


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
