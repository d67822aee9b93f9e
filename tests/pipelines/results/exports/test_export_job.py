"""From a scored folder to choices, pairs and exports: what is written, what is counted, what is refused, and going on."""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from actors.errors import AuditError, ExpressionError, OutputError, RunStopped, SettingsError, SourceError
from pipelines.cli.app import cli
from pipelines.data.formats import OwnColumns, RowShape
from pipelines.data.storage import LEASE
from pipelines.data.storage.lease import Ticket, lease
from pipelines.folders.run_folder import output_folder
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.member_runs import is_fake
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus import shuffle
from pipelines.folders.scored_corpus.read_back import Reader
from pipelines.folders.scored_corpus.shuffle import Shuffle
from pipelines.folders.scored_corpus.summary import summarise
from pipelines.results.exports import export_commands, export_job
from pipelines.results.exports.export_counts import ExportSummary
from pipelines.results.exports.trainers import PAIR_FORMATS, RESPONSE_FORMATS
from pipelines.results.filtering.filter_corpus import keep
from pipelines.run.runtime.workers import workers
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, PairSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import FilterSettings
from tests.support.asked import said, user
from tests.support.candidates import Given, drawn_corpus, files_in, judged_corpus, prompts, rows_in, scored_corpus
from tests.support.corpora import lines, scored, settings, write
from tests.support.deletions import die_in_start
from tests.support.lost_leases import take_over

PER = pytest.mark.parametrize("per", ["row", "prompt"])
KIND = pytest.mark.parametrize("parquet", [False, True], ids=["jsonl", "parquet"])

ANSWERED = RowShape("prompt-response")
BESIDE = {"README.md", "recipe.yaml"}
TAKEN = {"taken": "every response with a reward"}
NOTHING = {**ExportSummary(unscored=3).as_json(), **TAKEN}


def choose(folder: str, output: Path, **asked: Any) -> ExportSummary:
    return export_commands.choose(ChooseSettings(scored=folder, output=str(output), **asked))


def pair(folder: str, output: Path, **asked: Any) -> ExportSummary:
    return export_commands.make_pairs(PairSettings(scored=folder, output=str(output), **{"fake_ok": True, **asked}))


def export(folder: str, output: Path, trainer: str, **asked: Any) -> ExportSummary:
    return export_commands.export(
        ExportSettings(scored=folder, output=str(output), trainer=trainer, **{"fake_ok": True, **asked})
    )


def document(folder: Path, kind: str = "choose") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{kind}.json").read_text())
    return found


def drawn(folder: Path, *rewards: Sequence[Given], **how: Any) -> str:
    """Candidates of different prompts, of these rewards; each says where it comes from."""
    rows = [{"prompt": f"p{at}"} for at in range(len(rewards))]
    return drawn_corpus(folder, rows, told_of(rewards), prompts(), **how)


def told_of(rewards: Sequence[Sequence[Given]]) -> list[list[tuple[str, Given]]]:
    """Texts that say where they come from, with what they came to."""
    return [[(f"{at}.{place}", reward) for place, reward in enumerate(own)] for at, own in enumerate(rewards)]


def answered(folder: Path, *told: tuple[str, str, Given], **how: Any) -> str:
    """A corpus of one response per row: its prompt, its text, and what it came to."""
    rows = [{"prompt": prompt, "response": text} for prompt, text, _ in told]
    return judged_corpus(folder, rows, [[reward] for *_, reward in told], ANSWERED, **how)


def texts(folder: Path) -> list[str]:
    """Those of what was chosen."""
    return [row["messages"][-1]["content"] for row in rows_in(folder)]


def couples(folder: Path) -> list[tuple[str, str]]:
    return [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows_in(folder)]


# --- counts ----------------------------------------------------------------------------------------------------------

SIX: tuple[list[Given], ...] = ([1.0, 3.0, 2.0], [None, 1.0, 2.0], [None, None], [0.5])


def test_a_turn_that_isnt_kept_is_not_trained_on_in_a_later_one(tmp_path: Path) -> None:
    """SFT's loss is on every turn of the assistant's: after a turn that was left out, a conversation can't go on."""
    rows = [{"messages": TURNS}, {"messages": TURNS}]
    folder = judged_corpus(tmp_path / "in", rows, [[3.0, 1.0, 3.0], [3.0, 3.0, 1.0]], RowShape("messages", "all"))
    summary = export(folder, tmp_path / "sft", "sft", where="reward > 2")
    assert rows_in(tmp_path / "sft") == [{"messages": TURNS[:2]}, {"messages": TURNS[:4]}]
    assert summary.left == {"outside --where": 2, "after_unkept_turn": 1}
    keep(FilterSettings(scored=folder, output=str(tmp_path / "good"), keep="reward > 2"))
    assert export(str(tmp_path / "good"), tmp_path / "kept-sft", "sft").left == {"after_unkept_turn": 1}
    assert rows_in(tmp_path / "kept-sft") == rows_in(tmp_path / "sft")


@PER
def test_counts_add_up(tmp_path: Path, per: str) -> None:
    rows: list[dict[str, Any]] = [*({"prompt": f"p{at}"} for at in range(4)), {"prompt": None}]
    folder = drawn_corpus(tmp_path / "in", rows, told_of([*SIX, []]), prompts())
    best = choose(folder, tmp_path / "best", keep="best", per=per)
    assert best.as_json() == {"groups": 3, "candidates": 6, "unscored": 4, "rows": 3, "left": {"not chosen": 3}, **TAKEN}
    assert sorted(texts(tmp_path / "best")) == ["0.1", "1.2", "3.0"]
    two = pair(folder, tmp_path / "pairs", per=per)
    assert (two.groups, two.candidates, two.unscored, two.rows) == (3, 6, 4, 2)
    assert two.left == {"the only candidate for its prompt": 1}
    assert sorted(couples(tmp_path / "pairs")) == [("0.1", "0.0"), ("1.2", "1.1")]


@PER
def test_what_is_told_of_it_is_in_its_document(tmp_path: Path, per: str) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    summary = choose(folder, tmp_path / "out", keep="top-k", k=2, floor=1.0, per=per)
    found = document(tmp_path / "out")
    assert found["summary"] == summary.as_json() == {
        "groups": 3, "candidates": 6, "unscored": 3, "rows": 4, "left": {"not chosen": 2}, **TAKEN,
    }  # fmt: skip
    assert found["asked"] == "keep: top-k, k: 2, floor: 1.0"
    assert (found["settings"]["per"], found["source"]["folder"]) == (per, folder)
    assert set(os.listdir(tmp_path / "out")) == {*BESIDE, "choose.json", "chosen-00000.jsonl"}


