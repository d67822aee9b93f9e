"""How many batches an engine has at a time."""

import pytest

from actors.launch import placement
from actors.settings.replica import EngineSettings
from pipelines.run.runtime.engine_pool import engines_with_room, window_batches
from pipelines.settings.run_settings import PoolSettings


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
