"""Every way of running an engine on a cluster with GPUs: Ray gives it so many, and the numbers stay. Logical GPUs."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import assay
from actors.capacity.sizes import SIZES
from actors.errors import EngineError, SettingsError
from actors.launch import placement
from pipelines.run.runtime.progress import Progress
from pipelines.run.scoring.score_corpus import score
from tests.support.clusters import cluster
from tests.support.commands import summary
from tests.support.corpora import Notes, lines, rows, scored, settings, write
from tests.support.endpoints import wait

MODEL = "tiny-attributes"
ROWS = 200


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("corpus") / "c.jsonl", lines(rows(ROWS)))


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Rewards of one process, on a Ray without GPUs."""
    output = tmp_path_factory.mktemp("alone") / "out"
    summary("score", corpus, output, "--model", MODEL)
    return [row["reward"] for row in scored(output)]


@pytest.fixture(scope="module")
def two_gpus(expected: list[float]) -> Iterator[None]:
    """A node with two logical GPUs."""
    card = {"accelerator_type:H100": 1}  # as Ray notes it where it finds one
    with cluster({"num_cpus": 3, "num_gpus": 2, "resources": card}):
        yield


def gpus_free() -> float:
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return free.get("GPU", 0.0)


@pytest.mark.long
def test_a_dataset_is_scored_on_gpus(corpus: Path, expected: list[float], two_gpus: None) -> None:
    wait(lambda: gpus_free() == 2)
    dataset = assay.score(ray.data.read_json(str(corpus)), model=MODEL, replicas=1)
    rewards = {row["id"]: row["reward"] for row in dataset.take_all()}
    assert [rewards[number] for number in range(ROWS)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
def test_a_policy_and_a_judge_share_the_gpus(two_gpus: None, tmp_path: Path) -> None:
    wait(lambda: gpus_free() == 2)
    prompts = [{"messages": [{"role": "user", "content": f"What is {number} + 4?"}]} for number in range(6)]
    corpus = write(tmp_path / "prompts.jsonl", lines(prompts))
    result = assay.sample(str(corpus), str(tmp_path / "out"), policy="tiny-policy", judge=MODEL, n=2, policy_max_tokens=48)
    assert (result.scored.responses, result.scored.failed) == (12, 0)
    assert result.scored.scored >= 10  # it may draw one that doesn't end


@pytest.mark.long
def test_a_model_that_cant_fit_is_refused_before_anything_starts(
    corpus: Path, two_gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "size_of_model", lambda name: SIZES["nvidia/Llama-3.3-Nemotron-70B-Reward"])
    score_settings = settings(corpus, tmp_path / "out", model=MODEL, engine="vllm")
    arithmetic = (
        r"tiny-attributes can't fit. TP 1: 263.0 weights .* of 71.7 GiB a GPU. This does: TP 2 x PP 3: .* of 71.7 GiB a GPU"
    )
    with pytest.raises(SettingsError, match=arithmetic):
        score(score_settings)
    assert gpus_free() == 2


@pytest.mark.long
def test_gpus_that_others_have_are_waited_for_up_to_a_limit(
    corpus: Path, expected: list[float], two_gpus: None, tmp_path: Path
) -> None:
    wait(lambda: gpus_free() == 2)
    other: Any = ray.remote(num_gpus=1, num_cpus=0)(Progress)
    holding = other.remote()
    ray.get(holding.planned.remote(""))
    two = {"tensor_parallel": 2, "replicas": 1, "placement_timeout_s": 2.0}
    score_settings = settings(corpus, tmp_path / "out", model=MODEL, engine="vllm", **two)
    notes = Notes()
    with pytest.raises(EngineError, match="TP 2 waited 2 s for 2 GPUs of one node; free are 1 node with 1"):
        score(score_settings, notes)
    assert notes.all == ["waiting up to 2 s for 2 GPUs of one node; free are 1 node with 1"]

    class Leaves(Progress):
        """What has the GPU goes as soon as somebody waits for it."""

        def noted(self, text: str) -> None:
            ray.kill(holding)

    longer = score_settings.model_copy(
        update={"engine": score_settings.engine.model_copy(update={"placement_timeout_s": 60.0})}
    )
    start = time.monotonic()
    result = score(longer, Leaves())
    assert result.scored == ROWS
    assert time.monotonic() - start - result.work["seconds"] > placement._QUIET_S, "waiting is no work"
    assert result.work["gpu_hours"] == pytest.approx(result.work["seconds"] * 2 / 3600)
    assert [row["reward"] for row in scored(tmp_path / "out")] == pytest.approx(expected, abs=1e-5)