@PER
@pytest.mark.parametrize("rewards", [([1.0, None, 3.0],), ([1.0, None], [3.0])], ids=["in a row", "between rows"])
def test_a_response_without_a_reward_doesnt_part_those_around_it(
    tmp_path: Path, per: str, rewards: tuple[list[Given], ...]
) -> None:
    rows = [{"prompt": "same"}] * len(rewards)
    folder = drawn_corpus(tmp_path / "in", rows, told_of(rewards), prompts())
    groups = len(rewards) if per == "row" else 1
    summary = choose(folder, tmp_path / "best", keep="best", per=per)
    assert (summary.groups, summary.rows, summary.unscored) == (groups, groups, 1)
    assert pair(folder, tmp_path / "pairs", per=per).rows == (2 - groups)


@PER
def test_where_nothing_was_scored_there_is_a_document_and_no_file(tmp_path: Path, per: str) -> None:
    folder = drawn(tmp_path / "in", [None, None], [None])
    assert choose(folder, tmp_path / "out", keep="best", per=per).as_json() == NOTHING
    assert set(os.listdir(tmp_path / "out")) == {*BESIDE, "choose.json"}
    assert export(folder, tmp_path / "sft", "sft").as_json() == NOTHING
    assert set(os.listdir(tmp_path / "sft")) == {*BESIDE, "export.json"}
    empty = drawn(tmp_path / "empty")
    assert choose(empty, tmp_path / "none", keep="best", per=per) == ExportSummary()
    assert document(tmp_path / "none")["summary"]["candidates"] == 0


def test_nothing_that_is_good_enough_leaves_no_file(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    assert choose(folder, tmp_path / "out", keep="best", floor=9.0).rows == 0
    assert set(os.listdir(tmp_path / "out")) == {*BESIDE, "choose.json"}


# --- what belongs together -------------------------------------------------------------------------------------------


def test_equal_prompts_of_different_rows_belong_together_unless_rows_are_asked_for(tmp_path: Path) -> None:
    folder = answered(tmp_path / "in", ("p", "good", 2.0), ("q", "alone", 5.0), ("p", "bad", 1.0))
    assert pair(folder, tmp_path / "pairs").rows == 1
    assert couples(tmp_path / "pairs") == [("good", "bad")]
    assert pair(folder, tmp_path / "by row", per="row").rows == 0
    assert choose(folder, tmp_path / "best", keep="best").rows == 2
    assert sorted(texts(tmp_path / "best")) == ["alone", "good"]
    by_row = choose(folder, tmp_path / "best by row", keep="best", per="row")
    assert (by_row.groups, texts(tmp_path / "best by row")) == (3, ["good", "alone", "bad"])


TURNS = [user("q"), said("a"), user("r"), said("b"), user("s"), said("c")]


@PER
@KIND
def test_answers_at_different_turns_of_a_conversation_never_make_a_pair(tmp_path: Path, per: str, parquet: bool) -> None:
    rows, shape = [{"messages": TURNS}], RowShape("messages", "all")
    folder = judged_corpus(tmp_path / "in", rows, [[1.0, 2.0, 3.0]], shape, parquet=parquet)
    summary = pair(folder, tmp_path / "pairs", pairs="all", per=per)
    assert (summary.groups, summary.rows, summary.left) == (3, 0, {"the only candidate for its prompt": 3})
    assert choose(folder, tmp_path / "best", keep="best", per=per).rows == 3
    assert sorted(texts(tmp_path / "best")) == ["a", "b", "c"]


@PER
def test_why_a_group_makes_no_pair_is_said(tmp_path: Path, per: str) -> None:
    rows = [{"chosen": [user(left), said("a")], "rejected": [user(right), said("b")]} for left, right in ("pp", "qr")]
    folder = judged_corpus(tmp_path / "in", rows, [[1.0, 1.0], [2.0, 1.0]], RowShape("preference"))
    left = {"no two candidates that differ enough (--min-margin)": 1, "the only candidate for its prompt": 2}
    assert pair(folder, tmp_path / "pairs", per=per).left == left


def test_turns_make_pairs_with_those_that_were_asked_the_same_so_far(tmp_path: Path) -> None:
    others = [user("q"), said("A"), user("r"), said("B")], [*TURNS[:3], said("bb")]
    rows = [{"messages": turns} for turns in (TURNS[:4], *others)]
    folder = judged_corpus(tmp_path / "in", rows, [[1.0, 2.0], [3.0, 4.0], [0.5, 5.0]], RowShape("messages", "all"))
    summary = pair(folder, tmp_path / "pairs", pairs="all", trainer="trl-implicit")
    found = [
        tuple(turn["content"] for side in ("chosen", "rejected") for turn in row[side])
        for row in rows_in(tmp_path / "pairs")
    ]
    assert sorted(found) == [("q", "A", "q", "a")] * 2 + [("q", "a", "r", "bb", "q", "a", "r", "b")]
    assert (summary.groups, summary.rows) == (3, 3)


def test_an_export_tells_whole_conversations(tmp_path: Path) -> None:
    """SFT learns all turns of the assistant's, so a conversation with several judged turns is one row."""
    rows = [{"messages": TURNS}, {"messages": TURNS[:2]}]
    folder = judged_corpus(tmp_path / "in", rows, [[1.0, 2.0, 3.0], [1.0]], RowShape("messages", "all"))
    summary = export(folder, tmp_path / "sft", "sft")
    assert (summary.groups, summary.candidates, summary.rows) == (2, 4, 2)
    assert rows_in(tmp_path / "sft") == rows
    assert export(folder, tmp_path / "kto", "kto", threshold=2.0).rows == 4
    assert [row["label"] for row in rows_in(tmp_path / "kto")] == [False, True, True, False]


@PER
def test_of_equals_the_first_candidate_counts_and_the_tenth_comes_after_the_ninth(tmp_path: Path, per: str) -> None:
    folder = drawn(tmp_path / "in", [0.0, 0.0, 1.0, *[0.0] * 7, 1.0, 0.0])
    choose(folder, tmp_path / "out", keep="top-k", k=2, per=per)
    assert texts(tmp_path / "out") == ["0.2", "0.10"]


def test_of_equals_the_first_row_of_the_corpus_counts(tmp_path: Path) -> None:
    """Rows 2 and 10 of a file, in two parts."""
    told = [("p", f"text {at}", 1.0 if at in (2, 10) else 0.0) for at in range(12)]
    folder = answered(tmp_path / "in", *told, part_rows=5)
    choose(folder, tmp_path / "out", keep="all", floor=0.0)
    assert texts(tmp_path / "out") == [f"text {at}" for at in (2, 10, 0, 1, 3, 4, 5, 6, 7, 8, 9, 11)]


# --- read back -------------------------------------------------------------------------------------------------------


@PER
@KIND
@pytest.mark.parametrize("prefix", ["", "judge_"])
def test_what_was_judged_comes_back(tmp_path: Path, per: str, parquet: bool, prefix: str) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": [user("zwölf\n"), said("a"), user('"q"')], "chosen": "good\u2028", "rejected": "bad", "system": "s"},
        {"prompt": [user("r")], "chosen": "one", "rejected": "\U0001f600", "system": None},
    ]
    rewards = [[2.0, 1.0], [0.5, 1.5]]
    folder = judged_corpus(tmp_path / "in", rows, rewards, RowShape("preference"), parquet=parquet, prefix=prefix)
    assert pair(folder, tmp_path / "out", per=per).rows == 2
    first, second = sorted(rows_in(tmp_path / "out"), key=lambda row: -row["score_chosen"])
    assert first["prompt"] == [{"role": "system", "content": "s"}, user("zwölf\n"), said("a"), user('"q"')]
    assert (first["chosen"], first["rejected"], first["margin"]) == ([said("good\u2028")], [said("bad")], 1.0)
    assert (second["prompt"], second["chosen"]) == ([user("r")], [said("\U0001f600")])


