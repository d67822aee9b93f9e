"""Pools of engines of one kind, as actors that several steps of a pipeline call.

Ray restarts an actor whose process died, on any node with room, and sends it the calls again that it had.
"""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from actors.launch import placement

# Each call is a thread with a group of up to 8 prompts: enough to fill an engine's batch.
_CALLS_AT_A_TIME = 64
# Per actor, whose work is on the GPU: on a small machine, the CPUs must be enough for readers and steps as well.
_CPUS = 0.25


@dataclass(frozen=True)
class Pool:
    """Handles of the actors. Small and picklable."""

    actors: tuple[Any, ...]

    def by(self, key: str) -> Any:
        """The actor for a key. Calls about one prompt have one key, so they meet the prefix cache that holds the prompt."""
        # crc32, not hash(): strings hash differently in each process.
        return self.actors[zlib.crc32(key.encode()) % len(self.actors)]


@contextmanager
def pool(kind: type, *arguments: Any, size: int, options: Mapping[str, Any], **named: Any) -> Iterator[Pool]:
    """`size` actors of the class `kind`, killed at the end of the block.

    `options` are Ray's, for their placement; all other arguments are those of `kind`.
    """
    remote: Any = ray.remote(kind)
    # Without limits: the ledger counts deaths, and ends a run that has too many (`max_engine_deaths`).
    actor = remote.options(num_cpus=_CPUS, max_restarts=-1, max_task_retries=-1, max_concurrency=_CALLS_AT_A_TIME, **options)
    actors = tuple(actor.remote(*arguments, **named) for _ in range(size))
    try:
        yield Pool(actors)
    finally:
        for actor in actors:
            ray.kill(actor)
        # A killed actor can't free the placement groups of an engine on several nodes, which the next pool may wait for.
        placement.sweep([actor._actor_id.hex() for actor in actors])
