"""Ray Datasets in, Ray Datasets out: scored, filtered and chosen from as folders are."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray.data import DataContext, Dataset

import assay
from actors.engine.fork_server import SWITCH, share
from actors.errors import ExpressionError, ModelError, SettingsError, SourceError
from pipelines.folders.run_folder.columns import Columns
from pipelines.workflows.datasets.score_rows import row_id
from tests.conftest import REPOSITORY
from tests.support.commands import PATIENCE_S, summary
from tests.support.corpora import chat, lines, rows, scored, write
from tests.support.local_ray import run_here
from tests.support.object_store import BUCKET

COUNT = 60
TURN = pa.struct([("role", pa.string()), ("content", pa.string())])
CARRIED = pa.schema(
    [
        ("id", pa.int32()),
        ("messages", pa.list_(TURN)),
        ("tags", pa.large_list(pa.string())),
        ("when", pa.timestamp("ms", "UTC")),
        ("raw", pa.large_binary()),
        ("nothing", pa.string()),
    ]
)
OUTPUTS = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")


@pytest.fixture(scope="module", autouse=True)
def quiet_ray(s3_ray: None) -> Iterator[None]:
    """One Ray for the whole file, which holds the blocks of `graded`."""
    context = DataContext.get_current()
    before, context.enable_progress_bars = context.enable_progress_bars, False
    yield
    context.enable_progress_bars = before


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Sixty conversations; every tenth has no response that could be judged."""
    result = [
        chat(
            f"What is {index} + 1?",
            f"It is {index + 1}." if index % 10 else "<extra_id_1>",
            id=index,
            tags=["a", str(index)] if index % 2 else None,
            when=index * 1000,
            raw=bytes([index]),
        )
        for index in range(COUNT)
    ]
    return pa.Table.from_pylist(result, CARRIED)


@pytest.fixture(scope="module")
def graded(table: pa.Table) -> Dataset:
    """The conversations, scored once for all tests."""
    return score(ray.data.from_arrow(table).repartition(5)).materialize()


def score(dataset: Dataset, **options: Any) -> Dataset:
    return assay.score(dataset, **{"model": "tiny-attributes", "engine": "fake", **options})


def table_of(dataset: Dataset) -> pa.Table:
    tables: list[pa.Table] = ray.get(dataset.to_arrow_refs())
    return pa.concat_tables(tables)


def by_id(dataset: Dataset) -> list[dict[str, Any]]:
    return sorted(dataset.take_all(), key=lambda row: (row["id"], row["response_name"]))


def ids(dataset: Dataset) -> list[int]:
    return sorted(row["id"] for row in dataset.take_all())


def test_columns_come_back_type_for_type_and_every_response_is_there(table: pa.Table, graded: Dataset) -> None:
    result = table_of(graded).sort_by("id")
    assert result.schema.equals(Columns(CARRIED, OUTPUTS, "", text=True).schema)
    assert result.select(CARRIED.names).equals(table)
    assert result.column("response_text").to_pylist() == [row["messages"][-1]["content"] for row in table.to_pylist()]
    statuses = list(zip(result.column("status").to_pylist(), result.column("reason").to_pylist(), strict=True))
    assert statuses == [("scored", None) if index % 10 else ("rejected", "control_token") for index in range(COUNT)]
    assert [reward is None for reward in result.column("reward").to_pylist()] == [index % 10 == 0 for index in range(COUNT)]


def test_a_dataset_is_scored_as_a_folder_is(tmp_path: Path, table: pa.Table, graded: Dataset) -> None:
    pq.write_table(table, tmp_path / "c.parquet")
    assay.score(str(tmp_path / "c.parquet"), str(tmp_path / "out"), model="tiny-attributes", engine="fake")
    names = [name for name in Columns(CARRIED, OUTPUTS, "", text=True).schema.names if name != "row"]
    of_folder = [{name: row[name] for name in names} for row in scored(tmp_path / "out")]
    assert [{name: row[name] for name in names} for row in table_of(graded).sort_by("id").to_pylist()] == of_folder


def test_a_row_has_the_same_id_however_the_dataset_is_cut(table: pa.Table, graded: Dataset) -> None:
    expected = {row["id"]: row_id(row) for row in table.to_pylist()}
    assert len(set(expected.values())) == COUNT
    for result in (graded, score(ray.data.from_arrow(table.slice(20)).repartition(2), batch_rows=7)):
        assert all(row["row"] == expected[row["id"]] for row in result.take_all())
    assert row_id({"a": 1, "b": b"x"}) == row_id({"b": b"x", "a": 1}) != row_id({"a": 2, "b": b"x"})


def test_rows_of_several_responses_and_columns_of_ones_own() -> None:
    pairs = [
        {"id": index, "chosen": chat("q", f"yes {index}")["messages"], "rejected": chat("q", "no")["messages"]}
        for index in range(8)
    ]
    rows = by_id(score(ray.data.from_items(pairs)))
    assert [row["response_name"] for row in rows] == ["chosen", "rejected"] * 8
    assert len({row["prompt_hash"] for row in rows}) == 1
    named = ray.data.from_items([{"id": 1, "q": "q", "said": ["a", "b"]}])
    assert len(by_id(score(named, prompt_column="q", response_column="said"))) == 2


