"""A shuffle: which responses meet in a bucket, in what order, however the work is cut."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.data.corpus.corpus_files import Range
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus import shuffle
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus
from pipelines.folders.scored_corpus.shuffle import plan_shuffle
from tests.support.corpora import RUN

ROWS, PART_ROWS, PROMPTS = 120, 5, 17
READS = ["kind", "Row", "row", "prompt_hash"]


def corpus(folder: Path) -> OpenedCorpus:
    """Each fifth response has no prompt hash; the input has a column with dictionaries, which differ from part to part."""
    carried = pa.schema([("kind", pa.dictionary(pa.int32(), pa.string())), ("Row", pa.int64())])
    columns, parts = Columns(carried, ("grade",), ""), Parts(str(folder), RUN)
    parts.create()
    for start in range(0, ROWS, PART_ROWS):
        numbers = range(start, start + PART_ROWS)
        values: dict[str, Any] = {field.name: pa.nulls(PART_ROWS, field.type) for field in columns.schema}
        values["kind"] = pa.array([f"kind {number // 7}" for number in numbers]).dictionary_encode()
        values["Row"] = pa.array(numbers, pa.int64())
        values["row"] = pa.array([f"c:{number}" for number in numbers])
        values["prompt_hash"] = pa.array([None if number % 5 == 4 else f"{number % PROMPTS:016x}" for number in numbers])
        parts.commit(Part(0, Range(start, start + PART_ROWS), Counts(PART_ROWS, PART_ROWS)), pa.table(values), {})
    return OpenedCorpus(str(folder), Manifest({}, (), columns, {}, run=RUN), sorted(parts.entries()))


def shuffled(corpus: OpenedCorpus, folder: Path, buckets: int) -> dict[int, list[dict[str, Any]]]:
    size = sum(entry.size for _, entry in corpus.entries)
    plan, groups = plan_shuffle(corpus, READS, -(-size // buckets), folder=str(folder), work="test", ticket=None)
    assert plan.buckets == buckets
    plan.open()
    for number in reversed(plan.missing()):
        plan.write(number, groups[number])
    assert plan.missing() == []
    rows: dict[int, list[dict[str, Any]]] = {}
    for bucket in reversed(range(buckets)):
        rows[bucket] = [row for table in plan.read(bucket) for row in table.to_pylist()]
    plan.close()
    assert not folder.exists()
    return rows


@pytest.mark.parametrize("buckets", [1, 2, 5])
@pytest.mark.parametrize("stretch_bytes", [1, 2**20])
def test_each_response_is_in_one_bucket_sorted_by_prompt_and_place(
    buckets: int, stretch_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "_PARTS", 3)
    monkeypatch.setattr(shuffle, "_STRETCH_BYTES", stretch_bytes)
    monkeypatch.setattr(shuffle, "_TABLE_BYTES", stretch_bytes)
    monkeypatch.setattr(shuffle, "_BATCH_ROWS", 4)
    monkeypatch.setattr(shuffle, "_TASKS", buckets)
    by_bucket = shuffled(corpus(tmp_path / "in"), tmp_path / "spilled", buckets)
    assert sorted(row["Row"] for rows in by_bucket.values() for row in rows) == list(range(ROWS))
    for rows in by_bucket.values():
        order = [(row["prompt_hash"] is None, row["prompt_hash"] or "", row["Row"]) for row in rows]
        assert order == sorted(order), "rows without a prompt come last"
    hashed = [{row["prompt_hash"] for row in rows} - {None} for rows in by_bucket.values()]
    assert sum(map(len, hashed)) == PROMPTS, "all responses to a prompt are in one bucket"
    assert all(row["kind"] == f"kind {row['Row'] // 7}" and row["row"] == f"c:{row['Row']}" for row in by_bucket[0])


def test_buckets_dont_depend_on_how_the_work_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shuffled(corpus(tmp_path / "in"), tmp_path / "spilled", 5)
    monkeypatch.setattr(shuffle, "_PARTS", 2)
    monkeypatch.setattr(shuffle, "_STRETCH_BYTES", 1)
    monkeypatch.setattr(shuffle, "_TABLE_BYTES", 1)
    assert shuffled(corpus(tmp_path / "again"), tmp_path / "spilled", 5) == whole
    assert len(whole) == 5
