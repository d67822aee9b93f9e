"""A run on a cluster that Ray's autoscaler makes larger and smaller. vLLM, one logical GPU to a node."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray._private.state import state

from actors.engine.fork_server import SWITCH, share
from pipelines.folders.run_folder.parts import Parts
from tests.support.commands import running, sets, wait_until
from tests.support.corpora import lines, rows, scored, write
from tests.support.endpoints import wait
from tests.support.growing import Growing, growing

pytestmark = pytest.mark.long

ROWS = 1_500
"""One engine that is slowed down takes ten minutes for so many: longer than any machine takes to start the second."""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file: engines are slow while it is there."""
    file = tmp_path / "slow"
    file.touch()
    monkeypatch.setenv("ASSAY_TESTS_SLOW_WHILE", str(file))
    return file


@pytest.fixture
def cluster(slow: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Growing]:
    monkeypatch.setenv(SWITCH, share())  # vLLM is imported for the engines' own processes once
    with (
        tempfile.TemporaryDirectory(prefix="grow-", dir="/tmp", ignore_cleanup_errors=True) as folder,  # a short name
        growing(Path(folder) / "ray", most=2, node={"CPU": 2, "GPU": 1}) as machines,
    ):
        yield machines


def working() -> set[str]:
    """The nodes on which an engine is ready."""
    actors: dict[str, Any] = state.actor_table(None, None, None)
    return {
        actor["Address"]["NodeID"]
        for actor in actors.values()
        if actor["State"] == "ALIVE" and "ScoreStep" in actor["ActorClassName"]
    }


def test_a_run_grows_over_nodes_that_come_and_outlives_one_that_goes(cluster: Growing, slow: Path, tmp_path: Path) -> None:
    corpus, out = write(tmp_path / "c.jsonl", lines(rows(ROWS))), tmp_path / "out"
    assert cluster.workers() == []
    small = sets("engine.engine_args.max_num_seqs=4", "work.part_rows=10")
    grows = sets("engine.autoscaled=true", "work.max_replicas=2")
    command = ("score", corpus, out, "--model", "tiny-attributes", *grows, *small)
    parts = Parts(str(out))
    with running(*command, RAY_ADDRESS=cluster.address) as run:
        wait_until(lambda: len(working()) == 1, run, every_s=0.5)
        (first,) = working()
        wait_until(lambda: len(working()) == 2, run, every_s=0.5)
        (second,) = working() - {first}
        cluster.take(first)
        wait_until(lambda: first not in cluster.workers(), run, every_s=0.5)
        before = len(parts.listing())
        wait_until(lambda: len(parts.listing()) > before + 1, run)
        assert run.is_running(), "it was over before the node went"
        assert second in working()  # a third node may be ready, too
        done = {part.name for part in parts.listing()}
        slow.unlink()
        assert run.wait() == 0
    assert {part.name for part in parts.listing()} >= done
    counts = json.loads((out / "manifest.json").read_text())["summary"]
    assert (counts["rows"], counts["scored"]) == (ROWS, ROWS)
    assert len({row["row"] for row in scored(out)}) == ROWS
    wait(lambda: cluster.workers() == [])  # nodes that idle are given back
