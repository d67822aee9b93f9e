"""`pairs`: which candidates meet, what is written of them, and the corpus' labels."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.part import Counts
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.summary import summarise
from pipelines.results.exports.trainers import PAIR_FORMATS
from tests.support.candidates import Given, drawn_corpus, judged_corpus, prompts, rows_in, scored_corpus
from tests.support.corpora import lines, scored, settings, write
from tests.support.exports import SIX, export, numbered_texts, pair, write_candidates
from tests.support.parsed_rows import reply, user

TURNS = [user("q"), reply("a"), user("r"), reply("b"), user("s"), reply("c")]


def test_answers_at_different_turns_of_a_conversation_never_make_a_pair(tmp_path: Path) -> None:
    folder = judged_corpus(tmp_path / "in", [{"messages": TURNS}], [[1.0, 2.0, 3.0]], RowShape("messages", "all"))
    summary = pair(folder, tmp_path / "pairs", pairs="all")
    assert (summary.groups, summary.rows, summary.left) == (3, 0, {"the only candidate for its prompt": 3})


def test_turns_make_pairs_with_those_that_were_asked_the_same_so_far(tmp_path: Path) -> None:
    conversations = [user("q"), reply("A"), user("r"), reply("B")], [*TURNS[:3], reply("bb")]
    rows = [{"messages": turns} for turns in (TURNS[:4], *conversations)]
    folder = judged_corpus(tmp_path / "in", rows, [[1.0, 2.0], [3.0, 4.0], [0.5, 5.0]], RowShape("messages", "all"))
    summary = pair(folder, tmp_path / "pairs", pairs="all", trainer="trl-implicit")
    contents = [
        tuple(turn["content"] for side in ("chosen", "rejected") for turn in row[side])
        for row in rows_in(tmp_path / "pairs")
    ]
    assert sorted(contents) == [("q", "A", "q", "a")] * 2 + [("q", "a", "r", "bb", "q", "a", "r", "b")]
    assert (summary.groups, summary.rows) == (3, 3)


def test_why_a_group_makes_no_pair_is_said(tmp_path: Path) -> None:
    rows = [{"chosen": [user(left), reply("a")], "rejected": [user(right), reply("b")]} for left, right in ("pp", "qr")]
    folder = judged_corpus(tmp_path / "in", rows, [[1.0, 1.0], [2.0, 1.0]], RowShape("preference"))
    left = {"no two candidates with different rewards and texts": 1, "the only candidate for its prompt": 2}
    assert pair(folder, tmp_path / "pairs").left == left
    left = {"no two candidates that differ enough (--min-margin)": 1, "the only candidate for its prompt": 2}
    assert pair(folder, tmp_path / "apart", min_margin=2.0).left == left


@pytest.mark.parametrize(("parquet", "prefix", "per"), [(False, "", "row"), (True, "judge_", "prompt")])
def test_what_was_judged_comes_back(tmp_path: Path, parquet: bool, prefix: str, per: str) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": [user("zwölf\n"), reply("a"), user('"q"')], "chosen": "good\u2028", "rejected": "bad", "system": "s"},
        {"prompt": [user("r")], "chosen": "one", "rejected": "\U0001f600", "system": None},
    ]
    rewards = [[2.0, 1.0], [0.5, 1.5]]
    folder = judged_corpus(tmp_path / "in", rows, rewards, RowShape("preference"), parquet=parquet, prefix=prefix)
    assert pair(folder, tmp_path / "out", per=per).rows == 2
    first, second = sorted(rows_in(tmp_path / "out"), key=lambda row: -row["score_chosen"])
    assert first["prompt"] == [{"role": "system", "content": "s"}, user("zwölf\n"), reply("a"), user('"q"')]
    assert (first["chosen"], first["rejected"], first["margin"]) == ([reply("good\u2028")], [reply("bad")], 1.0)
    assert (second["prompt"], second["chosen"]) == ([user("r")], [reply("\U0001f600")])


def test_pairs_are_made_for_each_of_their_trainers(tmp_path: Path) -> None:
    folder = write_candidates(tmp_path / "in", *SIX)
    for trainer in PAIR_FORMATS:
        summary = pair(folder, tmp_path / trainer, trainer=trainer, pairs="all")
        assert summary.rows == len(rows_in(tmp_path / trainer)) == (8 if trainer == "nemo-aligner-rm" else 4)


def test_what_a_format_cant_say_is_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"prompt": [user("q"), {"role": "tool", "content": "t"}]}, {"prompt": "q"}]
    folder = drawn_corpus(tmp_path / "in", rows, numbered_texts([[1.0, 2.0, 3.0]] * 2), prompts())
    summary = pair(folder, tmp_path / "out", trainer="llama-factory", pairs="all")
    assert (summary.rows, summary.left) == (3, {"tool_turn": 3})
    labelled = export(folder, tmp_path / "kto", "llama-factory-kto", threshold=0.0)
    assert (labelled.rows, labelled.left) == (3, {"tool_turn": 3})


# --- labels ----------------------------------------------------------------------------------------------------------


def test_pairs_against_the_labels_are_counted_and_left_out_where_that_is_asked(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{at}", "chosen": f"good {at}", "rejected": f"bad {at}"} for at in range(20)]
    folder = scored_corpus(settings(write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "in"))
    rewards: dict[str, dict[str, float]] = {}
    for row in scored(Path(folder)):
        rewards.setdefault(row["row"], {})[row["response_name"]] = row["reward"]
    agree = sum(row["chosen"] > row["rejected"] for row in rewards.values())
    assert 0 < agree < 20
    summaries = {labels: pair(folder, tmp_path / labels, labels=labels) for labels in ("ignore", "agree", "require")}
    assert [summary.rows for summary in summaries.values()] == [20, agree, agree]
    assert all(summary.labels == {"agree": agree, "disagree": 20 - agree} for summary in summaries.values())
    assert summaries["require"].left == {"against the label": 20 - agree}
    margins = [row["label_margin"] for row in rows_in(tmp_path / "ignore")]
    assert sorted(margins) == pytest.approx(sorted(row["chosen"] - row["rejected"] for row in rewards.values()))


def test_no_pair_of_two_rows_with_one_prompt_is_against_their_labels(tmp_path: Path) -> None:
    row = {"prompt": "q", "chosen": "good", "rejected": "bad"}
    folder = judged_corpus(tmp_path / "in", [row, row], [[1.0, 2.0], [0.5, 2.5]], RowShape("preference"))
    ignored = pair(folder, tmp_path / "ignored")
    assert (ignored.rows, ignored.labels) == (1, {"disagree": 1})
    assert rows_in(tmp_path / "ignored")[0]["label_margin"] < 0
    assert pair(folder, tmp_path / "agree", labels="agree").rows == 0


def test_a_margin_by_label_within_the_last_bits_of_a_batch_is_none(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{at}", "chosen": "good", "rejected": "bad"} for at in range(3)]
    rewards: list[list[Given]] = [[2.5 + 1e-7, 2.5], [2.5, 2.5 + 1e-7], [2.5, 3.0]]
    folder = judged_corpus(tmp_path / "in", rows, rewards, RowShape("preference"))
    manifest = read_manifest(folder)
    assert manifest is not None
    counts = sum((part.counts for part in Parts(folder).listing()), Counts())
    summary = summarise(Parts(folder), manifest.columns, counts)
    assert [summary.labels[name] for name in ("pairs", "agree", "disagree", "equal")] == [3, 0, 1, 2]


def test_what_has_no_label_agrees_with_none(tmp_path: Path) -> None:
    folder = write_candidates(tmp_path / "in", *SIX)
    summary = pair(folder, tmp_path / "out", fake_ok=False)
    assert (summary.rows, summary.as_json().keys() & {"labels", "made_up"}) == (2, set())
    required = pair(folder, tmp_path / "required", labels="require")
    assert (required.rows, required.left["without a label"]) == (0, 2)
