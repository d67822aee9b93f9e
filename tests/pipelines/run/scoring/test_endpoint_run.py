"""Models behind an address as any other scorer of a run: parts, resume, retry, price, plan, and what is known of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.errors import EndpointError, OutputError, RunStopped, SettingsError
from actors.records import Reasoning
from actors.settings.replica import RenderSettings
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.settings.options import build
from pipelines.settings.rescore_settings import RetrySettings, VerifySettings
from pipelines.settings.run_settings import EnsembleSettings
from pipelines.workflows.ensembles.score_ensemble import ensemble
from pipelines.workflows.estimate.forecast import corpus_plan
from pipelines.workflows.rescoring.retry_rows import retry
from pipelines.workflows.rescoring.verify_folder import verify
from tests.support.chat_endpoints import RUBRIC, BatchApi, Judge, grade
from tests.support.corpora import chat, lines, scored, settings, write
from tests.support.endpoints import application, listening, scorer

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("local_ray")]
MODEL = "tiny-attributes"


def corpus_of(folder: Path, count: int) -> Path:
    return write(folder / "in.jsonl", lines([chat("?", f"answer {number}") for number in range(count)]))


def options(address: str, **more: Any) -> dict[str, Any]:
    return {"model": "judge", "engine": "none", "endpoint": f"{address}/v1", "rubric": RUBRIC, **more}


def rewards(folder: Path) -> list[float | None]:
    return [row["reward"] for row in scored(folder)]


def grades(count: int) -> list[float]:
    return [float(grade(f"answer {number}")) for number in range(count)]


def test_a_judge_behind_an_address_is_a_scorer_like_any_other(tmp_path: Path) -> None:
    judge = Judge(lambda text, times: 400 if text == "answer 3" else None)
    corpus, output = corpus_of(tmp_path, 40), tmp_path / "out"
    prices = {"input_price": 2.0, "output_price": 8.0}
    with listening(judge.app) as address:
        summary = score(settings(corpus, output, **options(address, **prices)))
        expected = [None if number == 3 else reward for number, reward in enumerate(grades(40))]
        assert rewards(output) == expected
        assert summary.reasons == {"endpoint_refused": 1}
        assert any(example.detail.startswith("answers 400: ") for example in summary.examples)
        request_count = 39 + 1  # and the probes, one of them before the last try of what was refused
        assert summary.endpoint["requests"] >= request_count + 2
        assert summary.endpoint["fingerprints"] == ["fp_1"]
        assert summary.endpoint["cost"] == pytest.approx(sum(judge.answered.values()) * (7 * 2 + 3 * 8) / 1e6)
        manifest = json.loads((output / "manifest.json").read_text())
        identity = manifest["identity"]
        assert (identity["pinned"], identity["served_at"], identity["model"]) == (False, f"{address}/v1", "judge")
        assert (identity["weights"], identity["judge"]["rubric"]["pattern"]) == (None, RUBRIC["pattern"])
        judge._fault = lambda text, times: None
        assert retry(build(RetrySettings, {"scored": str(output)})).now == {"scored": 1, "rejected": 0, "failed": 0}
        assert rewards(output) == grades(40)
        with pytest.raises(OutputError, match="judge: "):
            score(settings(corpus, output, **options(address, votes=3)))


def test_a_run_stops_before_it_costs_more_and_goes_on_with_a_higher_bound(tmp_path: Path) -> None:
    judge, corpus, output = Judge(), corpus_of(tmp_path, 120), tmp_path / "out"
    prices = {"input_price": 1e6, "output_price": 1e6, "max_tokens": 5, "part_rows": 4}
    with listening(judge.app) as address:
        with pytest.raises(RunStopped, match="--max-cost 700 is nearly reached"):
            score(settings(corpus, output, **options(address, **prices, max_cost=700.0)))
        paid = sum(judge.answered.values())
        assert 10 * paid <= 700
        committed = len(scored(output))
        assert committed >= paid - 2 * 4, (
            "parts that can be paid are committed, of what was asked for a part or two are lost"
        )
        with pytest.raises(RunStopped, match="--max-cost 700"):
            score(settings(corpus, output, **options(address, **prices, max_cost=700.0)))
        assert 10 * sum(judge.answered.values()) <= 700, "over all sessions"
        summary = score(settings(corpus, output, **options(address, **prices, max_cost=10_000.0)))
    assert rewards(output) == grades(120)
    assert summary.endpoint["cost"] == 10 * sum(judge.answered.values())


def test_rewards_of_another_endpoint_of_ours_are_those_of_a_run_here(tmp_path: Path) -> None:
    corpus, local, remote = corpus_of(tmp_path, 60), tmp_path / "local", tmp_path / "remote"
    score(settings(corpus, local, model=MODEL))
    with listening(application([scorer(MODEL)])) as address:
        score(settings(corpus, remote, model=MODEL, engine="none", endpoint=f"{address}/v1"))
    names = ("row", "response_name", "prompt_hash", "reward", "scores", "status", "prompt_tokens", "response_text")
    assert [[row[name] for name in names] for row in scored(remote)] == [
        [row[name] for name in names] for row in scored(local)
    ]


def test_a_run_ends_when_another_model_answers_under_the_same_name(tmp_path: Path) -> None:
    """As while `assay serve` is replaced by one with other settings, of which HAProxy asks both."""
    how = RenderSettings(reasoning=Reasoning.STRIP)
    before, after = application([scorer(MODEL)]), application([scorer(MODEL, reasoning=Reasoning.STRIP)], render=how)
    paths: list[str] = []

    async def replaced(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await (after if paths.count("/v1/rewards") > 80 else before)(scope, receive, send)

    corpus, output = corpus_of(tmp_path, 200), tmp_path / "out"
    with listening(replaced) as address:
        run = settings(corpus, output, model=MODEL, engine="none", endpoint=f"{address}/v1", part_rows=8)
        with pytest.raises(EndpointError, match="answers with another model than the one that this run began with"):
            score(run)
        assert 0 < len(scored(output)) <= 80
        with pytest.raises(OutputError, match="reasoning"):
            score(run)


def test_a_batch_run_sends_all_prompts_together(tmp_path: Path) -> None:
    api, corpus, output = BatchApi(), corpus_of(tmp_path, 300), tmp_path / "out"
    with listening(api.app) as address:
        score(settings(corpus, output, **options(address, batch=True, batch_poll_s=2.0)))
    assert rewards(output) == grades(300)
    assert set(api.sent.values()) == {1}
    assert len(api.batches) <= 2


def test_a_sample_of_a_batch_run_is_asked_for_again_and_changes_nothing_in_the_folder(tmp_path: Path) -> None:
    api, corpus, output = BatchApi(), corpus_of(tmp_path, 20), tmp_path / "out"
    with listening(api.app) as address:
        score(settings(corpus, output, **options(address, batch=True, batch_poll_s=0.2)))
        notes = {file.name: file.read_bytes() for file in (output / "endpoint").iterdir()}
        sample = verify(build(VerifySettings, {"scored": str(output), "sample": 5})).sample
    assert sample is not None
    assert (sample.compared, sample.difference) == (5, 0.0)
    assert sorted(api.sent.values()) == [1] * 15 + [2] * 5
    assert {file.name: file.read_bytes() for file in (output / "endpoint").iterdir()} == notes


def test_members_of_an_ensemble_may_be_anywhere(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, 10)
    with listening(Judge().app) as address:
        remote = {"model": "judge", "endpoint": f"{address}/v1", "family": "rubric", "judge": {"rubric": RUBRIC}}
        flat = {"inputs": str(corpus), "output": str(tmp_path / "out"), "models": [{"model": MODEL}, remote]}
        ensemble(build(EnsembleSettings, {**flat, "engine": "fake", "combine": "mean"}))
    assert rewards(tmp_path / "out" / "models" / "judge") == grades(10)


def test_a_plan_is_a_price(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, 40)
    with listening(Judge().app) as address:
        flat = {name: value for name, value in options(address).items() if name != "engine"}
        prices = {"input_price": 1e6, "output_price": 1e6, "answer_tokens": 3, "full": True}
        plan = corpus_plan(build(PlanSettings, {"inputs": str(corpus), **flat, **prices}))
    assert plan.bill.cost is not None
    assert plan.bill.written is not None
    assert plan.bill.written.value == 40 * 3
    assert plan.bill.cost.value == pytest.approx(plan.totals["read_tokens"].value + 40 * 3)
    assert plan.bill.gpu_hours is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_cost": 1.0}, "--max-cost needs endpoint.input_price"),
        ({"tensor_parallel": 2}, "leave out settings of engines: tensor_parallel"),
        ({"replicas": 2}, "is asked by one process"),
        ({"second_bos": True}, "leave out settings of prompts: second_bos"),
        ({"dtype": "float16"}, "dtype: of a model that runs here"),
        ({"endpoint": None, "requests_per_minute": 3.0}, "endpoint.requests_per_minute goes with --endpoint"),
    ],
)
def test_what_says_nothing_to_an_endpoint_is_refused(tmp_path: Path, wrong: dict[str, Any], words: str) -> None:
    corpus = corpus_of(tmp_path, 3)
    with pytest.raises(SettingsError, match=words):
        score(settings(corpus, tmp_path / "out", **{**options("http://127.0.0.1:9"), **wrong}))
