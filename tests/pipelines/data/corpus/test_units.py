"""How work is divided among read tasks: bounded in number, whole, in order, and the same rows as file by file."""

import itertools
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.corpus import opened_files, readers
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.data.corpus.readers import read, read_group
from pipelines.data.corpus.units import Unit, cut, group, task_bytes
from tests.support.corpora import find

MB = 2**20


def lines_file(index: int, size: int) -> InputFile:
    return InputFile(index, f"{index}.jsonl", f"/{index}.jsonl", FileKind.JSONL, size, "", size)


@given(st.lists(st.integers(1, 3 * MB), max_size=200), st.integers(1, 2 * MB))
def test_groups_hold_all_units_in_order_and_no_more_than_a_task_reads(sizes: list[int], most: int) -> None:
    units = [Unit(lines_file(index, size), Range(0, size)) for index, size in enumerate(sizes)]
    groups = list(group(units, most))
    assert [unit for members in groups for unit in members] == units
    assert all(len(members) == 1 or sum(unit.size for unit in members) <= most for members in groups)
    # Two neighbours would not have fitted into one: files of a few bytes count as 8 KiB, which bounds the files of a task.
    assert all(
        sum(max(unit.size, 8192) for unit in [*before, after[0]]) > most for before, after in itertools.pairwise(groups)
    )


def test_a_large_corpus_has_a_bounded_number_of_tasks() -> None:
    terabyte = 2**40
    assert task_bytes(100 * terabyte, 16 * MB) == 100 * terabyte // 20_000
    assert task_bytes(terabyte // 100, 16 * MB) == 16 * MB
    assert task_bytes(10 * MB, 16 * MB) == MB  # of many small files: ten tasks
    assert task_bytes(10 * MB, 3000) == 3000  # what the user says is the most


def test_a_small_parquet_file_is_not_opened_to_be_cut() -> None:
    file = InputFile(0, "x.parquet", "/isn't there.parquet", FileKind.PARQUET, 1000, "", 50)
    assert cut(file, [Range(0, 10), Range(30, 50)], (), MB) == [Unit(file, Range(0, 10)), Unit(file, Range(30, 50))]
    assert Unit(file, Range(30, 50)).size == 400


def test_a_file_of_many_row_groups_is_opened_once_for_each_unit_and_not_for_each_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening it parses a footer that tells of every group: a file of 2,000 groups took 56 s."""
    rows = pa.table({"prompt": [f"{number} {'x' * 300}" for number in range(2000)]})
    pq.write_table(rows, tmp_path / "x.parquet", row_group_size=2, compression="none", use_dictionary=False)
    (file,) = find([str(tmp_path / "x.parquet")])
    paths: list[str] = []

    def opened(file: InputFile) -> AbstractContextManager[IO[bytes]]:
        paths.append(file.path)
        return opened_files.opened(file)

    monkeypatch.setattr(readers, "opened", opened)
    units = cut(file, [Range(0, file.extent or 0)], (), file.size // 4)
    assert len(units) == 5  # each ends where a group does, so the last one holds what the others had no place for
    tables = list(read_group(units, MB, lambda file, extent: None))
    assert pa.concat_tables(tables).select(["prompt"]).equals(rows)
    assert len(paths) == 5


@pytest.mark.parametrize("remote", [False, True], ids=["local", "store"])
def test_a_group_has_the_rows_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool) -> None:
    for number in range(50):
        (tmp_path / f"{number:02d}.jsonl").write_text("".join(f'{{"a": {number * row}}}\n' for row in range(number)))
    if remote:
        monkeypatch.setattr(readers, "is_remote", lambda path: True)  # read ahead, as in a store
    files = find([str(tmp_path)])
    units = [unit for file in files for unit in cut(file, [Range(0, file.size)] if file.size else [], (), 70)]
    ends: list[tuple[int, int]] = []
    tables = list(read_group(units, MB, lambda file, extent: ends.append((file.index, extent))))
    apart = [table for unit in units for table in read(unit, MB, lambda file, extent: None)]
    assert pa.concat_tables(tables).equals(pa.concat_tables(apart))
    assert len(tables) < 5 < len(units) / 2  # joined: a table per file would make a call of every later step
    assert not ends  # lines end where the file does


def test_tables_of_other_columns_are_not_joined() -> None:
    first, second = pa.table({"a": [1]}), pa.table({"a": ["x"]})
    joined = list(readers._join([first, first, second, first]))
    assert [table.num_rows for table in joined] == [2, 1, 1]
