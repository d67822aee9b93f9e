"""Rows come table by table, a few at a time, and are gathered into row groups of one size."""

from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.results.filtering import writers
from pipelines.results.filtering.response_rows import OwnFieldCounts
from pipelines.results.filtering.writers import Target, _ParquetWriter


class _Columns:
    """As much of a target as the writer reads."""

    schema = pa.schema([("number", pa.int64())])
    metadata = {"by": "a test"}  # noqa: RUF012
    responses = None


def test_small_tables_are_gathered_into_row_groups_of_one_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_ROW_GROUP_BYTES", 300)
    table = pa.table({"number": pa.array(range(16), pa.int64())})  # 128 bytes
    with (tmp_path / "kept.parquet").open("wb") as stream:
        writer = _ParquetWriter(cast(Target, _Columns()), stream, OwnFieldCounts())
        for _ in range(7):
            writer.write(table)
        writer.close()
    file = pq.ParquetFile(tmp_path / "kept.parquet")
    groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert groups == [48, 48, 16]
    assert file.read().column("number").to_pylist() == [*range(16)] * 7
