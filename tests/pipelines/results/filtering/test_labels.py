"""Labels from the sample that is drawn to the rows that are kept: through files, by the command, with what is refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.errors import GateFailed, OutputError, SettingsError, SourceError
from pipelines.data.formats import RowShape
from pipelines.results.filtering import filter_corpus
from pipelines.results.filtering.filter_corpus import keep
from pipelines.results.filtering.label_sample import draw_labels
from pipelines.settings.filter_settings import FilterSettings, LabelSampleSettings
from tests.support.candidates import judged_corpus
from tests.support.commands import refusal_of
from tests.support.corpora import chat
from tests.support.local_ray import run_here

COUNT = 4000
SHAPE = RowShape("messages")
TRUTH = np.random.default_rng(0).random(COUNT)


def corpus(folder: Path) -> str:
    """Rows 0 ... 3,999 with rewards 0 ... 1: the more a row's, the likelier it is good; each hundredth has none."""
    rows = [chat(f"What is {n}?", f"{n}", id=n) for n in range(COUNT)]
    rewards = [[None if n % 100 == 0 else n / COUNT] for n in range(COUNT)]
    return judged_corpus(folder, rows, rewards, SHAPE, part_rows=500)


def is_good(row: Mapping[str, Any]) -> bool:
    return bool(TRUTH[row["id"]] < 2 * row["id"] / COUNT)


def labelled(folder: Path, scored: str, n: int = 800) -> Path:
    """A drawn sample, labelled by the truth."""
    draw_labels(LabelSampleSettings(scored=scored, output=str(folder / "labels.jsonl"), n=n))
    rows = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    return write_labels(folder, [{**row, "label": is_good(row)} for row in rows])


def write_labels(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def filtered(scored: str, **options: Any) -> Any:
    return keep(FilterSettings(scored=scored, **options))


def test_what_is_kept_by_labels_has_the_precision(tmp_path: Path) -> None:
    scored = corpus(tmp_path / "in")
    labels = labelled(tmp_path, scored)
    summary = filtered(scored, output=str(tmp_path / "kept"), labels=str(labels), precision=0.9)
    selection = summary.selection["labels"]
    cut = summary.selection["boundary"]
    kept = [n for n in range(COUNT) if n % 100 and n / COUNT >= cut]
    assert summary.kept == len(kept) > 1500
    assert np.mean([is_good({"id": n}) for n in kept]) >= 0.9
    assert (selection["labels"], selection["unmatched"]) == (800, 0)
    assert selection["kept_true"] / selection["kept"] > 0.9
    complete = filtered(scored, labels=str(labels), recall=0.8)
    good = [n for n in range(COUNT) if n % 100 and is_good({"id": n})]
    assert np.mean([n / COUNT >= complete.selection["boundary"] for n in good]) >= 0.8


def test_the_sample_is_spread_over_the_rewards_and_shows_none_of_them(tmp_path: Path) -> None:
    scored = corpus(tmp_path / "in")
    done = run_here("label-sample", scored, tmp_path / "a.jsonl", "-n", 100, "--seed", 1)
    assert "Drawn: 100 of 3,960 responses with a reward, each for 39.6 of them" in done.stdout
    draw_labels(LabelSampleSettings(scored=scored, output=str(tmp_path / "b.jsonl"), n=100, seed=1))
    draw_labels(LabelSampleSettings(scored=scored, output=str(tmp_path / "c.jsonl"), n=100, seed=2))
    texts = [(tmp_path / name).read_text() for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    assert texts[0] == texts[1] != texts[2]
    rows = [json.loads(line) for line in texts[0].splitlines()]
    assert rows[0].keys() == {"row", "response_name", "id", "prompt", "response", "weight", "label"}
    assert {row["label"] for row in rows} == {None}
    assert {row["weight"] for row in rows} == {39.6}
    # One of each hundredth of the rewards, but for 60 responses that are left out: ids of responses with a reward are
    # 1 ... 3,999 without each hundredth.
    ranks = [row["id"] - 1 - row["id"] // 100 for row in rows]
    assert all(39 * stratum <= rank < 39 * (stratum + 1) + 60 for stratum, rank in enumerate(ranks))
    assert all(row["prompt"][0]["content"] == f"What is {row['id']}?" for row in rows)
    with pytest.raises(OutputError, match="is there already"):
        draw_labels(LabelSampleSettings(scored=scored, output=str(tmp_path / "a.jsonl")))


def test_fields_of_the_row_dont_replace_those_of_a_label(tmp_path: Path) -> None:
    rows = [chat(f"What is {n}?", f"{n}", id=n, row="page 1", response_name="a", label=True) for n in range(100)]
    scored = judged_corpus(tmp_path / "in", rows, [[n / 100] for n in range(100)], SHAPE, prefix="judge_")
    draw_labels(LabelSampleSettings(scored=scored, output=str(tmp_path / "labels.jsonl"), n=100))
    drawn = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert {row["label"] for row in drawn} == {None}
    labels = write_labels(tmp_path, [{**row, "label": True} for row in drawn])
    assert filtered(scored, labels=str(labels), recall=0.9).selection["labels"]["labels"] == 100


def test_labels_that_show_no_cut_end_with_five(tmp_path: Path) -> None:
    scored = corpus(tmp_path / "in")
    labels = labelled(tmp_path, scored, n=60)
    with pytest.raises(GateFailed, match=r"a precision of 0\.99 with confidence 0\.95: of 60 labels"):
        filtered(scored, labels=str(labels), precision=0.99)
    done = run_here("filter", scored, "--labels", labels, "--precision", 0.99)
    assert done.returncode == 5
    assert "Label more, or ask for less" in done.stderr
    enough = labelled(tmp_path / "in", scored, n=800)
    with pytest.raises(GateFailed, match="no cut is shown to have both"):
        filtered(scored, labels=str(enough), precision=0.95, recall=0.95)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, "1 responses aren't labelled yet"),
        ({"label": "yes"}, "line 1 must have `row`"),
        ({"weight": 1.0}, "labels have weights from 1 to"),
        ({"row": "c:1", "response_name": "other"}, ""),
    ],
    ids=["null", "text", "weights", "another response"],
)
def test_labels_that_cant_be_used_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    scored = corpus(tmp_path / "in")
    rows = [json.loads(line) for line in labelled(tmp_path, scored).read_text().splitlines()]
    path = write_labels(tmp_path, [{**rows[0], **change}, *rows[1:]])
    if not message:
        assert filtered(scored, labels=str(path), recall=0.5).selection["labels"]["unmatched"] == 1
        return
    with pytest.raises(SourceError, match=message):
        filtered(scored, labels=str(path), precision=0.5)


