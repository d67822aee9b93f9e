"""Feedback and Edit on the fake engine: the whole tree comes back, each text judged as the answer that it is."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from actors.errors import OutputError, SettingsError
from pipelines.run.sampling.refine_prompts import RefineSummary, refine
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.options import build
from pipelines.settings.refine_settings import RefineSettings
from tests.pipelines.run.sampling.test_sample_prompts import prompts
from tests.pipelines.run.scoring.test_score_corpus import files_of
from tests.support.corpora import lines, scored, settings, write

pytestmark = pytest.mark.usefixtures("local_ray")

WRITERS = {"policy": "tiny-genrm", "feedback": "tiny-genrm-json", "edit": "tiny-genrm"}
EDITS = [f".edit[{number}]" for number in range(3)]
NAMES = [f"draft[{index}]{suffix}" for index in range(2) for suffix in ("", *EDITS)]


def refined(corpus: Path, output: Path, **options: Any) -> RefineSummary:
    flat = {"model": "tiny-attributes", "engine": "fake", "policy_max_tokens": 64, "drafts": 2, "feedbacks": 3}
    files = {"inputs": (str(corpus),), "output": str(output)}
    return refine(build(RefineSettings, {**files, **flat, **WRITERS, **options}))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("corpus") / "prompts.jsonl", lines(prompts(20)) + b"broken\n")


@pytest.fixture(scope="module")
def calm(corpus: Path, local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("calm") / "out"
    refine_summary = refined(corpus, output, part_rows=4)
    assert (refine_summary.prompts, refine_summary.drafts, refine_summary.edits) == (20, 40, 120)
    assert (refine_summary.scored.scored, refine_summary.scored.rejected) == (160, 1)
    assert refine_summary.mean_best is not None
    assert refine_summary.mean_best_draft is not None
    assert refine_summary.mean_best > refine_summary.mean_best_draft > (refine_summary.mean_draft or 0)
    return output


def outcome(output: Path) -> list[tuple[Any, ...]]:
    names = ("row", "response_name", "parent", "feedback", "candidate", "reward", "status", "reason")
    return [tuple(row[name] for name in names) for row in scored(output)]


def test_the_whole_tree_comes_back(calm: Path) -> None:
    rows = scored(calm)
    for first in range(0, 160, 8):
        item = rows[first : first + 8]
        assert sorted(row["response_name"] for row in item) == sorted(NAMES)
        texts = {row["response_name"]: row["candidate"] for row in item}
        assert len(set(texts.values())) > 4
        for row in item:
            parent = row["response_name"].rpartition(".edit[")[0] or None
            assert row["parent"] == parent
            assert (row["feedback"] is None) == (parent is None)
        assert len({row["feedback"] for row in item if row["parent"] == "draft[0]"}) == 3
    assert (rows[-1]["response_name"], rows[-1]["reason"]) == ("candidate", "broken_json")


def test_drafts_and_edits_are_judged_as_answers(calm: Path, tmp_path: Path) -> None:
    rows = scored(calm)[:-1][:40]
    answered = [
        {"messages": [*json.loads(row["record"])["messages"], {"role": "assistant", "content": row["candidate"]}]}
        for row in rows
    ]
    score(settings(write(tmp_path / "answered.jsonl", lines(answered)), tmp_path / "scored"))
    assert [row["reward"] for row in scored(tmp_path / "scored")] == [row["reward"] for row in rows]


def test_a_run_goes_on_and_ends_as_a_calm_one(corpus: Path, calm: Path, tmp_path: Path) -> None:
    shutil.copytree(calm, tmp_path / "out")
    for path in sorted((tmp_path / "out" / "parts").iterdir())[::2]:
        path.unlink()
    kept = files_of(tmp_path / "out")
    refined(corpus, tmp_path / "out", part_rows=3, policy_engine_args={"die_after": 100})
    after = files_of(tmp_path / "out")
    assert {name: after[name] for name in kept} == kept
    assert outcome(tmp_path / "out") == outcome(calm)


def test_a_draft_that_was_cut_off_gets_no_feedback(corpus: Path, tmp_path: Path) -> None:
    refine_summary = refined(corpus, tmp_path / "out", limit=6, policy_max_tokens=5, feedback=None, edit=None)
    rows = scored(tmp_path / "out")
    good = [row for row in rows if row["parent"] is None and row["reason"] is None]
    assert 0 < len(good) < refine_summary.drafts == 12
    assert refine_summary.edits == 3 * len(good)
    unfed = [row for row in rows if row["parent"] and row["candidate"] is None]
    assert all((row["status"], row["reason"]) == ("failed", "unfinished") for row in unfed)


@pytest.mark.long
def test_prompts_of_ones_own_are_part_of_what_a_run_is(corpus: Path, calm: Path, tmp_path: Path) -> None:
    prompt = write(tmp_path / "feedback.jinja", b"{{ turns[-1].content }} -> {{ response }}: what do you say?")
    with pytest.raises(OutputError, match="feedback_prompt"):
        refined(corpus, calm, feedback_prompt=str(prompt))
    refine_summary = refined(corpus, tmp_path / "out", feedback_prompt=str(prompt), limit=3)
    assert refine_summary.edits == 18
    shared = {row["feedback"] for row in scored(tmp_path / "out")} & {row["feedback"] for row in scored(calm)}
    assert shared == {None}


def test_a_prompt_that_wont_do_is_told(corpus: Path, tmp_path: Path) -> None:
    for text, message in ((b"{{ answer }}", "answer"), (b"{{ response", "unexpected")):
        file = write(tmp_path / "edit.jinja", text)
        with pytest.raises(SettingsError, match=message):
            refined(corpus, tmp_path / "out", edit_prompt=str(file))
    with pytest.raises(
        SettingsError, match=r"refining.feedback_prompt takes a file with the prompt, and 'What is .*No such file"
    ):
        refined(corpus, tmp_path / "out", feedback_prompt="What is wrong with {{ response }}?")
