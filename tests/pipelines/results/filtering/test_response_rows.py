"""`filter --rows responses`: each kept response alone, in one form whatever the input's shape; and what is said else."""

import json
import tempfile
from collections.abc import Mapping, Sequence
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
from pipelines.results.filtering import filter_corpus
from pipelines.results.filtering.filter_corpus import KeepSummary, keep, read_finished_filter
from pipelines.run.prepare.resolve_run import resolve
from pipelines.settings.run_settings import FilterSettings
from tests.support.candidates import Given, drawn_corpus, judged_corpus, prompts, rows_in, scored_corpus
from tests.support.corpora import chat, lines, settings, write
from tests.support.failures import rewrite

SIX: Mapping[str, Any] = {"prompt": "p", "chosen": ["x", "y"], "rejected": ["z"], "id": 7, "domain": "code"}
OURS = ("row", "response_name", "reward", "scores", "status", "reason")
USER = {"role": "user", "content": "p"}


def told(scored: str | Path, output: Path | None, condition: str = "reward > 0", **options: Any) -> FilterSettings:
    return FilterSettings(
        scored=str(scored), output=output and str(output), keep=condition, **{"rows": "responses", **options}
    )


def judged(
    folder: Path, rows: Sequence[Mapping[str, Any]], rewards: Sequence[Sequence[Given]], shape: RowShape, **how: Any
) -> str:
    return judged_corpus(folder, [dict(row) for row in rows], rewards, shape, **how)


def test_each_kept_response_is_a_row_of_its_own(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([dict(SIX), {**SIX, "id": 8, "system": "s"}]))
    scored_corpus(settings(corpus, tmp_path / "scored", turns="final"))
    summary = keep(told(tmp_path / "scored", tmp_path / "kept", "response_name != 'chosen[0]'"))
    assert (summary.kept, summary.kept_rows, summary.held) == (4, 2, 6)
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


def test_own_fields_come_along_and_no_others(tmp_path: Path) -> None:
    parquets: list[bool] = [True, False]
    cases_2: list[tuple[dict[str, Any], RowShape, dict[str, Any]]] = [
        ({"messages": chat("p", "a")["messages"], "n": 1}, RowShape("messages"), {"n": 1}),
        ({"question": "p", "response_A": "a", "response_B": "b", "label": "A>B"}, RowShape("judgebench"), {"label": "A>B"}),
        ({"q": "p", "r": "a", "prompt": "mine"}, RowShape("columns", own_columns=OwnColumns("q", "r")), {}),
        ({"text": "mine", "prompt": "p", "response": "a"}, RowShape("prompt-response"), {"text": "mine"}),
    ]
    for row, shape, expected in cases_2:
        for parquet in parquets:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            names = shape.requests(row).names
            scored = judged(folder / "scored", [row], [[1.0] * len(names)], shape, parquet=True)
            form = "parquet" if parquet else "jsonl"
            summary = keep(told(scored, folder / "kept", fields=False, format=form))
            (path,) = (folder / "kept").glob("kept-*")
            rows = pq.read_table(path).to_pylist() if parquet else rows_in(folder / "kept")
            assert rows[0] == {**expected, "prompt": [USER], "response": "a"}
            taken = {"prompt: the name is reserved": 1}
            assert summary.left_fields == (taken if "prompt" in row and shape.own_columns else {})


def test_a_null_of_a_json_row_is_a_value(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([{"prompt": "p", "response": "a", "flag": None, "text": None}]))
    scored_corpus(settings(corpus, tmp_path / "scored"))
    summary = keep(told(tmp_path / "scored", tmp_path / "kept", "reward < 1e9", fields=False, format="jsonl"))
    (row,) = rows_in(tmp_path / "kept")
    assert (row["flag"], row["text"], summary.left_fields) == (None, None, {})


