"""The input's own fields in what is chosen, paired and exported: which come along, which don't, and what is said of it."""

import datetime
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import OutputError, SettingsError
from pipelines.cli.plain_console import show
from pipelines.cli.report import export_report
from pipelines.data.formats import OwnColumns, RowShape
from pipelines.folders.run_folder.carried_columns import scalar_column
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.results.exports.trainer_format import PairFormat
from pipelines.results.exports.trainers import FORMATS, PAIR_FORMATS, RESPONSE_FORMATS
from tests.support import exports
from tests.support.candidates import drawn_corpus, judged_corpus, prompts, rows_in, scored_corpus
from tests.support.corpora import lines, settings, write
from tests.support.exports import export, pair

ANSWERED, SIDES = RowShape("prompt-response"), RowShape("preference")
OURS = ["messages", "reward", "scores", "rank", "z_score", "of", "prompt_hash", "row", "response_name"]


def choose(folder: str, output: Path, **options: Any) -> ExportSummary:
    return exports.choose(folder, output, **{"strategy": "best", "per": "row", **options})


def test_a_choice_has_them_after_its_own_columns(tmp_path: Path) -> None:
    rows = [
        {"prompt": "p", "response": "a", "system": "s", "id": index, "answer": f"x{index}", "when": None}
        for index in range(3)
    ]
    scored_corpus(settings(write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "scored"))
    summary = choose(str(tmp_path / "scored"), tmp_path / "best")
    actual_rows = rows_in(tmp_path / "best")
    assert [list(row) for row in actual_rows] == [[*OURS, "id", "answer", "when"]] * 3
    assert [(row["id"], row["answer"]) for row in actual_rows] == [(index, f"x{index}") for index in range(3)]
    assert summary.left_fields == {}


def test_candidates_of_a_policy_have_those_of_their_prompt(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{index}", "answer": str(index)} for index in range(2)]
    folder = drawn_corpus(tmp_path / "in", rows, [[("a", 1.0), ("b", 2.0)]] * 2, prompts(), parquet=True)
    choose(folder, tmp_path / "best", per="prompt")
    assert sorted((row["messages"][0]["content"], row["answer"]) for row in rows_in(tmp_path / "best")) == [
        ("p0", "0"),
        ("p1", "1"),
    ]


def test_fields_with_prompt_and_response_dont_come_again_nor_do_bytes(tmp_path: Path) -> None:
    shape = RowShape("columns", own_columns=OwnColumns("q", "r.text"))
    row = {"q": "p", "r": {"text": "a"}, "system": "s", "tags": ["t"], "raw": b"x", "n": 1, "day": datetime.date(2026, 1, 2)}
    choose(judged_corpus(tmp_path / "in", [row], [[1.0]], shape, parquet=True), tmp_path / "best")
    (actual_row,) = rows_in(tmp_path / "best")
    assert {name: actual_row[name] for name in actual_row if name not in OURS} == {
        "tags": ["t"],
        "n": 1,
        "day": "2026-01-02",
    }


def test_rows_have_them_in_each_format(tmp_path: Path) -> None:
    scores = dict.fromkeys(["helpfulness", "correctness", "coherence", "complexity", "verbosity"], 1.0)
    row = {"prompt": "p", "chosen": "a", "rejected": "b", "id": 7}
    rewards = [[{"reward": 2.0, **scores}, {"reward": 1.0, **scores}]]
    folder = judged_corpus(tmp_path / "in", [row], rewards, SIDES, parquet=True, outputs=("reward", *scores))
    for trainer in PAIR_FORMATS:
        pair(folder, tmp_path / trainer, trainer=trainer)
        assert {row["id"] for row in rows_in(tmp_path / trainer)} == {7}
    for trainer, form in RESPONSE_FORMATS.items():
        export(folder, tmp_path / trainer, trainer, threshold=0.5 if form.needs_threshold else None)
        assert {row["id"] for row in rows_in(tmp_path / trainer)} == {7}


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array([0.5], pa.float16()), 0.5),
        (pa.array([[{"a": 0.5}]], pa.list_(pa.struct([("a", pa.float16())]))), [{"a": 0.5}]),
        (pa.array([Decimal("1.10")], pa.decimal256(50, 2)), "1.10"),
        (pa.array([1700000000123456789], pa.timestamp("ns", "Europe/Berlin")), "2023-11-14T23:13:20.123456789+01:00"),
        (pa.array([[("k", Decimal("1.5"))]], pa.map_(pa.string(), pa.decimal256(50, 1))), [["k", "1.5"]]),
        (pa.array([1], pa.duration("s")), None),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
