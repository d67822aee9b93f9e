"""Verifiers take every road that a model takes, and start no engine of vLLM's."""

import os
from pathlib import Path
from typing import Any

import pytest

from actors.contracts.verifier import READER
from actors.engine.fork_server import SWITCH
from actors.errors import SettingsError
from actors.reward_model import resolve_model
from actors.scorers.online import OnlineScorer
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.run.runtime.progress import Progress
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.estimate_settings import PlanSettings
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import EnsembleSettings
from pipelines.workflows.benchmarking.score_benchmarks import score_and_evaluate
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
    assert (manifest.identity["engine"], manifest.identity["verifier"]) == ("none", {"reader": READER})
    assert SWITCH not in os.environ, "no fork server has begun to import vLLM"
    again = settings(corpus, tmp_path / "again", **{**run_options(), "store": str(tmp_path / "s")})
    score(again)
    assert [row["from_store"] for row in scored(tmp_path / "again")] == [True, True, False, True]


def run_options() -> dict[str, Any]:
    return {"model": "exact-match", "engine": "vllm", "reasoning": "strip"}


def test_a_list_of_a_single_reference_is_that_reference(tmp_path: Path) -> None:
    """As in rows for open-instruct and Gym. Only a list that stands as a text may be the right answer itself."""
    references: list[Any] = [["42"], [42], "[42]", ["42", "43"], [43, 42], ["[1, 2]"]]
    rows = [{**chat("What is 6 * 7?", "42"), "ground_truth": reference} for reference in references]
    corpus = write(tmp_path / "c.jsonl", lines(rows))
    options = {"model": "exact-match", "reference_column": "ground_truth"}
    bad = "bad_reference"
    for any_of, expected in ((False, [1.0, 1.0, 0.0, bad, bad, bad]), (True, [1.0, 1.0, 1.0, 1.0, 1.0, 0.0])):
        run = settings(corpus, tmp_path / str(any_of), engine="vllm", any_of=any_of, **options)
        score(run)
        assert [row["reason"] or row["reward"] for row in scored(tmp_path / str(any_of))] == expected


def test_a_benchmark_is_evaluated_by_a_verifier(tmp_path: Path) -> None:
    rows = [
        {"prompt": "6 * 7?", "chosen": f"So it is {right}.", "rejected": wrong, "truth": {"answer": right}}
        for right, wrong in (("42", "So it is 43."), ("forty-two", "No idea"), ("42", "It is 42 or 43"))
    ]
    corpus = write(tmp_path / "pairs.jsonl", lines(rows))
    flat = {"scored": f"pairs={corpus}", "model": "exact-match", "output": str(tmp_path / "out")}
    options = {"reference_column": "truth.answer", "answer_pattern": r"^So it is (.+)\.$", "unparsed": 0.0}
    (evaluation,) = score_and_evaluate(build(EvaluateSettings, {**flat, **options}), Progress())
    assert [row["reward"] for row in scored(tmp_path / "out" / "scored" / "pairs" / "exact-match")] == [1.0, 0.0] * 3
    assert evaluation.figures[0].value == 1.0
    asked_there = {"endpoint": "http://localhost:1/v1", "output": str(tmp_path / "there")}
    elsewhere = build(EvaluateSettings, {**flat, **options, **asked_there})
    with pytest.raises(SettingsError, match="verifier: of a model that runs here"):
        score_and_evaluate(elsewhere, Progress())


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
        SettingsError, match=r"--engine none is for verifiers \(exact-match, grader, .* tiny-scalar is none of these"
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
