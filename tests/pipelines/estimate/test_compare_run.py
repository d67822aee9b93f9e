"""Plan against fact: a run says how it compares with its plan, and refuses one of another run."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.errors import SettingsError
from pipelines.estimate.compare_run import compare_with_estimate
from pipelines.estimate.forecast import corpus_plan
from pipelines.run_folder.manifest import read_manifest
from pipelines.runtime.run_timing import RunWork
from pipelines.scored_corpus.summary import Summary
from pipelines.scoring.score_corpus import score
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.settings.options import build
from tests.support.commands import summary
from tests.support.corpora import chat, lines, rows, settings, write
from tests.support.local_ray import run_here

pytestmark = pytest.mark.usefixtures("local_ray")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "in" / "c.jsonl", lines([*rows(300), chat("long " * 3000, "x"), {"messages": []}]))


def planned(corpus: Path, **options: Any) -> Path:
    plan = corpus_plan(build(PlanSettings, {"inputs": (str(corpus),), "model": "tiny-attributes", **options}))
    path = corpus.parent.parent / "plan.json"
    plan.write(str(path))
    return path


def test_the_manifest_compares_plan_and_fact(tmp_path: Path, corpus: Path) -> None:
    path = planned(corpus, full=True, tokens_per_s=1e-3, gpu_price=2.0)
    found = score(settings(corpus, tmp_path / "out", plan=str(path)))
    manifest = read_manifest(str(tmp_path / "out"))
    assert manifest is not None
    assert manifest.summary is not None
    plan = manifest.summary["plan"]
    assert plan == found.plan
    exact = {"tokens": found.prompt_tokens, "rows": 302, "responses": 302, "rejected": 2, "truncated": 0}
    for name, fact in exact.items():
        assert plan[name] == {"planned": fact, "low": fact, "high": fact, "fact": fact, "within": True}
    time, work = plan["work_s"], manifest.summary["work"]
    assert time["planned"] == pytest.approx(found.prompt_tokens * 1000)
    assert (time["fact"], time["within"]) == (work["seconds"] - work["starting"], False)
    assert 0 < time["fact"] < work["seconds"] < 600
    for name in ("gpu_hours", "cost"):
        assert (plan[name]["fact"], plan[name]["within"], plan[name]["why"]) == (None, None, "it ran without GPUs")


def test_a_run_that_was_there_already_keeps_its_time(tmp_path: Path, corpus: Path) -> None:
    first = score(settings(corpus, tmp_path / "out"))
    assert first.plan == {}
    again = score(settings(corpus, tmp_path / "out", plan=str(planned(corpus))))
    assert again.work == first.work
    assert again.plan["tokens"]["fact"] == first.prompt_tokens


def test_a_run_that_goes_on_has_the_time_of_all_its_sessions_or_none(tmp_path: Path, corpus: Path) -> None:
    path = planned(corpus, tokens_per_s=50)
    first = score(settings(corpus, tmp_path / "out", part_rows=64))
    parts = sorted((tmp_path / "out" / "parts").iterdir())
    parts[0].unlink()
    second = score(settings(corpus, tmp_path / "out", part_rows=64, plan=str(path)))
    assert second.work["seconds"] > first.work["seconds"]
    session, *_ = sorted((tmp_path / "out" / "sessions").iterdir())
    session.unlink()  # as if it had been killed
    third = score(settings(corpus, tmp_path / "out", plan=str(path)))
    assert third.plan["work_s"]["fact"] is None
    assert third.plan["work_s"]["within"] is None
    assert "a session was killed" in third.plan["work_s"]["why"]
    assert third.plan["tokens"]["within"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"turns": "all"}, "turns: 'final' there, 'all' now"),
        ({"model": "tiny-scalar"}, "family: 'attributes' there, "),
        ({"max_model_len": 100}, "max_model_len: "),
        ({"limit": 5}, "limit: None there, 5 now"),
        ({"dtype": "bfloat16"}, "dtype: 'float32' there, 'bfloat16' now"),
    ],
)
def test_the_plan_of_another_run_is_refused(tmp_path: Path, corpus: Path, options: dict[str, Any], message: str) -> None:
    path = planned(corpus)
    with pytest.raises(SettingsError, match="is of another run") as refused:
        score(settings(corpus, tmp_path / "out", plan=str(path), **options))
    assert message in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_the_plan_of_another_corpus_is_refused(tmp_path: Path, corpus: Path) -> None:
    path = planned(corpus)
    write(corpus, lines(rows(20)))
    write(corpus.parent / "d.jsonl", lines(rows(5)))
    with pytest.raises(SettingsError) as refused:
        score(settings(corpus.parent, tmp_path / "out", plan=str(path)))
    assert "c.jsonl: in the plan, but missing or changed now" in str(refused.value)
    assert "d.jsonl: new or changed since the plan" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "isn't a plan; `assay plan"), ("[]", "isn't a plan"), ('{"assay_plan": 99}', r"another version of Assay \(99\)")],
)
def test_what_is_no_plan(tmp_path: Path, corpus: Path, text: str, message: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(SettingsError, match=message):
        score(settings(corpus, tmp_path / "out", plan=str(tmp_path / "plan.json")))
    with pytest.raises(SettingsError, match="can't be read"):
        score(settings(corpus, tmp_path / "out", plan=str(tmp_path / "none.json")))


WORK = RunWork(seconds=111.0, starting=100.0, engines=2, gpu_hours=4.0, working_gpu_hours=2.5)


def test_gpus_that_were_used_are_compared_without_the_start_of_their_engines() -> None:
    plan: dict[str, Any] = {
        name: {"value": 10.0, "low": 8.0, "high": 12.0} for name in ("tokens", "rows", "responses", "rejected", "truncated")
    }
    plan |= {"written_tokens": {"value": 5.0, "low": 1.0, "high": 9.0}, "work_s": plan["tokens"], "start_s": 100.0}
    plan |= {"gpu_hours": {"value": 2.0, "low": 1.0, "high": 3.0}, "cost": {"value": 4.0, "low": 2.0, "high": 6.0}}
    summary = Summary(10, 10, 9, 1, 0, 0, 11, {}, {}, completion_tokens=20)
    found = compare_with_estimate({**plan, "gpu_price": 2.0}, summary, WORK)
    assert found["tokens"] == {"planned": 10, "low": 8, "high": 12, "fact": 11, "within": True}
    assert (found["work_s"]["planned"], found["work_s"]["fact"], found["work_s"]["within"]) == (10, 11, True)
    assert (found["gpu_hours"]["fact"], found["gpu_hours"]["within"]) == (2.5, True)
    assert (found["cost"]["fact"], found["cost"]["within"]) == (5, True)
    assert found["written_tokens"]["within"] is False
    unknown = compare_with_estimate(
        {**plan, "work_s": None, "gpu_hours": None, "gpu_price": None}, summary, RunWork(why="nobody knows")
    )
    assert unknown["work_s"]["why"] == unknown["gpu_hours"]["why"] == "not in the plan, which had no throughput"
    assert "cost" not in unknown
    of_cpus = compare_with_estimate({**plan, "cpus": 2, "gpu_hours": None, "gpu_price": None}, summary, WORK)
    assert of_cpus["work_s"]["within"]
    assert "gpu_hours" not in of_cpus


@pytest.mark.long
def test_a_plan_against_a_run_on_a_real_engine(tmp_path: Path, shared_data: Path) -> None:
    """To the token."""
    corpus = shared_data / "judgebench" / "gpt-4o.jsonl"
    same = (corpus, "--model", "tiny-scalar", "--max-model-len", "1200", "--too-long", "trim-turns", "--limit", "120")
    plan = summary("plan", *same, "--full", "--out", tmp_path / "plan.json", run=run_here)
    words = (*same[:1], tmp_path / "out", *same[1:])
    done = run_here("score", *words, "--plan", tmp_path / "plan.json")
    assert done.returncode == 0, done.stderr
    assert "plan and fact" in done.stdout
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    facts = manifest["summary"]
    for name, fact in {"tokens": "prompt_tokens", "rejected": "rejected", "truncated": "truncated", "rows": "rows"}.items():
        assert plan[name]["low"] == plan[name]["high"] == facts[fact] == facts["plan"][name]["fact"]
        assert facts["plan"][name]["within"]
    assert facts["rejected"] > 0
    assert facts["scored"] > 0
    like = summary("plan", *same, "--like", tmp_path / "out", run=run_here)
    assert like["speed"]["source"].startswith(f"measured in {tmp_path / 'out'}")
    assert like["work_s"]["value"] > 0
    other = run_here("score", corpus, tmp_path / "other", "--model", "tiny-scalar", "--plan", tmp_path / "plan.json")
    assert other.returncode == 2
    assert "is of another run" in other.stderr