@pytest.mark.parametrize("per", ["row", "prompt"])
def test_a_field_is_the_same_whether_prompts_were_brought_together_or_not(
    tmp_path: Path, column: pa.Array, shown: Any, per: str
) -> None:
    table = pa.table({"prompt": ["p"], "chosen": ["a"], "rejected": ["b"], "field": column})
    pq.write_table(table, tmp_path / "c.parquet")
    scored_corpus(settings(tmp_path / "c.parquet", tmp_path / "scored"))
    summary = choose(str(tmp_path / "scored"), tmp_path / "best", per=per)
    (row,) = rows_in(tmp_path / "best")
    assert row.get("field") == shown
    assert summary.left_fields == ({} if shown else {"field: JSON has no such value": 1})


# --- names that are taken ------------------------------------------------------------------------------------------


def test_a_trainers_column_wins_and_the_summary_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"prompt": "p", "chosen": "a", "rejected": "b", "margin": 99.0, "text": "mine", "task_name": "t", "id": 1}
    folder = judged_corpus(tmp_path / "in", [row], [[2.0, 1.0]], SIDES, parquet=True)
    summary = pair(folder, tmp_path / "trl")
    assert summary.left_fields == {f"{name}: the name is reserved": 1 for name in ("margin", "text")}
    (trl_row,) = rows_in(tmp_path / "trl")
    assert (trl_row["margin"], trl_row["task_name"], trl_row["id"], "text" in trl_row) == (1.0, "t", 1, False)
    assert pair(folder, tmp_path / "nemo", trainer="nemo-rl").left_fields == {"task_name: the name is reserved": 1}
    show(export_report("pairs", summary))
    says = "1 without margin: the name is reserved; 1 without text: the name is reserved"
    assert f"Rows without a field of the input: {says}" in capsys.readouterr().out


def test_names_differ_in_more_than_case(tmp_path: Path) -> None:
    row = {"prompt": "p", "response": "a", "Rank": "mine", "Messages": "mine"}
    summary = choose(judged_corpus(tmp_path / "in", [row], [[1.0]], ANSWERED, parquet=True), tmp_path / "best")
    assert [*summary.left_fields] == ["Rank: the name is reserved", "Messages: the name is reserved"]
    assert list(rows_in(tmp_path / "best")[0]) == OURS


def test_no_fields_leaves_all_out(tmp_path: Path) -> None:
    row = {"prompt": "p", "response": "a", "id": 1, "rank": 5}
    folder = judged_corpus(tmp_path / "in", [row], [[1.0]], ANSWERED)
    summary = choose(folder, tmp_path / "best", fields=False)
    assert list(rows_in(tmp_path / "best")[0]) == OURS
    assert summary.left_fields == {}
    assert json.loads((tmp_path / "best" / "choose.json").read_text())["description"] == "strategy: best, fields: False"


def test_a_report_says_what_was_taken_and_that_there_are_no_rows() -> None:
    none = "There are no rows, so `datasets.load_dataset` finds no file in the folder"
    for rows in (0, 1):
        report = list(export_report("best", ExportSummary(rows=rows, taken="every response", row_types="AAAA")))
        assert ("Taken: every response" in report, none in report) == (True, rows == 0)


# --- values that the first rows don't show -------------------------------------------------------------------------

NUMBERS = ("12345678901234567890123", "0.12345678901234567890123", "1E400", "-0.0", "1.10", "7")
LATE = (5, 1.5, True, "text", ["a", 1], {"b": [None]}, 2**53 + 1)


def write_rows(scored: str, folder: Path, kind: str) -> tuple[ExportSummary, list[dict[str, Any]]]:
    if kind == "choose":
        return choose(scored, folder), rows_in(folder)
    if kind == "pairs":
        return pair(scored, folder, per="row"), rows_in(folder)
    return export(scored, folder, kind), rows_in(folder)


@pytest.mark.parametrize("first", [1, "x"])
def test_a_value_is_that_of_its_record_whatever_the_first_rows_have(tmp_path: Path, first: object) -> None:
    answers = [first] * 60 + [*LATE]
    rows = [{"prompt": f"p{index}", "response": ["a", "b"], "answer": answer} for index, answer in enumerate(answers)]
    shape = RowShape("columns", own_columns=OwnColumns("prompt", "response"))
    column = {"answer": scalar_column(answers, pa.array([first]).type)}
    folder = judged_corpus(tmp_path / "in", rows, [[1.0, 2.0]] * len(rows), shape, columns_beside=column, part_rows=50)
    for kind in ("choose", "pairs", "sft-turns"):
        summary, written = write_rows(folder, tmp_path / kind, kind)
        each = len(written) // len(answers)
        assert [json.dumps(row["answer"]) for row in written[::each]] == [*map(json.dumps, answers)]
        assert (summary.left_fields, summary.mixed) == ({}, True)


