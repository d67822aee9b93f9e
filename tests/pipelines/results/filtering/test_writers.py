"""Rows come table by table, a few at a time, and are gathered into row groups of one size."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.results.filtering import writers
from pipelines.results.filtering.writers import RowGroups


def test_small_tables_are_gathered_into_row_groups_of_one_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_ROW_GROUP_BYTES", 300)
    table = pa.table({"number": pa.array(range(16), pa.int64())})  # 128 bytes
    with (tmp_path / "kept.parquet").open("wb") as stream:
        row_groups = RowGroups(stream, table.schema)
        for _ in range(7):
            row_groups.add(table)
        row_groups.close()
    file = pq.ParquetFile(tmp_path / "kept.parquet")
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [48, 48, 16]
    assert file.read().column("number").to_pylist() == [*range(16)] * 7
