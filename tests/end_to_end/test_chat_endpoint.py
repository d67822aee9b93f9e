"""A judge behind vLLM's own server: the verdicts are those of the same judge on an engine of ours."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from actors.checkpoint.checkpoint_files import locate
from actors.records import Message, Response, Role, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.scorers.choose_scorer import scorer_of
from actors.settings.replica import RenderSettings
from pipelines.run.runtime.progress import Progress
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from pipelines.workflows.benchmarking.score_benchmarks import score_and_evaluate
from tests.support.corpora import lines, scored, write
from tests.support.endpoints import answers, free_port, wait
from tests.support.models import built_in_engine, reward_model
from tests.support.processes import family

JUDGE = "tiny-rm-r1"


@contextmanager
def vllm_server(log: Path) -> Iterator[str]:
    """vLLM's OpenAI server with the judge, once it answers; its address."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", locate(JUDGE)]
    command += ["--served-model-name", JUDGE, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    with log.open("wb") as output:
        environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait(lambda: answers(f"http://127.0.0.1:{port}/health") or process.poll() is not None)
        assert process.poll() is None, log.read_text()[-3000:]
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        members = family(psutil.Process(process.pid)) if process.poll() is None else []
        process.terminate()
        process.wait(60)
        psutil.wait_procs(members, 60)


def rows() -> list[dict[str, Any]]:
    return [{"prompt": f"What is {index} + 4?", "chosen": f"{index + 4}", "rejected": f"{index + 6}"} for index in range(12)]


def local_rewards() -> list[float | None]:
    """The rewards of both responses of each row, on an engine of this process."""
    model = reward_model(JUDGE)
    requests = [
        ScoreRequest((Message(Role.USER, row["prompt"]),), (Response("c", row["chosen"]), Response("r", row["rejected"])))
        for row in rows()
    ]
    with built_in_engine(JUDGE) as engine:
        blocks = scorer_of(model, engine).score_block(Renderer(model, RenderSettings()).render(requests))
    return [score.reward for scores in blocks for score in scores]


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_the_verdicts_are_those_of_an_engine_of_ours(tmp_path: Path) -> None:
    corpus = write(tmp_path / "pairs.jsonl", lines(rows()))
    with vllm_server(tmp_path / "log") as address:
        flat = {"scored": f"pairs={corpus}", "endpoint": address, "model": JUDGE, "family": "rm-r1"}
        (evaluation,) = score_and_evaluate(build(EvaluateSettings, {**flat, "output": str(tmp_path / "out")}), Progress())
    rewards = [row["reward"] for row in scored(tmp_path / "out" / "scored" / "pairs" / JUDGE)]
    assert rewards == local_rewards()
    assert evaluation.coverage > 0.5
    assert evaluation.identity["listed"]["root"] == locate(JUDGE)