def test_what_json_cant_hold_stays_behind_and_is_counted(tmp_path: Path) -> None:
    row = {"prompt": "p", "response": "a", "raw": b"x", "meta": {"a": 1}, "tags": ["t"], "n": 1}
    scored = judged(tmp_path / "scored", [row], [[1.0]], RowShape("prompt-response"), parquet=True)
    summary = keep(told(scored, tmp_path / "kept", fields=False, format="jsonl"))
    item = {"meta": {"a": 1}, "tags": ["t"], "n": 1}
    assert rows_in(tmp_path / "kept") == [{**item, "prompt": [USER], "response": "a"}]
    assert summary.left_fields == {"raw: JSON has no such value": 1}


def test_a_policys_candidates_are_rows_of_their_own(tmp_path: Path) -> None:
    candidates = [[("one", 1.0), ("two", 2.0)]]
    scored = drawn_corpus(tmp_path / "scored", [{"prompt": "p", "id": 3}], candidates, prompts(), system="s", prefix="j_")
    summary = keep(told(scored, tmp_path / "kept", "j_reward > 1"))
    (row,) = rows_in(tmp_path / "kept")
    assert row["prompt"] == [{"role": "system", "content": "s"}, USER]
    assert (row["response"], row["j_response_name"], row["j_reward"]) == ("two", "candidate[1]", 2.0)
    assert summary.held == 0


def test_what_couldnt_be_read_is_null(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([{**SIX, "rejected": [5]}]) + b"broken\n")
    scored_corpus(settings(corpus, tmp_path / "scored"))
    keep(told(tmp_path / "scored", tmp_path / "kept", "status = 'rejected'"))
    result = [(row["response_name"], row["prompt"], row["response"], row["reward"]) for row in rows_in(tmp_path / "kept")]
    assert result == [("rejected[0]", None, None, None), ("final", None, None, None)]


@pytest.mark.parametrize(
    ("options", "repeated"), [({"rows": "rows"}, True), ({"rows": "rows", "fields": False}, False), ({}, False)]
)
def test_who_scores_rows_that_a_filter_wrote_several_times_is_told(
    tmp_path: Path, options: dict[str, Any], repeated: bool
) -> None:
    scored = judged(tmp_path / "scored", [SIX], [[1.0, -1.0, 2.0]], RowShape("rm-bench"))
    keep(told(scored, tmp_path / "kept", **options))
    result = resolve(settings(tmp_path / "kept", tmp_path / "again", prefix="again_")).shape_found
    assert ("holds 1 input rows as 2 rows" in result) == ("--rows responses" in result) == repeated


def test_the_rest_is_whole_rows_with_the_reason(tmp_path: Path) -> None:
    scored = judged(tmp_path / "scored", [SIX], [[1.0, -1.0, 2.0]], RowShape("rm-bench"))
    keep(told(scored, tmp_path / "kept", rest=str(tmp_path / "rest")))
    (row,) = rows_in(tmp_path / "rest")
    assert {name: row[name] for name in SIX} == SIX
    assert (row["response_name"], row["why"]) == ("chosen[1]", "condition")


def test_a_row_that_has_changed_is_refused(tmp_path: Path) -> None:
    scored = judged(tmp_path / "scored", [SIX], [[1.0, 1.0, 1.0]], RowShape("rm-bench"))
    path = next((tmp_path / "scored" / "parts").iterdir())
    table = pq.read_table(path)
    changed = pa.array([json.dumps({**SIX, "prompt": "q"}).encode()] * 3, pa.large_binary())
    rewrite(path, table.set_column(0, "record", changed))
    with pytest.raises(SourceError, match="has changed since it was scored"):
        keep(told(scored, tmp_path / "kept"))


# --- going on ------------------------------------------------------------------------------------------------------


