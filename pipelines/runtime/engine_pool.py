"""How Ray Data runs a step that holds an engine: how many there are, what each takes, and where their deaths are counted."""

import math
from typing import Any

import ray
from ray.data import ActorPoolStrategy
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.launch import placement
from actors.settings.replica import EngineSettings
from actors.workers.crash_ledger import Ledger
from pipelines.settings.run_settings import PoolSettings

_FEWEST_CALLS, _MOST_CALLS = 4, 32  # batches at a time in an actor, each of which is a thread
_ON_CARDS, _ELSEWHERE = 1024, 512
"""Prompts that an engine works on at a time, where these are the most."""


def engine_pool(engine: EngineSettings, pool: PoolSettings, batch_rows: int) -> dict[str, Any]:
    """How `map_batches` runs a step that holds an engine, on batches of so many rows."""
    # Twice what the engine takes at a time: it stays busy while some of the batches begin, end and are written.
    batches = math.ceil(2 * (engine.max_in_flight or _most_at_a_time(engine)) / batch_rows)
    return {
        # Half a CPU: Ray Data would run reading inside the actor if both asked for the same, and on two CPUs an
        # actor that took a whole one would leave too few to read with.
        "num_cpus": 0.5,
        **placement.actor_options(engine),
        "compute": ActorPoolStrategy(
            **_bounds(engine, pool),
            max_concurrent_calls_per_actor=min(max(_FEWEST_CALLS, batches), _MOST_CALLS),
            enable_true_multi_threading=True,
        ),
    }


def _most_at_a_time(engine: EngineSettings) -> int:
    """Prompts that an engine works on at a time, before there is one: as it was told, or the most that any does."""
    told = engine.engine_args.get("max_num_seqs")
    if isinstance(told, int) and told > 0:
        return told
    return _ON_CARDS if placement.engine_gpus(engine) else _ELSEWHERE


def engines_that_stay(engine: EngineSettings, pool: PoolSettings) -> int | None:
    """How many engines there are from beginning to end: as asked, or as the GPUs carry. None if their number changes."""
    return None if pool.max_replicas is not None else pool.replicas or _room(engine)


def _bounds(engine: EngineSettings, pool: PoolSettings) -> dict[str, int]:
    """A number that stays, or one that Ray Data changes as work waits and GPUs come and go."""
    if pool.max_replicas is None:
        return {"size": pool.replicas or _room(engine)}
    least = pool.min_replicas or 1
    start = max(least, min(_room(engine), pool.max_replicas))
    return {"min_size": least, "max_size": pool.max_replicas, "initial_size": start}


def _room(engine: EngineSettings) -> int:
    gpus = placement.engine_gpus(engine)
    return max(1, placement.cluster_gpus() // gpus) if gpus else 1


def ledger(settings: PoolSettings) -> Any:
    """A ledger of engines' deaths, for a pool of them. It is where the driver is, and ends with nothing else."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor: Any = ray.remote(Ledger)
    return actor.options(num_cpus=0, scheduling_strategy=here).remote(settings.max_engine_deaths)
