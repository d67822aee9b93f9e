"""Corpora whose files are written by different programs, or lie beside what holds no rows: each row is scored once."""

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import ExpressionError, SourceError
from pipelines.results.exports import export_commands
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.export_settings import PairSettings
from pipelines.settings.filter_settings import FilterSettings
from tests.support.corpora import Notes, chat, lines, rows, scored, settings, write

pytestmark = pytest.mark.usefixtures("local_ray")

PAIRS = [{"prompt": f"What is {number}?", "chosen": f"It is {number}.", "rejected": "No."} for number in range(4)]


def count_kept(folder: Path, condition: str) -> int:
    return keep(FilterSettings(scored=str(folder), where=condition)).kept


def test_arrays_after_one_another_are_scored_to_the_last_row(tmp_path: Path) -> None:
    four = rows(4)
    path = write(tmp_path / "c.json", f"{json.dumps(four[:2])}\n{json.dumps(four[2:])}".encode())
    assert score(settings(path, tmp_path / "out")).scored == 4
    assert [json.loads(row["record"])["id"] for row in scored(tmp_path / "out")] == [0, 1, 2, 3]


def test_shards_of_different_types_are_scored_as_if_they_were_of_one(tmp_path: Path) -> None:
    """As polars, pandas and Spark write the same rows; what a score needs has the same rewards as in JSON."""
    day = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    more: list[dict[str, Any]] = [
        {"n": pa.array([1, 2**60 + 1]), "big": pa.array([1, 2]), "meta": pa.array([{"a": 1}, {"a": 2}])},
        {"n": pa.array([1.5, None]), "big": pa.array(["x", None]), "meta": pa.array([{"b": "é"}, None])},
        {"n": pa.array([1, 2], pa.int32()), "big": pa.array([[1], []]), "meta": pa.array(["text", "{}"])},
        {"n": pa.nulls(2), "big": pa.array([day, None]), "meta": pa.nulls(2)},
    ]
    texts = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.string_view()]
    for index, (columns, kind) in enumerate(zip(more, texts, strict=True)):
        these = PAIRS[:2] if index % 2 == 0 else PAIRS[2:]
        shown = {name: pa.array([row[name] for row in these], pa.string()).cast(kind) for name in PAIRS[0]}
        path = tmp_path / "in" / f"{index}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(shown | columns), path)
    summary = score(settings(tmp_path / "in", tmp_path / "out"))
    assert (summary.scored, summary.rows) == (16, 8)
    done = scored(tmp_path / "out")
    score(settings(write(tmp_path / "c.jsonl", lines(PAIRS)), tmp_path / "json"))
    expected = {(row["prompt_hash"], row["response_name"]): row["reward"] for row in scored(tmp_path / "json")}
    assert {(row["prompt_hash"], row["response_name"]): row["reward"] for row in done} == expected
    firsts = [row for row in done if row["response_name"] == "chosen"]
    assert [row["n"] for row in firsts] == [1.0, None, 1.5, None, 1.0, 2.0, None, None]
    assert [row["big"] for row in firsts] == ["1", "2", "x", None, "[1]", "[]", "2026-01-02 00:00:00.000000Z", None]
    assert [row["meta"] for row in firsts] == [
        '{"a": 1}', '{"a": 2}', '{"b": "é"}', None, "text", "{}", None, None
    ]  # fmt: skip
    assert count_kept(tmp_path / "out", "n > 1.2") == 4
    made = export_commands.make_pairs(
        PairSettings(scored=str(tmp_path / "out"), output=str(tmp_path / "pairs"), fake_ok=True)
    )
    assert made.rows == 4, "a pair of each prompt"


def test_a_folder_is_scored_again_with_its_result_in_it(tmp_path: Path) -> None:
    write(tmp_path / "c" / "a.jsonl", lines(rows(3)))
    write(tmp_path / "c" / "dataset_infos.json", b'{"default": {"features": {}, "splits": {}}}')
    first = score(settings(tmp_path / "c", tmp_path / "c" / "out"))
    notes = Notes()
    again = score(settings(tmp_path / "c", tmp_path / "c" / "out"), notes)
    assert (first.scored, again.scored, len(scored(tmp_path / "c" / "out"))) == (3, 3, 3)
    assert list(again.left_out) == [
        f"{tmp_path}/c/dataset_infos.json (one object with 1 objects by key, 'default')",
        f"{tmp_path}/c/out (a scored corpus)",
    ]
    keep(FilterSettings(scored=str(tmp_path / "c" / "out"), output=str(tmp_path / "c" / "kept"), where="reward > -1000"))
    assert score(settings(tmp_path / "c", tmp_path / "c" / "out")).rows == 3


def test_names_with_signs_of_patterns_are_scored_and_filtered(tmp_path: Path) -> None:
    for name in ("part[1].jsonl", "part1.jsonl", "part*.jsonl"):
        write(tmp_path / "in [v1]" / name, lines(rows(1)))
    output = tmp_path / "out [v1]"
    assert score(settings(tmp_path / "in [v1]" / "part*.jsonl", output)).rows == 1
    assert score(settings(tmp_path / "in [v1]" / "part[1].jsonl", output, overwrite=True)).rows == 1
    assert score(settings(tmp_path / "in [v1]", output, overwrite=True)).rows == 3
    assert count_kept(output, "reward > -1000") == 3


def test_partitions_are_scored_and_kept_by_their_folders(tmp_path: Path) -> None:
    for lang in ("en", "de"):
        path = tmp_path / "in" / f"lang={lang}" / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows(2)), path)
    assert score(settings(tmp_path / "in", tmp_path / "out")).rows == 4
    with pytest.raises(ExpressionError, match="there is no column lang") as refused:
        count_kept(tmp_path / "out", "lang = 'en'")
    assert "a row's name holds the folder: row like '%lang=en/%'\n" in str(refused.value)
    assert count_kept(tmp_path / "out", "row like '%lang=en/%'") == 2


def test_a_column_that_rows_are_read_from_has_one_type(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, content in (("a", [chat("a", "b")["messages"]]), ("b", ["[]"])):
        pq.write_table(pa.table({"messages": content}), tmp_path / "in" / f"{name}.parquet")
    with pytest.raises(
        SourceError, match=r"the column 'messages', from which rows are read, is list<.*a\.parquet and string in"
    ):
        score(settings(tmp_path / "in", tmp_path / "out"))
