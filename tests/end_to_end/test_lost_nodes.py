"""Nodes with GPUs go away in mid-run, and nothing comes in their place: the others do the work. vLLM on logical GPUs."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.errors import RunStopped
from actors.launch import placement
from pipelines.folders.run_folder.parts import Parts
from pipelines.run.runtime import lost_engines
from pipelines.run.sampling.sample_prompts import sample
from pipelines.run.scoring.score_corpus import score
from tests.pipelines.run.sampling.test_endpoint_policy import Endpoint
from tests.pipelines.run.sampling.test_sample_prompts import prompts, sample_settings
from tests.support.clusters import add, cluster
from tests.support.corpora import Notes, lines, rows, scored, settings, write
from tests.support.endpoints import listening, wait

pytestmark = pytest.mark.long

ROWS, PROMPTS = 6000, 400
NODE = {"num_cpus": 2, "num_gpus": 1}


@pytest.fixture
def head() -> Iterator[Any]:
    """A cluster whose head has no GPUs."""
    with cluster({"num_cpus": 1}) as item:
        yield item


def meanwhile(condition: Callable[[], bool], do: Callable[[], None]) -> threading.Thread:
    """Do something as soon as it is time for it, beside the run."""

    def run() -> None:
        wait(condition)
        do()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.chaos
def test_what_a_lost_engine_held_is_done_where_another_makes_room(head: Any, tmp_path: Path) -> None:
    add(head, NODE)
    leaving = add(head, NODE)
    corpus, out, notes = write(tmp_path / "c.jsonl", lines(rows(ROWS))), tmp_path / "out", Notes()
    parts = Parts(str(out))
    before: list[str] = []

    def leave() -> None:
        before.extend(part.name for part in parts.listing())
        head.remove_node(leaving)

    # On a busy machine one engine is at work long before the other, which must hold some, too: few parts at a time, and a
    # third of them done.
    thread = meanwhile(lambda: out.exists() and len(parts.listing()) >= 40, leave)
    result = score(settings(corpus, out, engine="vllm", part_rows=50, max_in_flight=64), notes)
    thread.join()
    assert (result.rows, result.scored) == (ROWS, ROWS)
    assert len(before) < ROWS / 50, "the run was over before the node went"
    assert {part.name for part in parts.listing()} >= set(before)
    assert notes.losses == ["engines died and were started again, 1 so far; the last one: its node went away"]
    assert len({row["row"] for row in scored(out)}) == ROWS


def test_what_a_lost_judge_held_is_begun_again_by_the_others(
    head: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_engines, "_GRACE_S", 5.0)
    add(head, NODE)
    leaving = add(head, NODE)
    corpus, out, notes = write(tmp_path / "prompts.jsonl", lines(prompts(PROMPTS))), tmp_path / "out", Notes()
    parts = Parts(str(out))
    thread = meanwhile(lambda: out.exists() and len(parts.listing()) >= 5, lambda: head.remove_node(leaving))
    with listening(Endpoint().app) as address:
        item = sample_settings(corpus, out, policy=f"{address}/v1", engine="vllm", replicas=2, n=2, part_rows=8)
        result = sample(item, notes)
    thread.join()
    assert (result.prompts, result.drawn, result.scored.failed) == (PROMPTS, 2 * PROMPTS, 0)
    # Whether a part was committed just before its node went, and its work was then done again, is a matter of milliseconds.
    losses = [note for note in notes.losses if "overlapped an older part" not in note]
    assert losses == ["an engine went with its node, and found no other place; the others go on"]
    assert len({(row["row"], row["response_name"]) for row in scored(out)}) == 2 * PROMPTS


def test_a_cluster_without_any_gpu_left_stops_the_run(head: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_engines, "_GRACE_S", 5.0)
    leaving = add(head, NODE)
    count = ROWS // 2  # half of them are enough: one engine takes twice as long as two
    corpus, out = write(tmp_path / "c.jsonl", lines(rows(count))), tmp_path / "out"
    parts = Parts(str(out))
    thread = meanwhile(lambda: out.exists() and len(parts.listing()) >= 5, lambda: head.remove_node(leaving))
    with pytest.raises(RunStopped, match="the cluster has no GPU any more"):
        score(settings(corpus, out, engine="vllm", part_rows=50))
    thread.join()
    kept = {part.name for part in parts.listing()}
    add(head, NODE)
    wait(lambda: placement.cluster_gpus() == 1)
    result = score(settings(corpus, out, engine="vllm", part_rows=50))
    assert result.scored == count
    assert {part.name for part in parts.listing()} >= kept


@pytest.mark.chaos
def test_a_node_without_gpus_that_goes_costs_no_engine(head: Any, tmp_path: Path) -> None:
    """The engine is in two stages on two nodes; much of the reading is done on the third."""
    add(head, NODE)
    add(head, NODE)
    leaving = add(head, {"num_cpus": 8})
    corpus, out, notes = write(tmp_path / "c.jsonl", lines(rows(ROWS))), tmp_path / "out", Notes()
    parts = Parts(str(out))
    thread = meanwhile(lambda: out.exists() and len(parts.listing()) >= 5, lambda: head.remove_node(leaving))
    result = score(settings(corpus, out, engine="vllm", pipeline_parallel=2, part_rows=50), notes)
    thread.join()
    assert len(parts.listing()) > 5
    assert (result.rows, result.scored) == (ROWS, ROWS)
    assert notes.losses == []
    assert len({row["row"] for row in scored(out)}) == ROWS