def test_labels_of_a_part_of_the_responses_say_nothing_of_all(tmp_path: Path) -> None:
    scored, best = corpus(tmp_path / "in"), str(tmp_path / "best")
    filtered(scored, output=best, top_fraction=0.3)
    labels = labelled(tmp_path, best, n=300)
    assert filtered(best, labels=str(labels), precision=0.9).kept == 1188
    with pytest.raises(SourceError, match="300 labels stand for 1,188 responses by their weights, and 3,960"):
        filtered(scored, labels=str(labels), precision=0.9)
    # Nor do those that remain when some are left out, as they were hard to label.
    rows = [json.loads(line) for line in labels.read_text().splitlines()]
    with pytest.raises(SourceError, match="leave no label out"):
        filtered(best, labels=str(write_labels(tmp_path, rows[:290])), precision=0.9)
    plain = [{name: row[name] for name in ("row", "response_name", "label")} for row in rows]
    assert filtered(best, labels=str(write_labels(tmp_path, plain)), precision=0.9).kept == 1188


def test_settings_that_dont_go_together_are_refused(tmp_path: Path) -> None:
    for options, message in (
        ({"labels": "l.jsonl"}, "goes with --precision, --recall or both"),
        ({"precision": 0.9, "where": "true"}, "--precision goes with --labels"),
        ({"labels": "l.jsonl", "precision": 0.9, "top_fraction": 0.5}, "--top-fraction and --labels don't go together"),
    ):
        with pytest.raises(SettingsError, match=message):
            filtered(str(tmp_path), **options)
    assert "labels l.jsonl can't be read" in refusal_of(
        *("filter", corpus(tmp_path / "in"), "--labels", "l.jsonl", "--recall", 0.9), run=run_here
    )


def test_other_labels_in_the_same_file_are_another_filter(tmp_path: Path) -> None:
    scored = corpus(tmp_path / "in")
    labels = labelled(tmp_path, scored)
    options = {"output": str(tmp_path / "kept"), "labels": str(labels), "precision": 0.9}
    first = filtered(scored, **options)
    assert filter_corpus.read_finished_filter(FilterSettings(scored=scored, **options)) == first
    rows = [json.loads(line) for line in labels.read_text().splitlines()]
    write_labels(tmp_path, [{**row, "label": True} for row in rows])
    assert filter_corpus.read_finished_filter(FilterSettings(scored=scored, **options)) is None
