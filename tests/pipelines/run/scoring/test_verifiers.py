"""Verifiers take every road that a model takes, and start no engine of vLLM's."""

import os
from pathlib import Path
from typing import Any

import pytest

from actors.engine.fork_server import SWITCH
from actors.errors import SettingsError
from actors.reward_model import resolve_model
from actors.scorers.online import OnlineScorer
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import EnsembleSettings
from pipelines.workflows.ensembles.score_ensemble import ensemble
from pipelines.workflows.estimate.forecast import corpus_plan
from tests.support.corpora import chat, lines, scored, settings, write
from tests.support.endpoints import application, post

pytestmark = pytest.mark.usefixtures("local_ray")

ROWS = [
    {**chat("What is 3 + 4?", "7"), "reference": "7"},
    {**chat("What is 3 + 5?", "9"), "reference": 8},
    chat("What is 3 + 6?", "9"),
    {**chat("What is 3 + 7?", "<think>10</think>11"), "reference": "11"},
]


def test_a_corpus_with_references_is_scored_without_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    corpus = write(tmp_path / "c.jsonl", lines(ROWS))
    run = settings(
        corpus, tmp_path / "out", model="exact-match", engine="vllm", reasoning="strip", store=str(tmp_path / "s")
    )
    score(run)
    outcomes = [(row["status"], row["reason"], row["reward"], row["scores"]) for row in scored(tmp_path / "out")]
    right, wrong = ("scored", None, 1.0, {"score": 1.0}), ("scored", None, 0.0, {"score": 0.0})
    assert outcomes == [right, wrong, ("rejected", "no_reference", None, None), right]
    manifest = read_manifest(str(tmp_path / "out"))
    assert manifest is not None
    assert (manifest.identity["engine"], manifest.identity["verifier"]) == ("none", {"reader": 2})
    assert SWITCH not in os.environ, "no fork server has begun to import vLLM"
    again = settings(corpus, tmp_path / "again", **{**run_options(), "store": str(tmp_path / "s")})
    score(again)
    assert [row["from_store"] for row in scored(tmp_path / "again")] == [True, True, False, True]


def run_options() -> dict[str, Any]:
    return {"model": "exact-match", "engine": "vllm", "reasoning": "strip"}


def test_verifiers_are_members_of_an_ensemble(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(ROWS[:2]))
    ensemble(
        build(
            EnsembleSettings,
            {
                "inputs": (str(corpus),),
                "output": str(tmp_path / "out"),
                "models": ("exact-match", "text-similarity"),
                "combine": "mean",
            },
        )
    )
    assert [row["reward"] for row in scored(tmp_path / "out")] == [1.0, 0.0]


def test_a_plan_needs_no_gpu(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(ROWS))
    plan = corpus_plan(build(PlanSettings, {"inputs": (str(corpus),), "model": "exact-match", "reasoning": "strip"}))
    bill = plan.as_json()
    assert (bill["gpus"], bill["gpu_hours"]["value"], bill["reasons"]) == (0, 0, {"no_reference": 1})


def test_an_engine_of_none_is_for_verifiers_alone(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"--engine none is for verifiers \(exact-match, grader, .* tiny-scalar has weights"
    ):
        settings(tmp_path, tmp_path / "out", model="tiny-scalar", engine="none")


def test_an_endpoint_answers_by_a_verifier(tmp_path: Path) -> None:
    model = resolve_model(ModelSettings(model="exact-match"), RenderSettings())
    scorer = OnlineScorer(model, RenderSettings(), EngineSettings(engine="none"))
    try:
        app = application([scorer])
        question = [{"role": "user", "content": "What is 3 + 4?"}]
        body = {"conversations": [{"messages": question, "responses": ["7", "8"], "reference": "7"}]}
        (result,) = post(app, "/v1/rewards", body).json()["data"]
        assert [response["reward"] for response in result["responses"]] == [1.0, 0.0]
        pooling = post(
            app, "/pooling", {"model": "exact-match", "messages": [*question, {"role": "assistant", "content": "7"}]}
        )
        assert "exact-match has no reward head; use /v1/rewards" in pooling.text
    finally:
        scorer.close()