def test_the_turns_of_a_conversation_are_one_forward_pass() -> None:
    """The engine answers one request; at another it would die, and that would end the run."""
    talk = {"id": 1, "messages": [*chat("1 + 1?", "2")["messages"], *chat("2 + 2?", "4")["messages"]]}
    once: dict[str, Any] = {"engine_args": {"die_after": 1}, "max_engine_deaths": 1}
    rows = by_id(score(ray.data.from_items([talk]), model="tiny-scalar", turns="all", **once))
    assert [(row["response_name"], row["status"]) for row in rows] == [("turn[1]", "scored"), ("turn[3]", "scored")]


def test_blocks_that_differ_come_out_in_one_type() -> None:
    few = [chat("q", "a", id=1), chat("q", "b", id=2, note="x", weight=0.5)]
    rows = by_id(score(ray.data.from_items(few, override_num_blocks=2)))
    assert [(row["note"], row["weight"]) for row in rows] == [(None, None), ("x", 0.5)]


def test_an_empty_dataset_comes_out_empty(table: pa.Table) -> None:
    empty = score(ray.data.from_arrow(table.slice(0, 0)))
    assert empty.count() == 0
    assert assay.filter(assay.filter(empty, "reward > 1"), top_k=1).count() == 0


def test_keep_is_lazy_and_keeps_what_sql_says(graded: Dataset) -> None:
    result = assay.filter(graded, "reward > 0 and id % 2 = 0 and scores.correctness is not null")
    expected = [row["id"] for row in by_id(graded) if row["reward"] is not None and row["reward"] > 0 and row["id"] % 2 == 0]
    assert expected
    assert ids(result) == expected
    assert ids(assay.filter(graded.select_columns(["id", "raw"]), "id < 3")) == [0, 1, 2]
    assert result.schema().names == graded.schema().names


def tie(row: dict[str, Any]) -> int:
    """As the documentation has it."""
    return int.from_bytes(hashlib.md5(f"{row['row']} {row['response_name']}".encode()).digest()[8:], "little")


@pytest.mark.parametrize("by", ["reward", "floor(reward)"])
def test_the_best_fraction_is_that_of_a_sort(graded: Dataset, by: str) -> None:
    candidates = [row for row in by_id(graded) if row["reward"] is not None and row["id"] < 50]
    value = np.floor if by != "reward" else float
    best = sorted(candidates, key=lambda row: (value(row["reward"]), tie(row)), reverse=True)[: int(0.3 * len(candidates))]
    result = assay.filter(graded, top_fraction=0.3, by=by, where="id < 50")
    assert ids(result) == sorted(row["id"] for row in best)
    assert ids(assay.filter(graded.repartition(1), top_fraction=0.3, by=by, where="id < 50")) == ids(result)


@pytest.mark.parametrize(
    ("k", "min_gap"),
    [pytest.param(1, None, marks=pytest.mark.long), pytest.param(3, None, marks=pytest.mark.long), (2, 1.0)],
)
def test_the_best_of_each_prompt_are_those_of_a_brute_force(k: int, min_gap: float | None) -> None:
    several = [chat(f"Prompt {index % 7}", f"answer {index}" if index % 9 else "", id=index) for index in range(50)]
    result = score(ray.data.from_items(several, override_num_blocks=4)).materialize()
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in by_id(result):
        if row["reward"] is not None:
            groups.setdefault(row["prompt_hash"], []).append(row)
    expected: list[int] = []
    for group in groups.values():
        best = sorted(group, key=lambda row: (row["reward"], tie(row)), reverse=True)
        if min_gap is None or best[0]["reward"] - best[1]["reward"] >= min_gap:
            expected += [row["id"] for row in best[:k]]
    assert ids(assay.filter(result, top_k=k, min_gap=min_gap)) == sorted(expected)
    assert len(ids(assay.filter(result, top_k=k, per="row", where="id < 9"))) == 8


