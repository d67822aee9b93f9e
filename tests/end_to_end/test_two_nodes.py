"""An engine over two nodes, tensor parallel within each and a pipeline over both: vLLM's Ray executor, on logical GPUs.

Beside them is a node without one, on which no engine can be.

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
from ray._private.state import state as ray_state
from ray.serve.config import HTTPOptions
from ray.util import placement_group_table

from actors.errors import EngineError
from actors.launch.placement import actor_options, place, sweep
from actors.settings.replica import EngineSettings
from deploy.ray_serve import haproxy
from pipelines.run.runtime.engine_actors import pool
from pipelines.run.runtime.engine_pool import engine_pool
from pipelines.run.scoring.score_corpus import score
from pipelines.settings.run_settings import PoolSettings
from tests.conftest import REPOSITORY
from tests.support.clusters import cluster
from tests.support.commands import summary
from tests.support.corpora import lines, scored, settings, write
from tests.support.endpoints import deploy, free_port, wait
from tests.support.processes import family, name
from tiny_models.synthetic import pairs

pytestmark = pytest.mark.long

MODEL = "tiny-attributes"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"prompt": pair.context, "chosen": pair.chosen, "rejected": pair.rejected} for pair in pairs(12, 30, "held-out")]
    return write(tmp_path_factory.mktemp("corpus") / "pairs.jsonl", lines(rows))


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """Two raylets with two logical GPUs each, and one with more CPUs and no GPU."""
    node = {"num_cpus": 3, "num_gpus": 2}
    with haproxy.in_front("127.0.0.1"), cluster(node, node, {"num_cpus": 8, "num_gpus": 0}, ray_executor=True) as item:
        yield item


def nodes_with_gpus() -> set[str]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"] for node in nodes if node["Resources"].get("GPU")}


def actors_nodes(name: str) -> set[str]:
    """The nodes of all actors of a class that there have been in this Ray."""
    tables = ray_state.actor_table(None, None, None).values()
    return {table["Address"]["NodeID"] for table in tables if table["ActorClassName"] == name}


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
    result = score(settings(corpus, out, model=MODEL, engine="vllm", tensor_parallel=2, pipeline_parallel=2))
    assert result.scored == len(expected) == 60
    rewards = [row["reward"] for row in scored(out)]
    assert rewards == pytest.approx(expected, abs=1e-4)
    assert len(set(rewards)) > 30
    wait(lambda: not groups())
    assert groups() == [], "its GPUs are free again"
    assert len(actors_nodes("MapWorker(MapBatches(ScoreStep))") & nodes_with_gpus()) == 1


def test_what_the_cluster_hasnt_is_refused_at_once(corpus: Path, two_nodes: Any, tmp_path: Path) -> None:
    wrong = settings(corpus, tmp_path / "out", model=MODEL, engine="vllm", tensor_parallel=4, pipeline_parallel=2)
    with pytest.raises(
        EngineError, match="TP 4 x PP 2 needs 2 times 4 GPUs, each time of one node, and the cluster has 2 no"
    ):
        score(wrong)
    assert not [process for process in family(psutil.Process()) if "EngineCore" in name(process)]


def test_a_replica_over_two_nodes_gives_the_same_numbers(corpus: Path, expected: list[float], two_nodes: Any) -> None:
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    conversations = [{"messages": row["prompt"], "responses": [row["chosen"], row["rejected"]]} for row in rows]
    port = free_port()
    # On one machine, the HAProxies of several nodes can't listen on one port.
    serve.start(proxy_location="HeadOnly", http_options=HTTPOptions(host="127.0.0.1", port=port))
    try:
        deploy(MODEL, engine={"engine": "vllm", "tensor_parallel": 2, "pipeline_parallel": 2})
        (group,) = groups()
        (node,) = actors_nodes("ServeReplica:assay:model-0")
        assert node in group["bundles_to_node_id"].values()
        body = {"model": MODEL, "conversations": conversations}
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/rewards", json=body, timeout=300)
        assert answer.status_code == 200, answer.text
        rewards = [response["reward"] for entry in answer.json()["data"] for response in entry["responses"]]
        assert rewards == pytest.approx(expected, abs=1e-4)
    finally:
        stop: Any = serve.shutdown
        stop()
    wait(all_swept)


class Finder:
    """What runs where an engine's actor would, without an engine."""

    def here(self) -> str:
        return str(ray.get_runtime_context().get_node_id())

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"node": [self.here()]}


def test_an_engines_actor_is_on_a_node_with_gpus(two_nodes: Any) -> None:
    engine = EngineSettings(tensor_parallel=2, pipeline_parallel=2)
    with pool(Finder, size=8, options=actor_options(engine)) as actors:
        assert set(ray.get([actor.here.remote() for actor in actors.actors])) <= nodes_with_gpus()
    step = engine_pool(engine, PoolSettings(replicas=4), 4)
    result = ray.data.range(16, override_num_blocks=4).map_batches(Finder, batch_size=4, **step).take_all()
    assert {row["node"] for row in result} <= nodes_with_gpus()
    assert actors_nodes("MapWorker(MapBatches(Finder))") <= nodes_with_gpus()


class Holder:
    """An actor that gets the GPUs of an engine, and has no engine."""

    def hold(self, timeout_s: float) -> bool:
        engine_settings = EngineSettings(tensor_parallel=2, pipeline_parallel=2, placement_timeout_s=timeout_s)
        self.placement = place(engine_settings)
        return self.placement is not None

    def release(self) -> None:
        assert self.placement is not None
        self.placement.release()


def holder() -> Any:
    item = actor_options(EngineSettings(tensor_parallel=2, pipeline_parallel=2))
    actor: Any = ray.remote(Holder)
    return actor.options(num_cpus=0, max_concurrency=2, **item).remote()


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