@PER
@KIND
def test_what_a_policy_wrote_comes_back_with_what_it_was_asked(tmp_path: Path, per: str, parquet: bool) -> None:
    rows: list[dict[str, Any]] = [{"question": "q", "system": None}, {"question": "r", "system": "own"}]
    own = [[("a", 1.0), ("b", 2.0)], [("c", 1.0), ("d", 0.0)]]
    folder = drawn_corpus(tmp_path / "in", rows, own, prompts(), system="policy's", parquet=parquet, prefix="x_")
    choose(folder, tmp_path / "out", keep="best", per=per)
    found = sorted(rows_in(tmp_path / "out"), key=lambda row: row["row"])
    assert [[turn["content"] for turn in row["messages"]] for row in found] == [["policy's", "q", "b"], ["own", "r", "c"]]
    assert [(row["row"], row["response_name"]) for row in found] == [("c:0", "candidate[1]"), ("c:1", "candidate[0]")]


@PER
@pytest.mark.parametrize("ensemble", [False, True])
def test_named_scores_and_ones_own_columns_come_back(tmp_path: Path, per: str, ensemble: bool) -> None:
    shape = RowShape("columns", own_columns=OwnColumns("task.q", "answers", "task.s"))
    rows = [{"task": {"q": "q", "s": "s"}, "answers": ["a", "b", "c"]}]
    rewards = [[{"reward": 1.0, "a": 0.1, "b": 3.0}, {"reward": 2.0, "a": 0.2, "b": 1.0}, {"reward": 0.0, "a": 0.3}]]
    outputs = ("reward", "a", "b")
    folder = judged_corpus(tmp_path / "in", rows, rewards, shape, outputs=outputs, ensemble=ensemble)
    choose(folder, tmp_path / "out", keep="top-k", k=3, per=per)
    found = rows_in(tmp_path / "out")
    assert [row["scores"] for row in found] == [rewards[0][at] for at in (1, 0, 2)], "a score that isn't there is none"
    assert [row["messages"][0]["content"] for row in found] == ["s"] * 3
    choose(folder, tmp_path / "elected", keep="majority", voters=("a", "b"), per=per)
    assert texts(tmp_path / "elected") == ["a"], "one vote each for a and c"


@PER
def test_columns_whose_names_differ_in_case_alone_are_read_each(tmp_path: Path, per: str) -> None:
    rows = [{"Prompt": "Q", "Response": "A", "prompt": "q", "response": "a"}]
    folder = judged_corpus(tmp_path / "in", rows, [[1.0]], ANSWERED, parquet=True)
    choose(folder, tmp_path / "out", keep="best", per=per)
    assert [row["messages"] for row in rows_in(tmp_path / "out")] == [[user("q"), said("a")]]


WAYS = [f"<think>way {at}</think>\n\n7" for at in range(4)]


@PER
@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize(("reasoning", "different"), [("strip", 1), ("keep", 4), ("reject", 4)])
def test_where_reasoning_was_stripped_equal_answers_are_equal(
    tmp_path: Path, per: str, ensemble: bool, reasoning: str, different: int
) -> None:
    """Of a judge that is sampled, whose rewards of equal answers differ. What is written is the whole text."""
    rewarded = [(text, float(at)) for at, text in enumerate(WAYS)]
    how: dict[str, Any] = {"reasoning": reasoning, "ensemble": ensemble}
    from_policy = drawn_corpus(tmp_path / "drawn", [{"prompt": "q"}], [rewarded], prompts(), **how)
    from_rows = answered(tmp_path / "rows", *(("q", text, reward) for text, reward in rewarded), **how)
    for place, folder in (("drawn", from_policy), ("rows", from_rows)):
        out = tmp_path / f"{place}-out"
        one_per_row = place == "rows" and per == "row"
        assert pair(folder, out / "pairs", pairs="all", per=per).rows == (0 if one_per_row or different == 1 else 6)
        choose(folder, out / "best", keep="all", distinct=1.0, per=per)
        assert sorted(texts(out / "best")) == (WAYS if one_per_row else WAYS[-different:])


def test_an_ensemble_in_which_a_member_was_shown_the_reasoning_goes_by_the_whole_text(tmp_path: Path) -> None:
    folder = answered(tmp_path / "in", *(("q", text, float(at)) for at, text in enumerate(WAYS)), ensemble=True)
    manifest = read_manifest(folder)
    assert manifest is not None
    (member,) = manifest.identity["members"].values()
    both = {how: {**member, "identity": {**member["identity"], "reasoning": how}} for how in ("strip", "keep")}
    stripped = [
        Reader.of(replace(manifest, identity={**manifest.identity, "members": members})).stripped
        for members in ({"a": both["strip"], "b": both["strip"]}, both)
    ]
    assert stripped == [True, False]


@PER
def test_a_judge_that_gave_a_prompt_no_score_has_no_vote_there(tmp_path: Path, per: str) -> None:
    """As z-scores are missing where all candidates are equal, in an ensemble that goes by another number."""
    rewards = [[{"reward": 1.0}, {"reward": 2.0}], [{"reward": 1.0, "z": 5.0}, {"reward": 2.0, "z": 4.0}]]
    folder = drawn(tmp_path / "in", *rewards, outputs=("reward", "z"))
    choose(folder, tmp_path / "out", keep="majority", voters=("z",), per=per)
    assert sorted(texts(tmp_path / "out")) == ["0.1", "1.0"]


def test_how_a_folder_is_read_travels(tmp_path: Path) -> None:
    manifest = read_manifest(drawn(tmp_path / "in", [1.0], system="s"))
    assert manifest is not None
    reader = Reader.of(manifest)
    assert pickle.loads(pickle.dumps(reader)) == reader
    assert reader.system == "s"


