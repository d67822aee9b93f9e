"""`filter --rows responses`: each kept response alone, in one form whatever the input's shape; and what is said else."""

import json
import math
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import SourceError
from pipelines.cli.plain_console import show
from pipelines.cli.report import kept_report
from pipelines.data.formats import OwnColumns, RowShape
from pipelines.folders.run_folder.carried_columns import scalar_column
from pipelines.results.filtering.filter_corpus import FilterSummary, keep, read_finished_filter
from pipelines.run.prepare.resolve_run import resolve
from pipelines.settings.filter_settings import FilterSettings
from tests.support.candidates import drawn_corpus, judged_corpus, prompts, rows_in, scored_corpus
from tests.support.corpora import chat, lines, settings, write
from tests.support.failures import rewrite
from tests.support.trajectories import FORMS

SIX: Mapping[str, Any] = {"prompt": "p", "chosen": ["x", "y"], "rejected": ["z"], "id": 7, "domain": "code"}
ANSWERED = RowShape("prompt-response")
OURS = ("row", "response_name", "reward", "scores", "status", "reason")
USER = {"role": "user", "content": "p"}


def settings_of(scored: str | Path, output: Path | None, condition: str = "reward > 0", **options: Any) -> FilterSettings:
    return FilterSettings(
        scored=str(scored), output=output and str(output), where=condition, **{"rows": "responses", **options}
    )


def test_each_kept_response_is_a_row_of_its_own(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([dict(SIX), {**SIX, "id": 8, "system": "s"}]))
    scored_corpus(settings(corpus, tmp_path / "scored", turns="final"))
    summary = keep(settings_of(tmp_path / "scored", tmp_path / "kept", "response_name != 'chosen[0]'"))
    assert (summary.kept, summary.kept_rows, summary.several) == (4, 2, True)
    first, *_, last = rows_in(tmp_path / "kept")
    assert list(first) == ["id", "domain", "prompt", "response", *OURS]
    assert {**first, "reward": 0, "scores": {}} == {
        "id": 7,
        "domain": "code",
        "prompt": [USER],
        "response": "y",
        "row": "c.jsonl:0",
        "response_name": "chosen[1]",
        "reward": 0,
        "scores": {},
        "status": "scored",
        "reason": None,
    }
    assert isinstance(first["reward"], float)
    assert (last["id"], last["prompt"], last["response"]) == (8, [{"role": "system", "content": "s"}, USER], "z")


@pytest.mark.parametrize(
    ("row", "shape", "fields"),
    [
        ({"messages": chat("p", "a")["messages"], "n": 1}, RowShape("messages"), {"n": 1}),
        ({"q": "p", "r": "a", "prompt": "mine"}, RowShape("columns", own_columns=OwnColumns("q", "r")), {}),
        ({"prompt": "p", "response": "a", "meta": {"a": 1}, "tags": ["t"]}, ANSWERED, {"meta": {"a": 1}, "tags": ["t"]}),
        ({"prompt": "p", "response": "a", "raw": b"x", "n": None}, ANSWERED, {"n": None}),
        ({"prompt": "p", "response": "a", "took": timedelta(1), "high": math.inf}, ANSWERED, {}),
    ],
)
def test_own_fields_of_parquet_rows_come_along_in_either_format(
    tmp_path: Path, row: dict[str, Any], shape: RowShape, fields: dict[str, Any]
) -> None:
    scored = judged_corpus(tmp_path / "scored", [row], [[1.0]], shape, parquet=True)
    no_json: dict[str, Any] = {name: row[name] for name in ("raw", "took", "high") if name in row}
    taken = {"prompt: the name is reserved": 1} if shape.own_columns else {}
    for form in ("jsonl", "parquet"):
        lost = {f"{name}: JSON has no such value": 1 for name in no_json if form == "jsonl"}
        summary = keep(settings_of(scored, tmp_path / form, fields=False, format=form))
        (path,) = (tmp_path / form).glob("kept-*")
        (written,) = pq.read_table(path).to_pylist() if form == "parquet" else rows_in(tmp_path / form)
        of_parquet = no_json if form == "parquet" else {name: None for name in no_json if name == "high"}
        expected: dict[str, Any] = {**fields, **of_parquet, "prompt": [USER], "response": "a"}
        assert {**fields, **written} == expected
        assert (summary.left_fields, summary.mixed) == (taken | lost, False)


@pytest.mark.parametrize("shape", ["responses", "gym-rollout", "atif", "messages"])
@pytest.mark.parametrize(("parquet", "form"), [(False, "jsonl"), (True, "jsonl"), (True, "parquet")])
def test_tools_come_along_from_every_shape(tmp_path: Path, shape: str, parquet: bool, form: str) -> None:
    row = FORMS[shape][0]
    scored = judged_corpus(tmp_path / "scored", [row], [[1.0]], RowShape(shape), parquet=parquet, prefix="j_")
    keep(settings_of(scored, tmp_path / "kept", "j_reward > 0", fields=False, format=form))
    (path,) = (tmp_path / "kept").glob("kept-*")
    (written,) = pq.read_table(path).to_pylist() if form == "parquet" else rows_in(tmp_path / "kept")
    tools = written["tools"] if shape == "messages" else json.loads(written["tools"])
    assert [tool["function"]["name"] for tool in tools] == ["weather"]


