"""The rows that are looked at before a run lie all over the corpus, and cost no more than a thousand small ones."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import DamagedSource, Rejected
from pipelines.data.corpus.corpus_files import limit_files
from pipelines.run.prepare.row_sample import SAMPLE_ROWS, read_sample
from tests.support.corpora import damaged_parquet, find

MOST = 2**26


def lines(count: int, width: int = 0) -> bytes:
    return b"".join(json.dumps({"at": index, "text": "x" * width}).encode() + b"\n" for index in range(count))


def places(folder: Path) -> list[int]:
    rows: list[Any] = read_sample(find([str(folder)]), MOST).rows
    return [row["at"] for row in rows]


@pytest.mark.parametrize("count", [1, 19, 300, 900])
def test_a_small_corpus_is_looked_at_whole(tmp_path: Path, count: int) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines(count))
    assert places(tmp_path) == list(range(count))


def test_of_a_large_file_rows_of_twenty_places_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines(20_000))
    read = places(tmp_path)
    assert (len(read), read) == (SAMPLE_ROWS, sorted(set(read)))
    assert all(any(index // 1000 == thousand for index in read) for thousand in range(20))


def test_of_many_files_twenty_are_looked_at_that_lie_apart(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number:02}.jsonl").write_bytes(json.dumps({"at": number}).encode() + b"\n")
    read = places(tmp_path)
    assert [index // 3 for index in read] == list(range(20))
    assert {index % 2 for index in read} == {0, 1}, "files of two kinds may take turns"
    assert places(tmp_path) == read, "the same in every session"


def test_a_damaged_page_in_the_sample_is_told_with_the_file(tmp_path: Path) -> None:
    file = damaged_parquet(tmp_path / "c.parquet", [{"at": str(number)} for number in range(100)], slice(20, 50))
    with pytest.raises(DamagedSource, match=r"c\.parquet can't be read to its end: .*: fetch it again"):
        read_sample([file], MOST)


@pytest.mark.parametrize("groups", [1, 3, 40])
def test_of_parquet_rows_of_several_row_groups_are_looked_at(tmp_path: Path, groups: int) -> None:
    table = pa.table({"at": range(4000)})
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=4000 // groups + 1)
    read = places(tmp_path)
    assert (len(read), read) == (len(set(read)), sorted(read))
    assert len(read) <= SAMPLE_ROWS
    assert max(read) >= 4000 * (groups - 1) // groups // 2


@pytest.mark.parametrize("groups", [1, 3])
def test_places_lie_within_large_row_groups(tmp_path: Path, groups: int) -> None:
    # What `pq.write_table` writes by default: a file of up to 1,048,576 rows is one row group.
    pq.write_table(pa.table({"at": range(90_000)}), tmp_path / "c.parquet", row_group_size=90_000 // groups)
    read = places(tmp_path)
    assert SAMPLE_ROWS * 0.9 <= len(read) == len(set(read)) <= SAMPLE_ROWS * 1.1
    assert read == sorted(read)
    assert 0.4 < sum(at >= 45_000 for at in read) / len(read) < 0.6, "rows that are sorted by kind are of both kinds"
    limited = limit_files(find([str(tmp_path)]), [40_010])
    rows: list[Any] = read_sample(limited, MOST).rows
    assert 38_000 < max(row["at"] for row in rows) < 40_010


def test_a_run_reads_no_more_than_the_first_bytes_of_a_large_row_group(tmp_path: Path) -> None:
    texts = [f"{at:09}" + "x" * 100 for at in range(20_000)]
    pq.write_table(pa.table({"at": range(20_000), "text": texts}), tmp_path / "c.parquet", compression="none")
    files = find([str(tmp_path)])
    rows: list[Any] = read_sample(files, MOST, reach=files[0].size // 2).rows
    assert 9_000 < max(row["at"] for row in rows) <= 10_000


def test_of_what_can_only_be_read_from_its_beginning_the_first_rows_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(3000)))
    assert places(tmp_path) == list(range(SAMPLE_ROWS))
    (tmp_path / "a.jsonl.gz").unlink()
    (tmp_path / "b.json").write_text(json.dumps([{"at": index} for index in range(3000)]))
    assert places(tmp_path) == list(range(SAMPLE_ROWS))
    assert read_sample(find([str(tmp_path)]), MOST).beginnings == {"b.json": SAMPLE_ROWS}


def test_large_rows_are_looked_at_in_smaller_numbers(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines(200, width=300_000))
    assert 20 <= len(places(tmp_path)) <= 100


def test_a_limited_file_is_looked_at_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(lines(100))
    files = limit_files(find([str(tmp_path)]), [len(lines(7))])
    assert len(read_sample(files, MOST).rows) == 7


def test_a_record_that_is_no_object_or_too_large_stands_as_its_error(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(b'{"at": 1}\n[1]\nnot JSON\n' + lines(1, width=1000))
    sample = read_sample(find([str(tmp_path)]), 100)
    reasons = [str(row.reason) for row in sample.rows if isinstance(row, Rejected)]
    assert reasons == ["not_an_object", "broken_json", "record_too_large"]
    assert len(sample.record_bytes) == 3