def test_a_row_that_is_another_prompt_now_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that another version of Assay read otherwise."""
    row = {"prompt": "q\n<extra_id_1>Assistant\na\n<extra_id_1>User\nr"}
    with monkeypatch.context() as earlier:
        earlier.setattr(
            "pipelines.data.formats.shapes.prompt.embedded", lambda prompt: [{"role": "user", "content": prompt}]
        )
        folder = drawn_corpus(tmp_path / "in", [{"prompt": "p"}, row], told_of([[1.0, 2.0]] * 2), prompts())
        assert choose(folder, tmp_path / "earlier", keep="best").rows == 2
    with pytest.raises(SourceError, match=r"the row c:1 has changed since its candidates were sampled .*sample it again"):
        choose(folder, tmp_path / "out", keep="best")


@pytest.mark.parametrize(
    ("row", "earlier"),
    [
        ({"q": "q", "a": ["a", "b"], "system": "s"}, ("with_systems", lambda systems, turns: turns)),
        ({"q": [user("q"), said("x")], "a": ["a", "b"]}, ("refuse_answered", lambda turns: turns)),
    ],
    ids=["another prompt", "no response now"],
)
def test_a_response_that_was_scored_as_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: dict[str, Any], earlier: tuple[str, Callable[..., object]]
) -> None:
    """As one whose row another version of Assay read otherwise."""
    name, read = earlier
    shape = RowShape("columns", own_columns=OwnColumns("q", "a"))
    with monkeypatch.context() as version:
        version.setattr(f"pipelines.data.formats.own_columns.{name}", read)
        folder = judged_corpus(tmp_path / "in", [row], [[1.0, 2.0]], shape)
        assert choose(folder, tmp_path / "earlier", keep="best").rows == 1
    with pytest.raises(SourceError, match=r"response\[\d\] of the row c:0 has changed since it was scored .*score it again"):
        choose(folder, tmp_path / "out", keep="best")


@pytest.mark.parametrize("model", ["tiny-scalar", "tiny-principle"])
def test_rows_with_principles_come_back_whether_the_model_is_shown_them_or_not(tmp_path: Path, model: str) -> None:
    """The prompt of a model that takes none is hashed without them."""
    row = {"domain": "general", "language": "english", "context": [user("1 + 1?")], "response": "2", "fulfilment": "Yes"}
    rows = [{**row, "principle": name} for name in ("correctness", "brevity")]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    folder = scored_corpus(settings(corpus, tmp_path / "in", model=model))
    assert len({row["prompt_hash"] for row in scored(Path(folder))}) == (1 if model == "tiny-scalar" else 2)
    flat = {"scored": folder, "output": str(tmp_path / "out"), "trainer": "sft", "fake_ok": True, "partial": True}
    export_commands.export(build(ExportSettings, flat))
    assert [row["messages"] for row in rows_in(tmp_path / "out")] == [[user("1 + 1?"), said("2")]] * 2


# --- trainers --------------------------------------------------------------------------------------------------------


def test_pairs_are_made_for_each_of_their_trainers(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    for trainer in PAIR_FORMATS:
        pairs = pair(folder, tmp_path / trainer, trainer=trainer, pairs="all")
        assert pairs.rows == len(rows_in(tmp_path / trainer)) == (8 if trainer == "nemo-aligner-rm" else 4)


def test_what_a_format_cant_say_is_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"prompt": [user("q"), {"role": "tool", "content": "t"}]}, {"prompt": "q"}]
    folder = drawn_corpus(tmp_path / "in", rows, told_of([[1.0, 2.0, 3.0]] * 2), prompts())
    summary = pair(folder, tmp_path / "out", trainer="llama-factory", pairs="all")
    assert (summary.rows, summary.left) == (3, {"tool_turn": 3})
    labelled = export(folder, tmp_path / "kto", "llama-factory-kto", threshold=0.0)
    assert (labelled.rows, labelled.left) == (3, {"tool_turn": 3})
    assert document(tmp_path / "kto", "export")["asked"] == "for: llama-factory-kto, threshold: 0.0"


def test_scores_that_a_format_needs(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX, outputs=("reward", "helpfulness"))
    with pytest.raises(SettingsError, match=r"for: steerlm needs the scores .*correctness.* it has reward, helpfulness"):
        export(folder, tmp_path / "out", "steerlm")
    with pytest.raises(SettingsError, match=r"needs the scores nobody, which the corpus hasn't"):
        choose(folder, tmp_path / "out", keep="majority", voters=("helpfulness", "nobody"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("trainer", [form.name for form in RESPONSE_FORMATS.values() if form.needs_threshold])
def test_a_threshold_that_is_needed(tmp_path: Path, trainer: str) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    with pytest.raises(SettingsError, match=f"--for {trainer} tells desirable responses from others: give --threshold"):
        export(folder, tmp_path / "out", trainer)
    assert export(folder, tmp_path / "out", trainer, threshold=2.0).rows == 6


def test_a_threshold_that_isnt(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--for sft has no use for --threshold"):
        export(drawn(tmp_path / "in", *SIX), tmp_path / "out", "sft", threshold=1.0)


def test_formats_that_nobody_knows_are_told_with_those_there_are(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    with pytest.raises(SettingsError, match="--for nobody is no format of pairs; there are llama-factory, ") as caught:
        pair(folder, tmp_path / "out", trainer="nobody")
    assert all(name in str(caught.value) for name in PAIR_FORMATS)
    with pytest.raises(SettingsError, match="--for nobody is no format of single responses; there are ") as caught:
        export(folder, tmp_path / "out", "nobody")
    assert all(name in str(caught.value) for name in RESPONSE_FORMATS)


def test_a_format_has_one_command_and_the_other_names_it(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    for trainer in PAIR_FORMATS:
        with pytest.raises(SettingsError, match=f"a format of pairs: `assay pairs --for {trainer}` writes it"):
            export(folder, tmp_path / "out", trainer)
    for trainer in RESPONSE_FORMATS:
        with pytest.raises(SettingsError, match=f"a format of single responses: `assay export --for {trainer}` writes it"):
            pair(folder, tmp_path / "out", trainer=trainer)
    assert not (tmp_path / "out").exists()


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_that_was_never_scored(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, what in (("nowhere", "isn't there"), ("empty", "is an empty folder")):
        with pytest.raises(SourceError, match=f"{folder} {what}, and `choose` reads a scored corpus"):
            choose(str(tmp_path / folder), tmp_path / "out", keep="best")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("output", ["in", "in/best", ".", "link", "in/parts"])
def test_the_scored_folder_is_never_written_into(tmp_path: Path, output: str) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OutputError, match="give two separate folders"):
        choose(folder, tmp_path / output, keep="best", overwrite=True)


def test_what_is_kept_of_a_sampled_corpus_may_lie_in_it(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    assert choose(folder, tmp_path / "in" / "kept", keep="best").rows == 3
    assert choose(folder, tmp_path / "best", keep="best").candidates == 6, "and isn't taken for a part of it"


def test_an_earlier_result_is_replaced_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_job, "workers", _here)
    folder, out = drawn(tmp_path / "in", *SIX), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(export_job, "_BYTES", 1)
        choose(folder, out, keep="top-k", k=9, per="row")
    (out / "mine.txt").touch()
    assert len(files_in(out)) == 2
    for asked in ("best", "top-k"):
        with pytest.raises(OutputError, match="holds what 'keep: top-k, k: 9' gave; --overwrite replaces it"):
            choose(folder, out, keep=asked)
    assert len(texts(out)) == 6
    assert choose(folder, out, keep="best", floor=3.0, overwrite=True).rows == 1
    assert set(os.listdir(out)) == {*BESIDE, "choose.json", "chosen-00000.jsonl", "mine.txt"}
    assert texts(out) == ["0.1"]


@pytest.mark.parametrize(
    "kind",
    [lambda *of: choose(*of, keep="best"), pair, lambda folder, output: export(folder, output, "sft")],
    ids=["choose", "pairs", "export"],
)
def test_a_folder_that_another_run_writes_is_refused(tmp_path: Path, kind: Any) -> None:
    folder = drawn(tmp_path / "in", [1.0, 2.0])
    with lease(str(tmp_path / "out")), pytest.raises(OutputError, match=r"being written by another run: process \d+ on"):
        kind(folder, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    kind(folder, tmp_path / "out")
    assert not (tmp_path / "out" / LEASE).exists()


def test_a_worker_of_a_run_that_lost_its_folder_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Ticket(str(tmp_path / "out"), "of the lost lease")
    monkeypatch.setattr("pipelines.results.exports.export_job.ticket", lambda folder: lost)
    with pytest.raises(RunStopped, match="isn't held by this run any more"):
        choose(drawn(tmp_path / "in", [1.0, 2.0]), tmp_path / "out", keep="best")
    assert {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()} == {"README.md", "choose.json"}


@pytest.mark.parametrize("moment", ["_make_pieces", "_write_card"])
def test_a_run_that_lost_its_folder_at_its_end_leaves_it_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder, out, step = drawn(tmp_path / "in", [1.0, 2.0]), tmp_path / "out", getattr(export_job, moment)
    others = {"choose.json": "its document", "chosen-00007.jsonl": "its rows", "half.tmp": "what it writes"}

    def suspended(*arguments: Any) -> Any:
        done = step(*arguments)
        take_over(out)
        for name, text in others.items():
            (out / name).write_text(text)
        return done

    monkeypatch.setattr(export_job, moment, suspended)
    with pytest.raises(RunStopped, match=r"another run has taken|isn't held by this run any more"):
        choose(folder, out, keep="best", per="row")
    assert {name: (out / name).read_text() for name in others} == others


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    pair(folder, tmp_path / "out")
    (tmp_path / "file").touch()
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="holds something else than the result of `choose`"):
            choose(folder, tmp_path / "out", keep="best", overwrite=overwrite)
        with pytest.raises(OutputError, match="is a file"):
            choose(folder, tmp_path / "file", keep="best", overwrite=overwrite)
    assert couples(tmp_path / "out")


def test_nothing_to_choose_by_is_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is nothing to choose by"):
        choose(str(tmp_path / "nowhere"), tmp_path / "out")


@PER
def test_an_incomplete_run_is_refused_unless_part_of_it_will_do(tmp_path: Path, per: str) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    _parts(folder)[0].unlink()
    with pytest.raises(SourceError, match="isn't complete"):
        choose(folder, tmp_path / "out", keep="best", per=per)
    assert choose(folder, tmp_path / "out", keep="best", per=per, partial=True).candidates == 1


@PER
def test_parts_that_dont_hold_what_their_names_say(tmp_path: Path, per: str) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    part, path = Parts(folder).listing()[0], _parts(folder)[0]
    path.rename(path.with_name(part._replace(counts=part.counts._replace(scored=6, rejected=0)).name))
    with pytest.raises(AuditError, match="was seen"):
        choose(folder, tmp_path / "out", keep="best", per=per)
    assert document(tmp_path / "out")["summary"] is None


@PER
def test_a_part_that_cannot_be_read_is_named(tmp_path: Path, per: str) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    path = _parts(folder)[0]
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(SourceError, match=path.name):
        choose(folder, tmp_path / "out", keep="best", per=per)


def _parts(folder: str) -> list[Path]:
    return sorted(Path(folder, "parts").iterdir())


# --- pieces ----------------------------------------------------------------------------------------------------------

MANY: list[list[Given]] = [[float(at % 3), float(at % 5), None if at % 4 else 1.0] for at in range(24)]


def _here(tasks: int) -> Any:
    return workers(1)


def cut_up(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Many pieces of work, however the candidates are grouped."""
    whole = sum(path.stat().st_size for path in _parts(folder))
    monkeypatch.setattr(export_job, "_BYTES", whole // 3)


def equal_prompts(folder: Path) -> str:
    """Eight prompts, three rows of each far from each other."""
    rows = [{"prompt": f"p{at % 8}"} for at in range(24)]
    return drawn_corpus(folder, rows, told_of(MANY), prompts())


@PER
def test_only_what_meets_a_condition_is_looked_at(tmp_path: Path, per: str) -> None:
    folder = drawn(tmp_path / "in", [1.0, 5.0, 3.0], [None, 2.0, 4.0], [0.0, 1.0], outputs=("reward", "a"))
    summary = choose(folder, tmp_path / "out", keep="best", per=per, where="reward < 5 and (response_name <> 'x')")
    assert (summary.groups, summary.candidates, summary.unscored, summary.rows) == (3, 7, 1, 3)
    assert summary.left == {"not chosen": 3, "outside --where": 1}
    assert sorted(texts(tmp_path / "out")) == ["0.2", "1.2", "2.1"]
    assert {row["of"] for row in rows_in(tmp_path / "out")} == {2}, "what doesn't meet it counts for nothing"
    none = pair(folder, tmp_path / "none", per=per, where="reward is null")
    assert (none.groups, none.candidates, none.rows) == (0, 7, 0)
    assert document(tmp_path / "none", "pairs")["asked"] == "for: trl, where: reward is null"


@KIND
def test_a_condition_may_name_the_columns_of_the_input(as_scored: Mapping[str, str], parquet: bool, tmp_path: Path) -> None:
    folder = as_scored["parquet" if parquet else "jsonl"]
    assert export(folder, tmp_path / "out", "sft", where="chosen = 'good 4'").rows == 2
    with pytest.raises(ExpressionError, match="nothing"):
        export(folder, tmp_path / "other", "sft", where="nothing = 1")
    assert not (tmp_path / "other").exists()


@PER
def test_what_is_written_doesnt_depend_on_the_pieces(tmp_path: Path, per: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = equal_prompts(tmp_path / "in")
    monkeypatch.setattr(export_job, "workers", _here)
    whole = choose(folder, tmp_path / "whole", keep="softmax", k=2, per=per)
    cut_up(monkeypatch, folder)
    pieces = choose(folder, tmp_path / "pieces", keep="softmax", k=2, per=per)
    assert pieces == whole
    assert len(files_in(tmp_path / "whole")) == 1 < len(files_in(tmp_path / "pieces"))
    found, expected = rows_in(tmp_path / "pieces"), rows_in(tmp_path / "whole")
    if per == "prompt":
        assert [_by_prompt(own) for own in (found, expected)] == [_by_prompt(expected)] * 2
    else:
        assert found == expected


def _by_prompt(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What was chosen of each prompt, which must be all together in one place."""
    found: dict[str, list[Any]] = {}
    before = None
    for row in rows:
        own = row["prompt_hash"]
        assert own == before or own not in found
        found.setdefault(own, []).append(row)
        before = own
    return found


class Elsewhere:
    """Workers that get what Ray's get: pickles, in an order that isn't ours."""

    def map(self, function: Any, arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        for own in reversed(arguments):
            yield pickle.loads(pickle.dumps(function))(*pickle.loads(pickle.dumps(own)))


@contextmanager
def _elsewhere(tasks: int) -> Iterator[Elsewhere]:
    yield Elsewhere()


@PER
def test_pieces_are_made_anywhere_in_any_order(tmp_path: Path, per: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = equal_prompts(tmp_path / "in")
    cut_up(monkeypatch, folder)
    for name, hands in (("here", _here), ("elsewhere", _elsewhere)):
        monkeypatch.setattr(export_job, "workers", hands)
        out = tmp_path / name
        assert pair(folder, out / "pairs", per=per).rows > 0
        assert choose(folder, out / "best", keep="majority", voters=("reward",), per=per).rows > 0
        assert export(folder, out / "sft", "sft").rows == 54
    for made_of in ("pairs", "best", "sft"):
        assert files_in(tmp_path / "here" / made_of) == files_in(tmp_path / "elsewhere" / made_of)
        assert len(files_in(tmp_path / "here" / made_of)) > 1


@PER
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_was_killed_goes_on_with_what_isnt_there(
    tmp_path: Path, per: str, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, calm, out = equal_prompts(tmp_path / "in"), tmp_path / "calm", tmp_path / "out"
    monkeypatch.setattr(export_job, "workers", _here)
    cut_up(monkeypatch, folder)
    asked = {"keep": "top-k", "k": 2, "per": per, "overwrite": overwrite}
    whole = choose(folder, calm, **asked)
    with monkeypatch.context() as patch:
        patch.setattr(output_folder, "note_done", _dies_after(2))
        with pytest.raises(KeyboardInterrupt):
            choose(folder, out, **asked)
    assert document(out)["summary"] is None
    noted = {f"chosen-{name.removesuffix('.json')}.jsonl" for name in os.listdir(out / "done")}
    assert len(noted) == 2
    before = {path.name: _stamp(path) for path in out.glob("*.jsonl")}
    (unnoted,) = before.keys() - noted
    (out / unnoted).write_bytes(b"half of it")
    (out / "done" / "half-written.tmp").touch()
    assert choose(folder, out, **asked) == whole
    after = {path.name: _stamp(path) for path in out.glob("*.jsonl")}
    assert {name for name in before if after[name] == before[name]} == noted & before.keys(), (
        "what is there isn't made again"
    )
    assert files_in(out) == files_in(calm)
    assert sorted(os.listdir(out)) == sorted(os.listdir(calm)), "what was noted on the way is gone"


def _stamp(path: Path) -> tuple[int, int]:
    """Differs for a file that was written again, though a file system may give it the number of one that is gone."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def _dies_after(calls: int) -> Any:
    left: Iterator[int] = iter(range(calls))
    real = output_folder.note_done

    def note(*arguments: Any, **named: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(*arguments, **named)

    return note


@PER
def test_another_choice_starts_anew_in_a_folder_that_was_left(
    tmp_path: Path, per: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = equal_prompts(tmp_path / "in"), tmp_path / "out"
    monkeypatch.setattr(export_job, "workers", _here)
    cut_up(monkeypatch, folder)
    with monkeypatch.context() as patch:
        patch.setattr(output_folder, "note_done", _dies_after(2))
        with pytest.raises(KeyboardInterrupt):
            choose(folder, out, keep="all", floor=0.0, per=per)
    assert files_in(out)
    assert choose(folder, out, keep="best", floor=4.0, per=per).candidates == 54
    assert {row["reward"] for row in rows_in(out)} == {4.0}
    choose(folder, tmp_path / "calm", keep="best", floor=4.0, per=per)
    assert files_in(out) == files_in(tmp_path / "calm")


@PER
def test_a_choice_that_is_killed_while_it_clears_its_folder_takes_nothing_of_another(
    tmp_path: Path, per: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = equal_prompts(tmp_path / "in")
    monkeypatch.setattr(export_job, "workers", _here)
    cut_up(monkeypatch, folder)
    asked: dict[str, Any] = {"keep": "best", "floor": 4.0, "per": per}
    whole = choose(folder, tmp_path / "calm", **asked)
    deletions, killed = 0, True
    while killed:
        out = tmp_path / f"{deletions}"
        with monkeypatch.context() as patch:
            patch.setattr(output_folder, "finish", _dies_after(0))
            with pytest.raises(KeyboardInterrupt):
                choose(folder, out, keep="all", floor=0.0, per=per)
        with monkeypatch.context() as patch:
            die_in_start(patch, deletions)
            try:
                killed = choose(folder, out, **asked) != whole
            except KeyboardInterrupt:
                deletions += 1
        assert not killed or choose(folder, out, **asked) == whole
        assert files_in(out) == files_in(tmp_path / "calm")
    assert deletions > 2


@pytest.mark.parametrize("spill", [None, "spilled"])
@pytest.mark.parametrize("killed_at", [1, 3])
def test_a_shuffle_that_was_killed_goes_on_and_leaves_nothing(
    tmp_path: Path, spill: str | None, killed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_job, "workers", _here)
    monkeypatch.setattr(shuffle, "_PARTS", 4)
    folder, out = equal_prompts(tmp_path / "in"), tmp_path / "out"
    cut_up(monkeypatch, folder)
    asked = {"keep": "top-k", "k": 2, "spill": spill and str(tmp_path / spill)}
    whole = choose(folder, tmp_path / "calm", **asked)
    written: list[int] = []
    write = Shuffle.write

    def write_or_die(self: Shuffle, number: int, parts: Sequence[Part]) -> None:
        if len(written) == killed_at:
            raise KeyboardInterrupt
        write(self, number, parts)
        written.append(number)

    monkeypatch.setattr(Shuffle, "write", write_or_die)
    with pytest.raises(KeyboardInterrupt):
        choose(folder, out, **asked)
    killed_at = 99
    assert choose(folder, out, **asked) == whole
    assert written == list(range(len(written))), "no file is written twice"
    assert len(written) > 3
    assert files_in(out) == files_in(tmp_path / "calm")
    left = list((tmp_path / spill if spill else out).rglob("*.arrow")) + list(out.glob("_shuffle"))
    assert left == []


def test_other_settings_take_nothing_of_a_killed_shuffle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that it left hold other columns, and the responses of a corpus that may have changed."""
    monkeypatch.setattr(export_job, "workers", _here)
    folder, out = equal_prompts(tmp_path / "in"), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Shuffle, "read", _dies_after(0))
        with pytest.raises(KeyboardInterrupt):
            choose(folder, out, keep="best")
    (before,) = (out / "_shuffle").glob("*.arrow")
    with monkeypatch.context() as patch:
        patch.setattr(Shuffle, "read", _dies_after(0))
        with pytest.raises(KeyboardInterrupt):
            choose(folder, out, keep="best", floor=1.0)
    (after,) = (out / "_shuffle").glob("*.arrow")
    assert after.name != before.name


def test_a_corpus_that_was_scored_on_is_chosen_from_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes of what was done belong to the parts that were there."""
    monkeypatch.setattr(export_job, "workers", _here)
    monkeypatch.setattr(export_job, "_BYTES", 1)
    folder, out = drawn(tmp_path / "in", *SIX), tmp_path / "out"
    away = tmp_path / _parts(folder)[0].name
    shutil.move(_parts(folder)[0], away)
    with monkeypatch.context() as patch:
        patch.setattr(output_folder, "finish", _dies_after(0))
        with pytest.raises(KeyboardInterrupt):
            choose(folder, out, keep="best", per="row", partial=True)
    assert os.listdir(out / "done") == ["00000.json"]
    shutil.move(away, Path(folder, "parts", away.name))
    assert choose(folder, out, keep="best", per="row", partial=True).rows == 3
    assert texts(out) == ["0.1", "1.2", "3.0"]


# --- the command line ------------------------------------------------------------------------------------------------


def run(*words: object) -> str:
    done = CliRunner().invoke(cli, [*map(str, words)])
    assert done.exit_code == 0, done.output or done.exception
    return done.stdout


def test_the_commands_tell_what_the_documents_say(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX, outputs=("reward", "a"))
    out = tmp_path / "out"
    asked = {
        "choose": (("--keep", "softmax", "-k", "2", "--set", "softmax_temperature=0.5", "--per", "row"), "choose"),
        "pairs": (("--pairs", "all", "--for", "trl-reward", "--min-margin", "1"), "pairs"),
        "export": (("--for", "kto", "--threshold", "2"), "export"),
    }
    for command, (words, kind) in asked.items():
        found = json.loads(run(command, folder, out / command, *words, "--json"))
        assert found == document(out / command, kind)["summary"]
        assert found["rows"] == len(rows_in(out / command)) > 0
        assert found["candidates"] == 6
        shown = run(command, folder, out / command, *words, "--overwrite")
        assert f"{found['rows']} " in shown
        assert "of 6 scored responses in" in shown
        assert "3 without a reward" in shown


def test_pairs_that_are_two_lines_each_are_counted_as_rows(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", [0.0, 1.0], [0.0, 3.0])
    shown = run("pairs", folder, tmp_path / "out", "--for", "nemo-aligner-rm")
    assert "4 rows of 4 scored responses in 2 groups" in shown
    assert len(rows_in(tmp_path / "out")) == 4


@pytest.mark.parametrize(
    ("trainer", "counted"),
    [
        ("sft", "2 rows of 3 scored responses in 2 groups"),
        ("sft-turns", "3 rows of 3 scored responses in 2 groups"),
    ],
)
def test_export_says_what_it_counts(trainer: str, counted: str, tmp_path: Path) -> None:
    turns = [{"role": role, "content": str(at)} for at, role in enumerate(["user", "assistant", "user", "assistant"])]
    rows: list[dict[str, Any]] = [{"messages": turns}, {"messages": [{"role": "user", "content": "x"}, turns[1]]}]
    folder = judged_corpus(tmp_path / "in", rows, [[1.0, 2.0], [3.0]], RowShape("messages", "all"))
    assert run("export", folder, tmp_path / "out", "--for", trainer).splitlines()[0] == counted


def test_a_recipe_runs_them_one_after_the_other(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    recipe = {
        "choose": {"scored": folder, "output": str(tmp_path / "best"), "keep": "best"},
        "pairs": {"scored": folder, "output": str(tmp_path / "pairs"), "pairs": "consecutive"},
        "export": {"scored": folder, "output": str(tmp_path / "kto"), "trainer": "kto", "threshold": 2.0},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    told = [json.loads(line) for line in run("run", tmp_path / "recipe.yaml", "--json").splitlines()]
    assert [one["rows"] for one in told] == [3, 3, 6]
    folders = {"choose": "best", "pairs": "pairs", "export": "kto"}
    assert told == [document(tmp_path / name, kind)["summary"] for kind, name in folders.items()]
    assert sorted(texts(tmp_path / "best")) == ["0.1", "1.2", "3.0"]


def test_a_recipe_goes_on_past_what_is_finished_and_refuses_what_isnt_the_same(tmp_path: Path) -> None:
    folder, out = drawn(tmp_path / "in", *SIX), tmp_path / "out"
    recipe: dict[str, Any] = {
        "filter": {"scored": folder, "output": str(out / "good"), "keep": "reward > 1"},
        "choose": {"scored": folder, "output": str(out / "best"), "keep": "best"},
        "pairs": {"scored": folder, "output": str(out / "pairs"), "pairs": "consecutive", "trainer": "trl"},
    }

    def told() -> list[str]:
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        done = CliRunner().invoke(cli, ["run", str(tmp_path / "recipe.yaml"), "--json"])
        assert done.exit_code == 0, done.exception or done.output
        return done.output.splitlines()

    first = told()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = told()
    assert [line for line in again if line.startswith("{")] == first
    assert [line for line in again if not line.startswith("{")] == [
        f"{name}: nothing to do, {out / place} holds it"
        for name, place in (("filter", "good"), ("choose", "best"), ("pairs", "pairs"))
    ]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    shutil.rmtree(out / "pairs")
    assert [line for line in told() if line.startswith("{")] == first
    recipe["choose"]["keep"] = "majority"
    recipe["choose"]["voters"] = ["reward"]
    with pytest.raises(AssertionError, match="`overwrite` replaces it"):
        told()
    recipe["choose"] = {"scored": folder, "output": str(out / "best"), "keep": "best"}
    next((out / "best").glob("*.jsonl")).unlink()
    with pytest.raises(AssertionError, match="`overwrite` replaces it"):
        told()


# --- a corpus as scoring writes it -----------------------------------------------------------------------------------

SCORED: list[dict[str, Any]] = [
    {"prompt": f"q{at % 4}", "chosen": f"good {at}", "rejected": f"bad {at}" if at != 3 else ""} for at in range(10)
]


@pytest.fixture(scope="session")
def as_scored(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The same rows as JSONL and as Parquet; one response is empty."""
    place = tmp_path_factory.mktemp("scored")
    write(place / "c.jsonl", lines(SCORED))
    pq.write_table(pa.Table.from_pylist(SCORED), place / "c.parquet")
    kinds = ("jsonl", "parquet")
    return {kind: scored_corpus(settings(place / f"c.{kind}", place / kind, part_rows=3)) for kind in kinds}


@KIND
def test_of_a_corpus_as_it_is_scored_the_best_of_each_prompt(
    as_scored: Mapping[str, str], parquet: bool, tmp_path: Path
) -> None:
    folder = as_scored["parquet" if parquet else "jsonl"]
    own = [(row["prompt"], row[side]) for row in SCORED for side in ("chosen", "rejected")]
    best: dict[str, tuple[float, str]] = {}
    for (prompt, text), row in zip(own, scored(Path(folder)), strict=True):
        if row["reward"] is not None:
            best[prompt] = max(best.get(prompt, (row["reward"], text)), (row["reward"], text))
    summary = choose(folder, tmp_path / "out", keep="best")
    assert (summary.groups, summary.candidates, summary.unscored, summary.rows) == (4, 19, 1, 4)
    found = rows_in(tmp_path / "out")
    assert {row["messages"][0]["content"]: (row["reward"], row["messages"][1]["content"]) for row in found} == best
    assert sorted(row["of"] for row in found) == [3, 4, 6, 6]


@pytest.mark.parametrize("trainer", [*PAIR_FORMATS, *RESPONSE_FORMATS])
def test_of_a_corpus_as_it_is_scored_every_export(as_scored: Mapping[str, str], trainer: str, tmp_path: Path) -> None:
    def made_of(folder: str, output: Path) -> ExportSummary:
        if trainer in PAIR_FORMATS:
            return pair(folder, output, trainer=trainer)
        return export(folder, output, trainer, threshold=0.0 if RESPONSE_FORMATS[trainer].needs_threshold else None)

    found = [made_of(folder, tmp_path / kind) for kind, folder in as_scored.items()]
    assert found[0] == found[1]
    assert (found[0].candidates, found[0].unscored) == (19, 1)
    assert found[0].rows == len(rows_in(tmp_path / "jsonl")) > 0
    assert files_in(tmp_path / "jsonl") == files_in(tmp_path / "parquet")


# --- made-up numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made_of", [pair, lambda folder, out, **asked: export(folder, out, "sft", **asked)])
def test_made_up_numbers_are_for_no_trainer_unless_that_is_said(
    as_scored: Mapping[str, str], tmp_path: Path, made_of: Callable[..., ExportSummary]
) -> None:
    with pytest.raises(
        SettingsError, match=r"are made up, by --engine fake, and `(pairs|export)` writes for trainers.*--fake-ok"
    ):
        made_of(as_scored["jsonl"], tmp_path / "out", fake_ok=False)
    assert not (tmp_path / "out").exists()
    assert made_of(as_scored["jsonl"], tmp_path / "out").made_up


def test_everything_that_is_made_of_them_says_so(as_scored: Mapping[str, str], tmp_path: Path) -> None:
    folder = as_scored["jsonl"]
    commands = {
        "status": ("status", folder),
        "filter": ("filter", folder, "--keep", "reward > -99"),
        "choose": ("choose", folder, tmp_path / "best", "--keep", "best"),
        "pairs": ("pairs", folder, tmp_path / "pairs", "--set", "fake_ok=true"),
        "export": ("export", folder, tmp_path / "sft", "--for", "sft", "--set", "fake_ok=true"),
    }
    for name, words in commands.items():
        again = ("--overwrite",) if name in ("choose", "pairs", "export") else ()
        assert "These numbers are made up" in run(*words), name
        assert json.loads(run(*words, *again, "--json"))["made_up"] is True, name


def test_an_ensemble_with_made_up_numbers_in_it_is_made_up(as_scored: Mapping[str, str]) -> None:
    manifest = read_manifest(as_scored["jsonl"])
    assert manifest is not None
    real = {**manifest.identity, "engine": "vllm"}
    of = {"a": {"identity": real}, "b": {"identity": manifest.identity}}
    assert is_fake(replace(manifest, identity={"members": of}))
    assert not is_fake(replace(manifest, identity={**real, "members": {"a": of["a"]}}))


def test_real_numbers_need_nothing_and_are_told_as_before(tmp_path: Path) -> None:
    summary = pair(drawn(tmp_path / "in", *SIX), tmp_path / "pairs", fake_ok=False)
    assert "made_up" not in summary.as_json()


# --- labels ----------------------------------------------------------------------------------------------------------


def test_pairs_against_the_labels_are_counted_and_left_out_where_that_is_asked(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{at}", "chosen": f"good {at}", "rejected": f"bad {at}"} for at in range(20)]
    folder = scored_corpus(settings(write(tmp_path / "c.jsonl", lines(rows)), tmp_path / "in"))
    rewards = {
        row["row"]: {one["response_name"]: one["reward"] for one in scored(Path(folder)) if one["row"] == row["row"]}
        for row in scored(Path(folder))
    }
    agree = sum(own["chosen"] > own["rejected"] for own in rewards.values())
    assert 0 < agree < 20
    manifest = read_manifest(folder)
    assert manifest is not None
    listing = Parts(folder).listing()
    summary = summarise(Parts(folder), manifest.columns, sum((part.counts for part in listing), Counts()))
    assert [summary.labels[name] for name in ("pairs", "agree", "disagree")] == [20, agree, 20 - agree]
    made_of = {labels: pair(folder, tmp_path / labels, labels=labels) for labels in ("ignore", "agree", "require")}
    assert [one.rows for one in made_of.values()] == [20, agree, agree]
    assert all(one.labels == {"agree": agree, "disagree": 20 - agree} for one in made_of.values())
    assert made_of["require"].left == {"against the label": 20 - agree}
    margins = [row["label_margin"] for row in rows_in(tmp_path / "ignore")]
    assert sorted(margins) == pytest.approx(sorted(own["chosen"] - own["rejected"] for own in rewards.values()))
    shown = run("pairs", folder, tmp_path / "shown", "--set", "fake_ok=true")
    assert f"Labels: {agree} pairs are as the corpus' own chosen and rejected, {20 - agree} are the other way round" in shown


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
    listing = Parts(folder).listing()
    summary = summarise(Parts(folder), manifest.columns, sum((part.counts for part in listing), Counts()))
    assert [summary.labels[name] for name in ("pairs", "agree", "disagree", "equal")] == [3, 0, 1, 2]


def test_what_has_no_label_agrees_with_none(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "in", *SIX)
    found = pair(folder, tmp_path / "out")
    assert (found.rows, "labels" in found.as_json()) == (2, False)
    required = pair(folder, tmp_path / "required", labels="require")
    assert (required.rows, required.left["without a label"]) == (0, 2)


def test_a_row_is_parsed_once_and_only_if_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four rows to one prompt, each with two responses, the best response is in the third."""
    rows = [{"q": "p", "a": [f"good {at}", f"bad {at}"]} for at in range(4)]
    shape = RowShape("columns", own_columns=OwnColumns("q", "a"))
    rewards = [[float(at == 2), float(at == 2) - 1] for at in range(4)]
    folder = judged_corpus(tmp_path / "in", rows, rewards, shape)
    parsed = list[Any]()
    parse_row = Reader._values

    def parse_noted(reader: Reader, stored: Any, **how: bool) -> Any:
        parsed.append(stored.row)
        return parse_row(reader, stored, **how)

    monkeypatch.setattr(Reader, "_values", parse_noted)
    assert choose(folder, tmp_path / "best", keep="best").rows == 1
    assert parsed == ["c:2"]
    parsed.clear()
    assert choose(folder, tmp_path / "all", keep="top-k", k=8).rows == 8
    assert sorted(parsed) == [f"c:{at}" for at in range(4)]
