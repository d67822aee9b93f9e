"""What came of a run, against the same numbers by numpy."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from actors.errors import AuditError, NothingScored
from actors.records import Reading, Reason, Score
from pipelines.cli.plain_console import show
from pipelines.cli.report import scored_report
from pipelines.data.corpus.corpus_files import Range
from pipelines.data.corpus.readers import RECORD
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus import summary as summary_module
from pipelines.folders.scored_corpus.summary import QUANTILES, Summary, summarise
from pipelines.settings.options import build
from pipelines.settings.run_settings import ScoreSettings
from tests.support.corpora import RUN

CARRIED = pa.schema([(RECORD, pa.large_binary())])
ONE = Columns(CARRIED, ("score",), "")
TWO = Columns(CARRIED, ("help", "truth"), "")
TWO_SIDES = Columns(CARRIED, ("score",), "our_")


Row = tuple[str, str, str | None, Score]


def commit_rows(folder: Path, columns: Columns, *parts: Sequence[Row], carried: Sequence[Any] = (b"{}",)) -> Counts:
    """Parts with these rows; returns what their names say, of an input row for each response."""
    run, counts = Parts(str(folder), RUN), Counts()
    run.create()
    for index, part_rows in enumerate(parts):
        part = Part(0, Range(index, index + 1), Counts.of(len(part_rows), [score for *_, score in part_rows]))
        input_columns = pa.table([[value] * len(part_rows) for value in carried], schema=columns.carried)
        assert run.commit(part, columns.table(input_columns, part_rows, texts=[None] * len(part_rows)), {})
        counts += part.counts
    return counts


def commit(folder: Path, columns: Columns, *parts: Sequence[Score], carried: Sequence[Any] = (b"{}",)) -> Counts:
    """Parts with these scores, a row each."""
    rows = [[(f"f:{row}", "final", "hash", score) for row, score in enumerate(scores)] for scores in parts]
    return commit_rows(folder, columns, *rows, carried=carried)


def summary_of(folder: Path, columns: Columns, *parts: Sequence[Score], carried: Sequence[Any] = (b"{}",)) -> Summary:
    counts = commit(folder, columns, *parts, carried=carried)
    return summarise(Parts(str(folder), RUN), columns, counts)


def summary_of_rows(folder: Path, *parts: Sequence[Row]) -> Summary:
    counts = commit_rows(folder, TWO_SIDES, *parts)
    return summarise(Parts(str(folder), RUN), TWO_SIDES, counts)


def scored(reward: float, tokens: int = 1, **outputs: float) -> Score:
    return Score.scored(Reading(reward, outputs or {"score": reward}), tokens)


def show_summary(summary: Summary, capsys: pytest.CaptureFixture[str], output: str = "out") -> str:
    """The summary as the command shows it."""
    show(scored_report(summary, build(ScoreSettings, {"inputs": ("c",), "output": output, "model": "m"})))
    return capsys.readouterr().out


# --- counts --------------------------------------------------------------------------------------------------------


def test_everything_is_counted(tmp_path: Path) -> None:
    trimmed = Score(scored(1.0).status, None, 1.0, {"score": 1.0}, 100, truncated=True)
    summary = summary_of(
        tmp_path,
        ONE,
        [scored(1.0, tokens=5), Score.rejected(Reason.TOO_LONG), Score.failed(Reason.NOT_FINITE, prompt_tokens=7)],
        [Score.rejected(Reason.TOO_LONG), trimmed, Score.rejected(Reason.BROKEN_JSON), scored(2.0, tokens=6)],
    )
    counts = (summary.rows, summary.responses, summary.scored, summary.rejected, summary.failed)
    assert counts == (7, 7, 3, 3, 1)
    assert (summary.truncated, summary.prompt_tokens) == (1, 118)
    assert list(summary.reasons.items()) == [("too_long", 2), ("broken_json", 1), ("not_finite", 1)]
    assert json.loads(json.dumps(summary.as_json()))["reasons"] == summary.reasons


def test_rows_are_counted_by_the_names_and_a_run_without_a_row_has_no_numbers(tmp_path: Path) -> None:
    counts = commit(tmp_path / "two", ONE, [scored(1.0), scored(2.0)])
    assert summarise(Parts(str(tmp_path / "two"), RUN), ONE, counts._replace(rows=1)).rows == 1
    Parts(str(tmp_path / "none"), RUN).create()
    assert summarise(Parts(str(tmp_path / "none"), RUN), ONE, Counts()) == Summary(0, 0, 0, 0, 0, 0, 0, {}, {})
    summary = summary_of(tmp_path / "rejected", ONE, [Score.rejected(Reason.TOO_LONG)] * 3, [])
    assert (summary.responses, summary.scored, summary.reasons, summary.quantiles) == (3, 0, {"too_long": 3}, {})
    assert summary.prompt_tokens == 0


@pytest.mark.parametrize("wrong", [Counts(2, 1, 1), Counts(2, 2, 1), Counts(2, 1, 0, 1), Counts(3, 3)])
def test_parts_that_hold_something_else_than_their_names_say_are_refused(tmp_path: Path, wrong: Counts) -> None:
    commit(tmp_path, ONE, [scored(1.0), scored(2.0)])
    with pytest.raises(AuditError, match="the parts' names say"):
        summarise(Parts(str(tmp_path), RUN), ONE, wrong)


# --- quantiles -----------------------------------------------------------------------------------------------------


def shares(values: Sequence[float], quantile: float) -> tuple[float, float]:
    """The ranks that a value has, from 0 to 1: with ties, a stretch of them."""
    ordered = np.sort(np.asarray(values))
    below, above = np.searchsorted(ordered, quantile, "left"), np.searchsorted(ordered, quantile, "right")
    return float(below) / len(ordered), float(above) / len(ordered)


@pytest.mark.parametrize("shape", ["ties", "normal", "skewed"])
def test_quantiles_of_many_are_within_a_hundredth_of_rank(
    tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary_module, "_EXACT", 4999)
    random = np.random.default_rng(7)
    rewards = {
        "ties": random.choice([-1.5, 0.0, 0.0, 0.25, 4.0], 5000),
        "normal": random.normal(size=5000),
        "skewed": np.exp(random.normal(size=5000) * 3),
    }[shape].tolist()
    parts = [[scored(reward) for reward in rewards[at : at + 700]] for at in range(0, len(rewards), 700)]
    quantiles = summary_of(tmp_path, ONE, *parts).quantiles["reward"]
    assert (quantiles[0], quantiles[-1]) == (min(rewards), max(rewards))
    assert list(quantiles) == sorted(quantiles)
    for wanted, value in list(zip(QUANTILES, quantiles, strict=True))[1:-1]:
        first, last = shares(rewards, value)
        assert first - 0.01 <= wanted <= last + 0.01


def test_quantiles_of_few_are_numpys_and_of_those_that_are_scored(tmp_path: Path) -> None:
    """A sketch gave 0.0 for the 95 % of a few scores that were all negative."""
    for count in (1, 2, 3, 8, 19, 300):
        for shift in (-100.0, 0.0):
            rewards = np.random.default_rng(count).normal(shift, 1.0, count)
            scores = [Score.rejected(Reason.TOO_LONG), *map(scored, rewards)]
            quantiles = summary_of(tmp_path / f"{count} {shift}", ONE, scores).quantiles["reward"]
            assert quantiles == pytest.approx(np.quantile(rewards, QUANTILES), abs=1e-12)


def test_a_model_has_a_row_of_quantiles_for_each_of_several_outputs(tmp_path: Path) -> None:
    assert summary_of(tmp_path / "one", ONE, [scored(2.5)]).quantiles == {"reward": (2.5,) * 7}
    summary = summary_of(tmp_path / "two", TWO, [scored(1.0, help=2.0, truth=-3.0), Score.rejected(Reason.TOO_LONG)])
    assert summary.quantiles == {"reward": (1.0,) * 7, "scores.help": (2.0,) * 7, "scores.truth": (-3.0,) * 7}


# --- names ---------------------------------------------------------------------------------------------------------


def test_our_columns_are_read_and_not_those_of_an_earlier_run(tmp_path: Path) -> None:
    carried = pa.schema([("reward", pa.float64()), ("status", pa.string()), ("scores", pa.struct([("help", pa.float64())]))])
    columns = Columns(carried, ("help", "truth"), "second_")
    scores = [scored(1.0, help=2.0, truth=3.0), Score.rejected(Reason.TOO_LONG)]
    summary = summary_of(tmp_path, columns, scores, carried=[99.0, "scored", {"help": 99.0}])
    assert (summary.scored, summary.rejected) == (1, 1)
    assert summary.quantiles == {
        "reward": (1.0,) * 7,
        "scores.help": (2.0,) * 7, "scores.truth": (3.0,) * 7
    }  # fmt: skip


def test_a_folder_may_be_called_anything(tmp_path: Path) -> None:
    for name in ("it's", "[!a]*", "a?", 'say "hi"', "reward=1/x", "{a,b}", "100%", "a;b"):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        commit(folder / "ab", ONE, [scored(5.0), scored(6.0)])  # which `a?` and `[!a]*` must not find
        summary = summary_of(folder / name, ONE, [scored(1.0), Score.rejected(Reason.TOO_LONG)])
        assert (summary.scored, summary.rejected, summary.quantiles["reward"]) == (1, 1, (1.0,) * 7)


# --- nothing at all ------------------------------------------------------------------------------------------------


def test_a_run_without_a_reward_is_told_with_its_reasons(tmp_path: Path) -> None:
    bad = [Score.rejected(Reason.TOO_LONG), Score.failed(Reason.NO_VERDICT), Score.failed(Reason.NO_VERDICT)]
    with pytest.raises(NothingScored, match=r"of 3 responses none has a reward \(2 no_verdict, 1 too_long\)"):
        summary_of(tmp_path / "bad", ONE, bad).check_scored()
    summary_of(tmp_path / "one", ONE, [Score.rejected(Reason.TOO_LONG), scored(1.0)]).check_scored()
    summary_of(tmp_path / "none", ONE).check_scored()


def unread(text: str) -> Score:
    return replace(Score.failed(Reason.NO_VERDICT), detail=text)


def test_the_first_of_each_reason_are_shown_with_what_was_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns, number = replace(ONE, text=True), Score.rejected(Reason.CONTENT_NOT_TEXT, "response: a number, 5")
    parts = [[scored(1.0)], [unread("Well.\nFine"), number, number], *[[unread(f"No. {index}")] * 2 for index in range(50)]]
    summary = Summary.of_json(json.loads(json.dumps(summary_of(tmp_path / "some", columns, *parts).as_json())))
    text = show_summary(summary, capsys)
    assert [line for line in text.splitlines() if line.startswith("  ") and ": f:" in line] == [
        "  no_verdict: f:0 final: the judge wrote 'Well.\\nFine'",
        "  no_verdict: f:0 final: the judge wrote 'No. 0'",
        "  content_not_text: f:1 final: response: a number, 5",
    ]
    assert "  no_verdict: `assay check MODEL` shows" in text
    with pytest.raises(NothingScored, match=r"(?s)100 no_verdict.*\n  no_verdict: f:0 final: the judge wrote 'No. 0'"):
        summary_of(tmp_path / "none", columns, *parts[2:]).check_scored()
    without = summary_of(tmp_path / "without", ONE, [unread("Well."), number, scored(1.0)])
    assert [example.detail for example in without.examples] == ["", number.detail]


# --- labels --------------------------------------------------------------------------------------------------------


def test_pairs_are_compared_with_the_corpus_own_labels(tmp_path: Path) -> None:
    chosen, rejected = [3.0, 1.0, 2.0, None, 5.0], [1.0, 4.0, 2.0, 1.0, 1.0]
    rows: list[Row] = []
    for index, (better, worse) in enumerate(zip(chosen, rejected, strict=True)):
        sides = {"chosen": better, "rejected": worse} if index % 2 else {"rejected": worse, "chosen": better}
        rows += [
            (f"f:{index}", name, "h", Score.failed(Reason.NO_VERDICT) if reward is None else scored(reward))
            for name, reward in sides.items()
        ]
    rows += [("f:5", "chosen", "h", scored(9.0)), ("f:6", "rejected", "h", scored(0.0)), ("f:7", "final", "h", scored(0.0))]
    rows += [("f:8", "chosen", "a prompt", scored(9.0)), ("f:8", "rejected", "another", scored(0.0))]
    labels = summary_of_rows(tmp_path, rows[:4], rows[4:]).labels
    assert {name: labels[name] for name in ("pairs", "agree", "disagree", "equal", "left_out")} == {
        "pairs": 4, "agree": 2, "disagree": 1, "equal": 1, "left_out": 5
    }  # fmt: skip
    assert labels["margin"] == [*np.quantile([2.0, -3.0, 0.0, 4.0], QUANTILES)]


def test_sides_that_answer_different_prompts_are_no_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = summary_of_rows(
        tmp_path, [("f:0", "chosen", "a prompt", scored(9.0)), ("f:0", "rejected", "another", scored(0.0))]
    )
    assert summary.labels == {"pairs": 0, "agree": 0, "disagree": 0, "equal": 0, "left_out": 2, "margin": None}
    assert "Labels" not in show_summary(summary, capsys)
    with_pairs = replace(summary, labels={**summary.labels, "pairs": 4, "agree": 4})
    assert "0 equal ones; 2 prompts have" in show_summary(with_pairs, capsys)


def test_large_counts_are_shown_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for rows, tokens in ((100_300, 107_330_930), (1_000_000_000, 107_330_930_000_000)):
        output = show_summary(Summary(rows, rows, rows, 0, 0, 0, tokens, {}, {}), capsys)
        assert [f"{rows:,}"] * 3 + ["0"] * 3 + [f"{tokens:,}"] in [line.split() for line in output.splitlines()]


@pytest.mark.parametrize("hashes", [("h", None), (None, "h"), (None, None)])
def test_a_row_with_a_side_that_was_not_read_is_left_out_once(tmp_path: Path, hashes: tuple[str | None, str | None]) -> None:
    """Such a side has no prompt that it would be known by."""
    rows: list[Row] = [
        (f"f:{index}", side, prompt_hash, Score.rejected(Reason.EMPTY_CONTENT) if prompt_hash is None else scored(9.0))
        for index in range(2)
        for side, prompt_hash in zip(("chosen", "rejected"), hashes, strict=True)
    ]
    assert summary_of_rows(tmp_path, rows).labels["left_out"] == 2


def test_without_labels_nothing_is_said_of_them(tmp_path: Path) -> None:
    assert summary_of(tmp_path, ONE, [scored(1.0), scored(2.0)]).labels == {}


# --- repeats -------------------------------------------------------------------------------------------------------

WITH_TEXT = Columns(CARRIED, ("score",), "", text=True)


def summary_of_texts(folder: Path, *responses: tuple[str | None, str | None], columns: Columns = WITH_TEXT) -> Summary:
    """Of one part for each (prompt hash, text)."""
    run, counts = Parts(str(folder), RUN), Counts()
    run.create()
    for at, (prompt, text) in enumerate(responses):
        score = Score.rejected(Reason.WRONG_TYPE) if text is None else scored(1.0)
        part = Part(0, Range(at, at + 1), Counts.of(1, [score]))
        row = [(f"f:{at}", "final", prompt, score)]
        run.commit(part, columns.table(pa.table([[b"{}"]], schema=CARRIED), row, texts=[text]), {})
        counts += part.counts
    return summarise(run, columns, counts)


def test_responses_that_are_there_again_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [("a", "yes"), ("b", "yes"), ("a", "yes"), ("a", "no"), ("a", "yes"), ("b", ""), ("b", "")]
    summary = summary_of_texts(tmp_path / "again", *texts, ("a", None), ("a", None), (None, None))
    assert summary.repeats == 3
    output = show_summary(summary, capsys, "out dir/")
    assert "Repeats: 3 of 10 responses have the text of an earlier response to an equal prompt" in output
    assert "`assay choose 'out dir' OUTPUT --strategy all --set distinct=1`" in output
    summary = summary_of_texts(tmp_path / "none", ("a", "yes"), ("b", "yes"), ("a", "Yes"))
    assert summary.repeats == 0
    assert "Repeats" not in show_summary(summary, capsys)


def test_without_texts_or_in_a_large_corpus_repeats_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert summary_of_texts(tmp_path / "no texts", ("a", "yes"), ("a", "yes"), columns=ONE).repeats is None
    monkeypatch.setattr(summary_module, "_LOOKED_AT_FOR_REPEATS", 1)
    assert summary_of_texts(tmp_path / "large", ("a", "yes"), ("a", "yes")).repeats is None
