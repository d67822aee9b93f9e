"""Sizes Ray Data's actor pool for a step that holds an engine, and starts the ledger that counts engine deaths."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.data import ActorPoolStrategy
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.launch import placement
from actors.settings.replica import EngineSettings
from actors.workers.crash_ledger import Ledger
from pipelines.settings.run_settings import PoolSettings

_MIN_CALLS, _MAX_CALLS = 4, 32  # concurrent batches in an actor, one thread each
# The window in which equal contexts meet: so many times the engine's prompts, at most so many batches (of about 200 in a
# run, so that engines that are ready later have work, too) and bytes.
_WINDOW_PROMPTS, _WINDOW_CALLS, _WINDOW_BYTES = 16, 64, 2**28
# Maximum concurrent prompts of an engine with and without GPUs, unless max_num_seqs is set.
_GPU_PROMPTS, _CPU_PROMPTS = 1024, 512


def engine_pool(engine: EngineSettings, pool: PoolSettings, batch_rows: int, window: int = 0) -> dict[str, Any]:
    """Options of `map_batches` for a step that holds an engine, on batches of `batch_rows` rows.

    An engine gets at least `window` batches at a time (`window_batches`).
    """
    return {
        # Half a CPU. With as many as a read task takes, Ray Data would fuse reading into the actor; and on a machine with
        # two CPUs, an actor that takes a whole one would leave too few for reading.
        "num_cpus": 0.5,
        **placement.actor_options(engine),
        "compute": ActorPoolStrategy(
            **_bounds(engine, pool),
            max_concurrent_calls_per_actor=max(concurrent_calls(engine, batch_rows), window),
            enable_true_multi_threading=True,
        ),
    }


def concurrent_calls(engine: EngineSettings, batch_rows: int) -> int:
    """Batches that an engine has at a time: they hold twice its prompts, as some of them start, end and are written.

    At least 4 and at most 32, each of which is a thread.
    """
    batches = math.ceil(2 * (engine.max_in_flight or _max_prompts(engine)) / batch_rows)
    return min(max(_MIN_CALLS, batches), _MAX_CALLS)


def window_batches(engine: EngineSettings, pool: PoolSettings, batch_rows: int, batch_bytes: int) -> int:
    """Batches that an engine of a head has at a time, so that equal contexts among them meet (`Admission`).

    All engines of a pool have so many together. 0 without a prefix cache, and for a pool that grows: Ray Data adds an engine
    when the others have more batches than they can take.
    """
    if not engine.is_vllm or engine.engine_args.get("enable_prefix_caching") is False or pool.max_replicas is not None:
        return 0
    batches = math.ceil(_WINDOW_PROMPTS * (engine.max_in_flight or _max_prompts(engine)) / batch_rows)
    return min(batches, _WINDOW_CALLS // (pool.replicas or _room(engine)), _WINDOW_BYTES // batch_bytes)


def engines_with_room(engine: EngineSettings, pool: PoolSettings) -> int:
    """The number of engines of a pool that doesn't change: --replicas, but none that would wait for GPUs for ever.

    At most `max_replicas`.
    """
    room, grows = _room(engine), engine.autoscaled or not placement.engine_gpus(engine)
    # Each engine of a shared pool is handed blocks whether it has started or not: those of one that never does would wait.
    count = pool.replicas or min(room, pool.max_replicas or room)
    return count if grows else min(count, room)


def _max_prompts(engine: EngineSettings) -> int:
    """Maximum concurrent prompts of an engine, known before it starts: its max_num_seqs, or else the largest default."""
    configured = engine.engine_args.get("max_num_seqs")
    if isinstance(configured, int) and configured > 0:
        return configured
    return _GPU_PROMPTS if placement.engine_gpus(engine) else _CPU_PROMPTS


def engines_that_stay(engine: EngineSettings, pool: PoolSettings) -> int | None:
    """The number of engines if it is constant: --replicas, or as many as fit on the GPUs. None with --max-replicas."""
    return None if pool.max_replicas is not None else pool.replicas or _room(engine)


def _bounds(engine: EngineSettings, pool: PoolSettings) -> dict[str, int]:
    """Arguments of `ActorPoolStrategy`: a fixed size, or bounds between which Ray Data scales with the waiting work."""
    # Fixed even where nothing is set: Ray Data's default would grow the pool beyond the GPUs that there are.
    if pool.max_replicas is None:
        return {"size": pool.replicas or _room(engine)}
    min_size = pool.min_replicas or 1
    initial_size = max(min_size, min(_room(engine), pool.max_replicas))
    return {"min_size": min_size, "max_size": pool.max_replicas, "initial_size": initial_size}


def _room(engine: EngineSettings) -> int:
    """How many engines fit on the cluster's GPUs, at least one; one without GPUs."""
    gpus = placement.engine_gpus(engine)
    return max(1, placement.cluster_gpus() // gpus) if gpus else 1


@contextmanager
def ledger(settings: PoolSettings) -> Iterator[Any]:
    """A new ledger (`start_ledger`) that ends with the block, or by its last handle after an exception."""
    deaths = start_ledger(settings)
    yield deaths
    # Ray Data's plans keep handles until the garbage collector gets to them: a process with many runs had over a hundred
    # ledgers, of 100 MB each. After an exception the execution may go on for a moment, and would call a ledger that is gone.
    ray.kill(deaths)


def start_ledger(settings: PoolSettings) -> Any:
    """A new ledger actor for the engine deaths of a pool. On the driver's node, so that no other node's loss ends it.

    Of an endpoint's pool it keeps what fails there. It ends with its last handle.
    """
    on_this_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor: Any = ray.remote(Ledger)
    # Ray repeats calls whose answers are lost on a broken connection; without that, one such call ends the run. The ledger
    # itself isn't started again, as it would know of no deaths: a run whose ledger dies ends.
    options = {"num_cpus": 0, "max_task_retries": -1, "scheduling_strategy": on_this_node}
    return actor.options(**options).remote(settings.max_engine_deaths)
