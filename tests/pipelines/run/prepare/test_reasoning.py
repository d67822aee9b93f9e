"""A corpus whose responses hold reasoning is stopped, or judged as was chosen, with the count; never silently."""

from pathlib import Path
from typing import Any

import pytest

from actors.errors import SettingsError
from actors.reward_model import resolve_model
from actors.scorers.policy import resolve_policy
from actors.settings.replica import ModelSettings, PolicySettings, RenderSettings
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.sampling import policies
from pipelines.run.scoring.score_corpus import score
from tests.support.corpora import chat, lines, rows, scored, settings, write


def thinking(count: int) -> list[dict[str, Any]]:
    """The same conversations as `rows`, with reasoning: in the text of one, in a field of the next."""
    actual_rows = rows(count)
    for index, row in enumerate(actual_rows):
        last = row["messages"][-1]
        last |= {"reasoning_content": "hm"} if index % 2 else {"content": f"<think>\nhm\n</think>\n\n{last['content']}"}
    return actual_rows


def planned(path: Path, **options: Any) -> resolve_run.ResolvedRun:
    return resolve_run.resolve(settings(path, path.parent / "out", **options))


def test_a_corpus_with_reasoning_is_stopped_with_the_counts_and_the_choice(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([*thinking(3), *rows(2)]))
    with pytest.raises(SettingsError, match=r"3 of the 5 responses .* --set render.reasoning=strip .* keep .* reject"):
        planned(corpus)
    earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>hm</think>b"}]
    row = {"messages": [*earlier, *chat("c", "d")["messages"]]}
    with pytest.raises(SettingsError, match="1 of the 1 responses"):
        planned(write(tmp_path / "turns.jsonl", lines([row])))


def test_a_judge_whose_authors_strip_it_needs_no_choice(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(thinking(3)))
    score_settings = settings(corpus, tmp_path / "out", model="tiny-genrm")
    assert manifest_of(resolve_run.resolve(score_settings), score_settings).identity["reasoning"] == "strip"


@pytest.mark.usefixtures("local_ray")
def test_what_is_stripped_has_the_reward_of_the_answer_and_is_counted(tmp_path: Path) -> None:
    thought = write(tmp_path / "thought.jsonl", lines([*thinking(4), chat("a", "<think>b"), *rows(1)]))
    plain = write(tmp_path / "plain.jsonl", lines([*rows(4), chat("a", "b"), *rows(1)]))
    summary = score(settings(thought, tmp_path / "a", reasoning="strip"))
    score(settings(plain, tmp_path / "b"))
    stripped, wanted = scored(tmp_path / "a"), scored(tmp_path / "b")
    assert [row["reason"] for row in stripped] == [None] * 4 + ["reasoning", None]
    names = ("reward", "scores", "prompt_tokens", "prompt_hash")
    alike = [[[row[name] for name in names] for row in item[:4]] for item in (stripped, wanted)]
    assert alike[0] == alike[1]
    assert [row["reasoned"] for row in stripped] == [True] * 5 + [False]
    assert (summary.flags, summary.reasons) == ({"reasoned": 5}, {"reasoning": 1})
    assert [row["record"] + b"\n" for row in stripped] == thought.read_bytes().splitlines(keepends=True)
    manifest = read_manifest(str(tmp_path / "a"))
    assert manifest is not None
    assert manifest.columns.flags == ("reasoned",)


@pytest.mark.usefixtures("local_ray")
def test_a_row_that_the_sample_didnt_show_is_rejected(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([*rows(75), *thinking(1), *rows(1524)]))  # 50 of each 80 are looked at
    summary = score(settings(corpus, tmp_path / "out"))
    assert (summary.scored, summary.reasons) == (1599, {"reasoning": 1})


def test_a_policy_that_reasons_is_told_by_its_template() -> None:
    judge = resolve_model(ModelSettings(model="tiny-scalar"), RenderSettings())
    policies.check_reasoning(resolve_policy(PolicySettings(policy="tiny-policy")), judge, RenderSettings())
    thinker = resolve_policy(PolicySettings(policy="tiny-rm-r1"))
    with pytest.raises(SettingsError, match=r"its chat template holds <think>.*--set render.reasoning=strip"):
        policies.check_reasoning(thinker, judge, RenderSettings())
    policies.check_reasoning(thinker, judge, RenderSettings(reasoning="strip"))
