"""An engine over two nodes, tensor parallel within each and a pipeline over both: vLLM's Ray executor, on logical GPUs.

And what becomes of the GPUs when actors wait for them, or die with them.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import ray
from ray import serve
from ray.serve.config import HTTPOptions
from ray.util import placement_group_table

from actors.errors import EngineError
from actors.placement import place, sweep
from actors.settings import EngineSettings
from pipelines.scoring import score
from tests.clusters import cluster
from tests.commands import summary
from tests.conftest import REPOSITORY
from tests.corpora import lines, scored, settings, write
from tests.endpoints import deploy, free_port, wait
from tiny_models.synthetic import pairs

MODEL = "tiny-attributes"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"prompt": pair.context, "chosen": pair.chosen, "rejected": pair.rejected} for pair in pairs(12, 30, "held-out")]
    return write(tmp_path_factory.mktemp("corpus") / "pairs.jsonl", lines(rows))


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """Two raylets with two logical GPUs each."""
    node = {"num_cpus": 3, "num_gpus": 2}
    with cluster(node, node) as own:
        yield own


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Rewards of one process, on a Ray without GPUs."""
    output = tmp_path_factory.mktemp("alone") / "out"
    summary("score", corpus, output, "--model", MODEL)
    return [row["reward"] for row in scored(output)]


def groups() -> list[dict[str, Any]]:
    return [group for group in placement_group_table().values() if group["state"] != "REMOVED"]


def test_a_run_over_two_nodes_gives_the_numbers_of_one_process(
    corpus: Path, expected: list[float], two_nodes: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    found = score(settings(corpus, out, model=MODEL, engine="vllm", tensor_parallel=2, pipeline_parallel=2))
    assert found.scored == len(expected) == 60
    rewards = [row["reward"] for row in scored(out)]
    assert rewards == pytest.approx(expected, abs=1e-4)
    assert len(set(rewards)) > 30
    wait(lambda: not groups())
    assert groups() == [], "its GPUs are free again"


def test_what_the_cluster_hasnt_is_refused_at_once(corpus: Path, two_nodes: Any, tmp_path: Path) -> None:
    wrong = settings(corpus, tmp_path / "out", model=MODEL, engine="vllm", tensor_parallel=4, pipeline_parallel=2)
    with pytest.raises(
        EngineError, match="TP 4 x PP 2 needs 2 times 4 GPUs, each time of one node, and the cluster has 2 no"
    ):
        score(wrong)
    assert not [process for process in psutil.Process().children(recursive=True) if "EngineCore" in process.name()]


def test_a_replica_over_two_nodes_gives_the_same_numbers(corpus: Path, expected: list[float], two_nodes: Any) -> None:
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    conversations = [{"messages": row["prompt"], "responses": [row["chosen"], row["rejected"]]} for row in rows]
    port = free_port()
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port))
    try:
        deploy(MODEL, engine={"engine": "vllm", "tensor_parallel": 2, "pipeline_parallel": 2})
        assert len(groups()) == 1
        body = {"model": MODEL, "conversations": conversations}
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/rewards", json=body, timeout=300)
        assert answer.status_code == 200, answer.text
        rewards = [one["reward"] for own in answer.json()["data"] for one in own["responses"]]
        assert rewards == pytest.approx(expected, abs=1e-4)
    finally:
        stop: Any = serve.shutdown
        stop()
    wait(all_swept)


class Holder:
    """An actor that gets the GPUs of an engine, and has no engine."""

    def hold(self, timeout_s: float) -> bool:
        own = EngineSettings(tensor_parallel=2, pipeline_parallel=2, placement_timeout_s=timeout_s)
        self.placement = place(own)
        return self.placement is not None

    def release(self) -> None:
        assert self.placement is not None
        self.placement.release()


def holder() -> Any:
    return ray.remote(num_cpus=0)(Holder).options(max_concurrency=2).remote()


def test_gpus_that_others_have_are_waited_for_up_to_a_limit(two_nodes: Any) -> None:
    first, second = holder(), holder()
    assert ray.get(first.hold.remote(60))
    with pytest.raises(
        EngineError, match=r"TP 2 x PP 2 waited 2 s for 2 times 2 GPUs, each time of one node; free are no GPU"
    ):
        ray.get(second.hold.remote(2))
    waiting = second.hold.remote(60)
    assert ray.wait([waiting], timeout=3)[0] == []
    ray.get(first.release.remote())
    assert ray.get(waiting)
    ray.get(second.release.remote())
    wait(lambda: not groups())


def test_gpus_of_an_actor_that_is_gone_are_free_for_the_next(two_nodes: Any) -> None:
    first, second = holder(), holder()
    assert ray.get(first.hold.remote(60))
    ray.kill(first)
    assert len(groups()) == 1, "Ray doesn't free them"
    assert ray.get(second.hold.remote(60))
    ray.kill(second)
    wait(all_swept)


DRIVER = """
import ray
from tests.end_to_end.test_two_nodes import holder

ray.init(log_to_driver=False)
held = holder()
print("held" if ray.get(held.hold.remote(60)) else "not held", flush=True)
input()
"""


def test_gpus_of_a_driver_that_is_killed_are_free(two_nodes: Any) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "held\n"
        assert len(groups()) == 1
        driver.kill()
    wait(lambda: not groups())
    second = holder()
    assert ray.get(second.hold.remote(60))
    ray.get(second.release.remote())


def all_swept() -> bool:
    """Ray takes a moment to know that an actor is gone."""
    sweep()
    return not groups()
