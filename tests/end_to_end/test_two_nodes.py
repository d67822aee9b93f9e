"""An engine over two nodes, tensor parallel within each and a pipeline over both: vLLM's Ray executor, on logical GPUs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

from actors.errors import EngineError
from pipelines.scoring import score
from tests.corpora import lines, scored, settings, write
from tests.endpoints import wait
from tiny_models.synthetic import pairs

MODEL = "tiny-attributes"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"prompt": pair.context, "chosen": pair.chosen, "rejected": pair.rejected} for pair in pairs(12, 30, "held-out")]
    return write(tmp_path_factory.mktemp("corpus") / "pairs.jsonl", lines(rows))


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """Two raylets with two logical GPUs each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_TESTS_LOGICAL_GPUS", "1")
        node = {"num_cpus": 3, "num_gpus": 2, "object_store_memory": 200 * 2**20}
        own: Any = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        own.add_node(**node)
        patch.setenv("RAY_ADDRESS", own.address)
        ray.init(address=own.address, log_to_driver=False)
        yield own
        ray.shutdown()
        own.shutdown()


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Rewards of one process, on a Ray without GPUs."""
    from tests.commands import summary

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