def test_a_null_is_a_value(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": "good", "rejected": "bad", "flag": flag} for flag in (None, {"a": 1})]
    folder = scored_corpus(settings(write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "scored"))
    for kind in ("choose", "pairs", "sft-turns"):
        summary, written = write_rows(folder, tmp_path / kind, kind)
        assert written[0]["flag"] is None
        assert all("flag" in row for row in written)
        assert summary.left_fields == {}


def test_numbers_keep_their_digits(tmp_path: Path) -> None:
    corpus = b"".join(b'{"prompt": "p", "response": "a", "n": %s, "l": [%s]}\n' % (n.encode(), n.encode()) for n in NUMBERS)
    scored_corpus(settings(write(tmp_path / "c.jsonl", corpus), tmp_path / "scored"))
    choose(str(tmp_path / "scored"), tmp_path / "best")
    lines_of_file = next((tmp_path / "best").glob("chosen-*")).read_bytes().splitlines()
    written = [json.loads(line, parse_float=Decimal, parse_int=Decimal) for line in lines_of_file]
    assert [(row["n"], row["l"]) for row in written] == [(Decimal(n), [Decimal(n)]) for n in NUMBERS]


def test_what_json_has_no_value_for_is_null_and_counted(tmp_path: Path) -> None:
    values = ["\ud800", ["\udfff"], {"\ud800": 1}, math.inf, [-math.inf]]
    rows = [{"prompt": "p", "response": "a", "answer": answer} for answer in ("x", *values)]
    scored_corpus(settings(write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "scored"))
    summary = choose(str(tmp_path / "scored"), tmp_path / "best")
    assert [row.get("answer") for row in rows_in(tmp_path / "best")] == ["x", *[None] * len(values)]
    assert summary.left_fields == {"answer: JSON has no such value": len(values)}


def test_a_reserved_name_that_only_later_rows_have_is_counted(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": "a", "rejected": "b", **({"tools": [1]} if index > 1 else {})} for index in range(6)]
    summary = pair(judged_corpus(tmp_path / "in", rows, [[2.0, 1.0]] * 6, SIDES), tmp_path / "pairs", per="row")
    assert summary.left_fields == {"tools: the name is reserved": 4}


def test_a_pair_of_two_rows_has_no_value_that_differs_and_it_is_counted(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "response": text, "a": a, "b": b} for text, a, b in [("x", 1, [1]), ("y", True, [1])]]
    summary = pair(judged_corpus(tmp_path / "in", rows, [[1.0], [2.0]], ANSWERED), tmp_path / "pairs", per="prompt")
    (row,) = rows_in(tmp_path / "pairs")
    assert (row.get("a"), row["b"]) == (None, [1])
    assert summary.left_fields == {"a: the rows of a pair differ in it": 1}


def add_format(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any], reserved: str, version: str = "0.1") -> None:
    """A plug-in's format of pairs."""
    form = PairFormat(name="acme", about="", source="", reserved=tuple(reserved), rows=lambda pair: iter([row]))
    for formats in (FORMATS, PAIR_FORMATS):
        monkeypatch.setattr(formats, "_loaded", ({**formats, "acme": form}, {"acme": f"acme {version}"}))


@pytest.mark.parametrize(
    ("row", "reserved", "says"),
    [
        ({"q": "x", "id": "mine"}, "q", "--for acme: `reserved` lacks 'id' of its rows"),
        ({"q": {"weights": [1.0, math.nan]}}, "q", "--for acme: its row has a NaN or an infinity"),
        ({"q": -math.inf}, "q", "--for acme: its row has a NaN or an infinity"),
    ],
)
def test_a_format_whose_rows_a_field_or_json_would_change_is_refused(
    row: dict[str, Any], reserved: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = judged_corpus(tmp_path / "in", [{"prompt": "p", "chosen": "a", "rejected": "b", "id": 8}], [[1.0, 0.0]], SIDES)
    add_format(monkeypatch, row, reserved)
    with pytest.raises(SettingsError, match=says):
        pair(folder, tmp_path / "pairs", trainer="acme")


def test_pairs_of_an_older_version_of_a_plugin_are_no_newer_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = judged_corpus(tmp_path / "in", [{"prompt": "p", "chosen": "a", "rejected": "b"}], [[1.0, 0.0]], SIDES)
    add_format(monkeypatch, {"q": "old"}, "q")
    pair(folder, tmp_path / "pairs", trainer="acme")
    pair(folder, tmp_path / "pairs", trainer="acme")
    add_format(monkeypatch, {"q": "new"}, "q", "0.2")
    with pytest.raises(OutputError, match="--overwrite replaces it"):
        pair(folder, tmp_path / "pairs", trainer="acme")
    pair(folder, tmp_path / "pairs", trainer="acme", overwrite=True)
    assert rows_in(tmp_path / "pairs") == [{"q": "new"}]
    assert exports.document(tmp_path / "pairs", "pairs")["settings"]["trainer_plugin"] == "acme 0.2"