@pytest.mark.long
def test_a_scored_folder_and_its_dataset_choose_the_same(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(40)))
    folder, kept = str(tmp_path / "scored"), tmp_path / "kept"
    assay.score(str(corpus), folder, model="tiny-attributes", engine="fake", part_rows=8)
    dataset = assay.read_scored(folder)
    assert dataset.count() == 40
    by = "case when reward > 0 then 1 else 0 end"
    kept_summary = assay.filter(folder, str(kept), top_fraction=0.2, by=by, where="id >= 5", format="parquet")
    assert kept_summary.kept == 7
    (file,) = kept.glob("*.parquet")
    assert ids(assay.filter(dataset, top_fraction=0.2, by=by, where="id >= 5")) == sorted(
        pq.read_table(file)["id"].to_pylist()
    )
    assert assay.filter(folder, None, top_k=1, per="row").kept == assay.filter(dataset, top_k=1, per="row").count() == 40
    assert assay.filter(folder, None, "reward > 0").kept == assay.filter(dataset, "reward > 0").count()
    flipped = next((tmp_path / "scored" / "parts").iterdir())
    whole, data_page_offset = flipped.read_bytes(), pq.read_metadata(flipped).row_group(0).column(0).data_page_offset - 10
    flipped.write_bytes(whole[:data_page_offset] + bytes([whole[data_page_offset] ^ 4]) + whole[data_page_offset + 1 :])
    with pytest.raises(SourceError, match=flipped.name):
        assay.read_scored(folder).take_all()
    flipped.unlink()
    with pytest.raises(SourceError, match="isn't complete"):
        assay.read_scored(folder)
    assert assay.read_scored(folder, partial=True).count() == 32
    with pytest.raises(SourceError, match="isn't there"):
        assay.read_scored(str(tmp_path / "nowhere"))


@pytest.mark.long
def test_a_folder_in_an_object_store_is_read(tmp_path: Path, s3: object) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(5)))
    fake = ("--model", "tiny-attributes", "--engine", "fake")
    assert summary("score", corpus, f"{BUCKET}/scored", *fake, run=run_here)["scored"] == 5
    assert assay.read_scored(f"{BUCKET}/scored").sum("id") == 10


@pytest.mark.long
def test_two_models_judge_one_dataset(graded: Dataset) -> None:
    twice = score(graded, model="tiny-scalar", prefix="second_")
    both = assay.filter(twice, "reward is not null and second_reward is not null").materialize()
    assert both.count() == COUNT - COUNT // 10
    with pytest.raises(SettingsError, match="choose one with prefix=, of '', 'second_'"):
        assay.filter(both, top_k=1)
    best = max(both.take_all(), key=lambda row: (row["second_reward"], row["id"]))
    assert ids(assay.filter(both, top_fraction=0.001, prefix="second_")) == [best["id"]]
    assert assay.filter(twice, top_fraction=0.5, prefix="").count() == 27


def test_what_is_wrong_is_told_at_once(table: pa.Table, graded: Dataset) -> None:
    dataset = ray.data.from_arrow(table)
    with pytest.raises(ExpressionError, match=r"(?s)there is no column score.*scores\.correctness: DOUBLE"):
        assay.filter(graded, "score > 1")
    with pytest.raises(ExpressionError, match="there is no column score"):
        assay.filter(score(dataset), "score > 1")
    with pytest.raises(ExpressionError, match="a ranking must be a number"):
        assay.filter(score(dataset), top_k=1, by="status")
    with pytest.raises(SettingsError, match="output is unknown"):
        score(dataset, output="scored/")
    with pytest.raises(SettingsError, match="top_fraction = 2"):
        assay.filter(graded, top_fraction=2)
    with pytest.raises(SourceError, match="rename ours with a prefix"):
        score(graded)
    with pytest.raises(SourceError, match="no known shape fits"):
        score(ray.data.from_items([{"x": 1}]))
    with pytest.raises(SourceError, match="a column '_row'"):
        score(ray.data.from_items([chat("q", "a", _row=1)]))
    with pytest.raises(SourceError, match="the best are chosen among scored responses"):
        assay.filter(dataset, top_k=1)
    with pytest.raises(ModelError):
        score(dataset, model="/nowhere")
    with pytest.raises(TypeError, match="model"):
        assay.score(dataset)  # type: ignore[call-overload]


def test_what_cant_be_computed_is_ours_where_we_run_the_dataset(graded: Dataset) -> None:
    with pytest.raises(ExpressionError, match="can't be evaluated"):
        assay.filter(graded, top_fraction=0.5, by="cast(response_name as double)")
    broken = assay.filter(graded, "cast(response_name as double) > 0")
    with pytest.raises(ray.exceptions.RayError, match=r"ExpressionError: this can't be evaluated"):
        broken.take_all()


@pytest.mark.long
def test_a_script_with_an_engine_says_nothing_but_what_it_prints(tmp_path: Path) -> None:
    """The engine's and Ray's own lines were 455; and the end of the engine was a traceback."""
    script = tmp_path / "script.py"
    script.write_text(
        "import ray\nfrom assay import score\n"
        "rows = [{'prompt': f'What is {at} + 1?', 'response': str(at + 1)} for at in range(7)]\n"
        "print(len(score(ray.data.from_items(rows), model='tiny-scalar').take_all()))\n"
    )
    # With a Ray of its own, and for its engine the process of all tests that has imported vLLM.
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "RAY_ADDRESS": "local", SWITCH: share()}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2, done.stderr  # of Ray's token, where there was none


@pytest.mark.long
def test_what_the_user_initialises_logs_as_ray_does(tmp_path: Path) -> None:
    script = "import assay.functions, ray\nray.init(num_cpus=1, address='local', include_dashboard=False)\n"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "Started a local Ray instance" in done.stderr
