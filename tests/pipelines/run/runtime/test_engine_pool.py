"""How many batches an engine has at a time, and the ledger that ends with a run."""

import gc
from pathlib import Path
from typing import Any

import pytest
from ray._private.state import state

from actors.launch import placement
from actors.settings.replica import EngineSettings
from pipelines.run.runtime.engine_pool import engines_with_room, window_batches
from pipelines.run.sampling.sample_prompts import sample
from pipelines.run.scoring.score_corpus import score
from pipelines.run.scoring.shared_engines import shared_engines
from pipelines.settings.options import build
from pipelines.settings.run_settings import PoolSettings, SampleSettings
from tests.support.corpora import chat, lines, settings, write
from tests.support.engines import until


@pytest.mark.parametrize(
    ("engine", "pool", "batch", "batches"),
    [
        ({}, {}, (1000, 1), 9),  # 16 times 512 prompts
        ({"max_in_flight": 10}, {}, (40, 1), 4),
        ({}, {}, (64, 1), 64),
        ({}, {"replicas": 8}, (64, 1), 8),
        ({}, {"max_replicas": 16}, (64, 1), 0),  # it would never grow
        ({}, {}, (64, 2**26), 4),  # 256 MiB
        ({"engine": "fake"}, {}, (64, 1), 0),
        ({"engine_args": {"enable_prefix_caching": False}}, {}, (64, 1), 0),
    ],
)
def test_a_window_is_bounded_by_prompts_by_batches_of_all_engines_and_by_bytes(
    engine: dict[str, object], pool: dict[str, int], batch: tuple[int, int], batches: int
) -> None:
    assert window_batches(EngineSettings(**engine), PoolSettings(**pool), *batch) == batches


@pytest.mark.parametrize(
    ("pool", "engines"), [({}, 8), ({"replicas": 3}, 3), ({"replicas": 12}, 8), ({"max_replicas": 2}, 2)]
)
def test_engines_that_stay_are_no_more_than_their_bound_and_the_gpus(
    pool: dict[str, int], engines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "cluster_gpus", lambda: 8)
    monkeypatch.setattr(placement, "engine_gpus", lambda engine: 1)
    assert engines_with_room(EngineSettings(), PoolSettings(**pool)) == engines


@pytest.mark.usefixtures("local_ray")
def test_the_ledgers_of_runs_end_with_them_whatever_still_holds_their_handles(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines([chat("What is 3 + 4?", "7")]))
    gc.disable()
    try:
        with shared_engines(with_vllm=False) as start_pipeline:
            for name in ("alone", "first", "second"):
                score(settings(corpus, tmp_path / name), start_pipeline=None if name == "alone" else start_pipeline)
        sampling = {"model": "tiny-attributes", "policy": "tiny-genrm", "engine": "fake", "n": 2, "policy_max_tokens": 16}
        sample(build(SampleSettings, {"inputs": (str(corpus),), "output": str(tmp_path / "sampled"), **sampling}))
        until(lambda: "Ledger" not in alive_actors())
    finally:
        gc.enable()


def alive_actors() -> set[str]:
    """The classes of this Ray's actors."""
    actors: dict[str, Any] = state.actor_table(None, None, None)
    return {actor["ActorClassName"] for actor in actors.values() if actor["State"] == "ALIVE"}