def test_a_killed_filter_goes_on_and_a_finished_one_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**SIX, "id": index} for index in range(6)]
    rewards = [[float(index), -1.0, 1.0] for index in range(6)]
    scored = judged(tmp_path / "scored", rows, rewards, RowShape("rm-bench"))
    monkeypatch.setattr(filter_corpus, "_GROUP_PARTS", 1)
    monkeypatch.setattr(filter_corpus, "_OUTPUT_BYTES", 1)
    calm = keep(told(scored, tmp_path / "calm"))
    write_outputs = filter_corpus._SelectionPasses.write
    monkeypatch.setattr(
        filter_corpus._SelectionPasses, "write", lambda work, outputs: write_outputs(work, outputs[:1]) and 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        keep(told(scored, tmp_path / "kept"))
    (first,) = (tmp_path / "kept").glob("*.jsonl")
    before = first.stat().st_ino
    monkeypatch.setattr(filter_corpus._SelectionPasses, "write", write_outputs)
    assert keep(told(scored, tmp_path / "kept")) == calm
    assert first.stat().st_ino == before
    assert rows_in(tmp_path / "kept") == rows_in(tmp_path / "calm")
    assert read_finished_filter(told(scored, tmp_path / "kept")) == calm
    assert read_finished_filter(told(scored, tmp_path / "kept", rows="rows")) is None


# --- what the summary says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "options", "said"),
    [
        ("true", {"rows": "rows"}, "6 rows written: 2 input rows, each whole with all its responses"),
        ("response_name = 'chosen[0]'", {"rows": "rows"}, "2 rows written: 2 input rows, each whole"),
        ("response_name = 'chosen[0]'", {"rows": "rows", "fields": False}, "2 rows written: 2 input rows, each whole"),
        ("true", {"rows": "rows", "fields": False}, None),
        ("true", {}, None),
        ("false", {"rows": "rows"}, None),
    ],
)
def test_whole_rows_with_more_than_what_was_kept_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], condition: str, options: dict[str, Any], said: str | None
) -> None:
    scored = judged(tmp_path / "scored", [SIX, {**SIX, "id": 8}], [[1.0, 2.0, 3.0]] * 2, RowShape("rm-bench"))
    filter_settings = told(scored, tmp_path / "kept", condition, **options)
    show(kept_report(keep(filter_settings), filter_settings))
    printed = capsys.readouterr().out
    assert ("--rows responses" in printed) == (said is not None)
    assert said is None or said in printed


def test_rows_of_one_response_are_told_nothing_and_left_fields_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filter_settings = told("scored", tmp_path / "kept", rows="rows")
    show(kept_report(KeepSummary(3, 3, 3, 3, held=3), filter_settings))
    assert "written" not in capsys.readouterr().out
    show(kept_report(KeepSummary(3, 3, 0, 0, {"condition": 3}), filter_settings))
    assert "Nothing is kept, so `datasets.load_dataset` finds no file in the folder" in capsys.readouterr().out
    show(kept_report(KeepSummary(3, 3, 3, 3, left_fields={"prompt: why": 3}, mixed=True), told("scored", tmp_path / "kept")))
    printed = capsys.readouterr().out
    assert "Rows without a field of the input: 3 without prompt: why" in printed
    assert "values of several types, as they were: `datasets.load_dataset` may refuse them" in printed


LATE: Sequence[Any] = (5, 1.5, True, "text", None, ["a", 1], {"b": [None]}, 2**70, 2**53 + 1, -0.5)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_own_value_is_that_of_its_record_or_counted(tmp_path: Path, form: str) -> None:
    answers = [*range(50), *LATE]
    rows = [{"prompt": "p", "response": "a", "answer": answer} for answer in answers]
    item = {"answer": scalar_column(answers, pa.int64())}
    scored = judged(tmp_path / "scored", rows, [[1.0]] * len(rows), RowShape("prompt-response"), own=item, part_rows=50)
    summary = keep(told(scored, tmp_path / "kept", fields=False, format=form))
    if form == "jsonl":
        assert [json.dumps(row["answer"]) for row in rows_in(tmp_path / "kept")] == [*map(json.dumps, answers)]
        assert (summary.left_fields, summary.mixed) == ({}, True)
        assert "dataset_info" not in (tmp_path / "kept" / "README.md").read_text()
    else:
        (path,) = (tmp_path / "kept").glob("kept-*")
        assert pq.read_table(path).column("answer").to_pylist() == item["answer"].to_pylist()
        assert summary.left_fields == {"answer: the value doesn't fit the column": 7}
    assert read_finished_filter(told(scored, tmp_path / "kept", fields=False, format=form)) == summary