def test_a_policys_candidates_are_rows_of_their_own(tmp_path: Path) -> None:
    candidates = [[("one", 1.0), ("two", 2.0)]]
    scored = drawn_corpus(tmp_path / "scored", [{"prompt": "p", "id": 3}], candidates, prompts(), system="s", prefix="j_")
    summary = keep(settings_of(scored, tmp_path / "kept", "j_reward > 1"))
    assert not summary.several
    (row,) = rows_in(tmp_path / "kept")
    assert row["prompt"] == [{"role": "system", "content": "s"}, USER]
    assert (row["response"], row["j_response_name"], row["j_reward"]) == ("two", "candidate[1]", 2.0)


def test_what_couldnt_be_read_is_null(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([{**SIX, "rejected": [5]}]) + b"broken\n")
    scored_corpus(settings(corpus, tmp_path / "scored"))
    keep(settings_of(tmp_path / "scored", tmp_path / "kept", "status = 'rejected'"))
    fields = [(row["response_name"], row["prompt"], row["response"], row["reward"]) for row in rows_in(tmp_path / "kept")]
    assert fields == [("rejected[0]", None, None, None), ("final", None, None, None)]


@pytest.mark.parametrize(
    ("options", "repeated"), [({"rows": "rows"}, True), ({"rows": "rows", "fields": False}, False), ({}, False)]
)
def test_who_scores_rows_that_a_filter_wrote_several_times_is_settings_of(
    tmp_path: Path, options: dict[str, Any], repeated: bool
) -> None:
    scored = judged_corpus(tmp_path / "scored", [SIX], [[1.0, -1.0, 2.0]], RowShape("rm-bench"))
    keep(settings_of(scored, tmp_path / "kept", **options))
    shape = resolve(settings(tmp_path / "kept", tmp_path / "again", prefix="again_")).shape_found
    assert ("holds 1 input rows as 2 rows" in shape) == ("--rows responses" in shape) == repeated


def test_the_rest_is_whole_rows_with_the_reason(tmp_path: Path) -> None:
    scored = judged_corpus(tmp_path / "scored", [SIX], [[1.0, -1.0, 2.0]], RowShape("rm-bench"))
    keep(settings_of(scored, tmp_path / "kept", rest=str(tmp_path / "rest")))
    (row,) = rows_in(tmp_path / "rest")
    assert {name: row[name] for name in SIX} == SIX
    assert (row["response_name"], row["why"]) == ("chosen[1]", "condition")


def test_a_row_that_has_changed_is_refused(tmp_path: Path) -> None:
    scored = judged_corpus(tmp_path / "scored", [SIX], [[1.0, 1.0, 1.0]], RowShape("rm-bench"))
    path = next((tmp_path / "scored" / "parts").iterdir())
    table = pq.read_table(path)
    changed = pa.array([json.dumps({**SIX, "prompt": "q"}).encode()] * 3, pa.large_binary())
    rewrite(path, table.set_column(0, "record", changed))
    with pytest.raises(SourceError, match="has changed since it was scored"):
        keep(settings_of(scored, tmp_path / "kept"))


# --- what the summary says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "options", "says"),
    [
        ("true", {"rows": "rows"}, "6 rows written: 2 input rows, each whole with all its responses"),
        ("response_name = 'chosen[0]'", {"rows": "rows", "fields": False}, "2 rows written: 2 input rows, each whole"),
        ("true", {"rows": "rows", "fields": False}, None),
        ("true", {}, None),
        ("false", {"rows": "rows"}, None),
    ],
)
def test_whole_rows_with_more_than_what_was_kept_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], condition: str, options: dict[str, Any], says: str | None
) -> None:
    scored = judged_corpus(tmp_path / "scored", [SIX, {**SIX, "id": 8}], [[1.0, 2.0, 3.0]] * 2, RowShape("rm-bench"))
    filter_settings = settings_of(scored, tmp_path / "kept", condition, **options)
    show(kept_report(keep(filter_settings), filter_settings))
    printed = capsys.readouterr().out
    assert ("--rows responses" in printed) == (says is not None)
    assert says is None or says in printed


def test_left_and_mixed_fields_are_told(tmp_path: Path) -> None:
    nothing = FilterSummary(3, 3, 0, 0, {"condition": 3})
    assert "Nothing is kept, so `datasets.load_dataset` finds no file in the folder" in [
        *kept_report(nothing, settings_of("scored", tmp_path / "kept", rows="rows"))
    ]
    mixed = FilterSummary(3, 3, 3, 3, left_fields={"prompt: why": 3}, mixed=True)
    printed = list(map(str, kept_report(mixed, settings_of("scored", tmp_path / "kept"))))
    assert "Rows without a field of the input: 3 without prompt: why" in printed
    assert any("values of several types, as they were: `datasets.load_dataset` may refuse" in line for line in printed)


def test_an_own_value_is_that_of_its_record_whatever_its_column_is(tmp_path: Path) -> None:
    answers = [*range(50), 5, 1.5, True, "text", None, ["a", 1], {"b": [None]}, 2**70, 2**53 + 1, -0.5]
    rows = [{"prompt": "p", "response": "a", "answer": answer} for answer in answers]
    column = {"answer": scalar_column(answers, pa.int64())}
    scored = judged_corpus(tmp_path / "scored", rows, [[1.0]] * len(rows), ANSWERED, columns_beside=column, part_rows=50)
    filter_settings = settings_of(scored, tmp_path / "kept", fields=False)
    summary = keep(filter_settings)
    assert [json.dumps(row["answer"]) for row in rows_in(tmp_path / "kept")] == [*map(json.dumps, answers)]
    assert (summary.left_fields, summary.mixed) == ({}, True)
    assert "dataset_info" not in (tmp_path / "kept" / "README.md").read_text()
    assert read_finished_filter(filter_settings) == summary
    assert read_finished_filter(settings_of(scored, tmp_path / "kept", rows="rows")) is None
