"""The column `response_text`: each response as it was judged, whatever the shape; left out where a folder has none."""

from pathlib import Path
from typing import Any

import pytest

from actors.errors import OutputError, SourceError
from pipelines.results.exports.export_commands import choose
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import resolve
from pipelines.run.scoring import score_corpus
from pipelines.run.scoring.score_corpus import execute, open_run
from pipelines.settings.export_settings import Choose, ChooseSettings
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.run_settings import ScoreSettings
from tests.support.candidates import commit_missing, rows_in, scored_corpus
from tests.support.corpora import Notes, chat, lines, rows, scored, settings, write

TURNS = [*chat("a", "<think>hm</think>b")["messages"], *chat("c", "d")["messages"]]


def texts(output: Path) -> dict[str, str | None]:
    return {f"{row['row'].split(':')[0]} {row['response_name']}": row["response_text"] for row in scored(output)}


def beside_another(folder: Path, row: dict[str, Any]) -> Path:
    """A corpus of this row in a file and one that can be judged in another: of nothing to be judged no run starts."""
    write(folder / "c.jsonl", lines([row]))
    write(folder / "other.jsonl", lines([chat("x", "y")]))
    return folder


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        (chat("a", "b"), {}, {"final": "b"}),
        ({"messages": TURNS}, {"turns": "all", "reasoning": "strip"}, {"turn[1]": "b", "turn[3]": "d"}),
        ({"messages": TURNS}, {"turns": "all", "reasoning": "keep"}, {"turn[1]": "<think>hm</think>b", "turn[3]": "d"}),
        (
            {"prompt": "p", "chosen": ["x", "y"], "rejected": ["z", 5]},
            {},
            {"chosen[0]": "x", "chosen[1]": "y", "rejected[0]": "z", "rejected[1]": None},
        ),
        (
            {"q": "p", "r": ["x", "y"]},
            {"prompt_column": "q", "response_column": "r"},
            {"response[0]": "x", "response[1]": "y"},
        ),
    ],
)
def test_it_is_the_text_that_was_judged(
    tmp_path: Path, row: dict[str, Any], options: dict[str, Any], expected: dict[str, str | None]
) -> None:
    scored_corpus(settings(write(tmp_path / "c.jsonl", lines([row])), tmp_path / "out", **options))
    assert texts(tmp_path / "out") == {f"c.jsonl {name}": text for name, text in expected.items()}


@pytest.mark.parametrize(
    ("row", "options", "text"),
    [
        (chat("a", "<think>b"), {"reasoning": "strip"}, "<think>b"),
        ({"messages": []}, {"format": "messages"}, None),
        (chat("a", "b", reasoning_content="\ud800"), {"reasoning": "keep"}, "<think>\n?\n</think>\n\nb"),
    ],
)
def test_what_couldnt_be_judged_has_its_text_too(
    tmp_path: Path, row: dict[str, Any], options: dict[str, Any], text: str | None
) -> None:
    if "reasoning_content" in row:
        row["messages"][-1]["reasoning_content"] = row.pop("reasoning_content")
    scored_corpus(settings(beside_another(tmp_path / "in", row), tmp_path / "out", **options))
    assert texts(tmp_path / "out")["c.jsonl final"] == text


def test_a_condition_may_use_it(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([chat("a", "long " * at) for at in range(1, 6)]))
    scored_corpus(settings(corpus, tmp_path / "out", prefix="j_"))
    short = FilterSettings(scored=str(tmp_path / "out"), where="length(j_response_text) < 12")
    assert (keep(short).kept, keep(short).responses) == (2, 5)


def test_a_field_of_that_name_is_refused(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([chat("a", "b", response_text="mine")]))
    with pytest.raises(SourceError, match=r"'response_text'.*--set prefix=judge_ for judge_response_text"):
        resolve(settings(corpus, tmp_path / "out"))
    resolve(settings(corpus, tmp_path / "out", text=False))
    resolve(settings(corpus, tmp_path / "out", prefix="judge_"))


# --- folders without it --------------------------------------------------------------------------------------------


def resumed(run_settings: ScoreSettings, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `score` does, with made-up numbers; returns the notes."""
    monkeypatch.setattr(score_corpus, "_complete", lambda run, *_: commit_missing(run))
    notes, planned = Notes(), resolve(run_settings)
    execute(open_run(run_settings, planned, manifest_of(planned, run_settings), notes.noted), score_corpus._scoring, notes)
    return notes.losses


def without_text(corpus: Path, output: Path) -> None:
    """A folder whose run was told to leave texts out, with a part missing."""
    scored_corpus(settings(corpus, output, part_rows=2, text=False))
    sorted((output / "parts").iterdir())[1].unlink()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "c.jsonl", lines(rows(6)))


def test_a_folder_without_texts_is_resumed_appended_to_and_read_so(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    without_text(corpus, out)
    (note,) = resumed(settings(corpus, out, part_rows=2), monkeypatch)
    assert "don't have the column response_text" in note
    more = write(tmp_path / "more.jsonl", lines(rows(3)))
    resumed(settings(more, out, append=True), monkeypatch)
    assert len(scored(out)) == 9
    assert not any("response_text" in row for row in scored(out))
    assert keep(FilterSettings(scored=str(out), output=str(tmp_path / "kept"), where="true")).kept == 9
    choose(ChooseSettings(scored=str(out), output=str(tmp_path / "best"), strategy=Choose.BEST, per="row"))
    assert len(rows_in(tmp_path / "best")) == 9


def test_a_folder_without_texts_keeps_such_a_field_of_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([chat("a", "b", response_text=f"mine {at}") for at in range(6)]))
    without_text(corpus, tmp_path / "out")
    resumed(settings(corpus, tmp_path / "out", part_rows=2), monkeypatch)
    assert [row["response_text"] for row in scored(tmp_path / "out")] == [f"mine {at}" for at in range(6)]
    assert {row["status"] for row in scored(tmp_path / "out")} == {"scored"}


@pytest.mark.parametrize("text", [True, False])
def test_parts_of_a_folder_agree_whatever_a_later_run_says(
    tmp_path: Path, corpus: Path, text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    scored_corpus(settings(corpus, out, part_rows=2, text=text))
    sorted((out / "parts").iterdir())[1].unlink()
    assert resumed(settings(corpus, out, text=not text), monkeypatch)
    assert {"response_text" in row for row in scored(out)} == {text}
    assert resumed(settings(corpus, out, text=text), monkeypatch) == []
    resumed(settings(corpus, out, text=not text, overwrite=True), monkeypatch)
    assert {"response_text" in row for row in scored(out)} == {not text}


def test_a_folder_of_another_kind_is_refused_as_before(tmp_path: Path, corpus: Path) -> None:
    write(tmp_path / "out" / "manifest.json", b"{}")
    run_settings = settings(corpus, tmp_path / "out")
    planned = resolve(run_settings)
    with pytest.raises(OutputError, match="no manifest of Assay"):
        open_run(run_settings, planned, manifest_of(planned, run_settings))
