"""Engines of one kind side by side, as actors that several steps of a pipeline may ask.

Ray starts one again whose process died, wherever there is room, and gives it the calls that it had.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from actors.launch import placement

_CALLS_AT_A_TIME = 64
"""Each is a thread, and blocks of a few prompts: enough to fill an engine."""
_CPUS = 0.25
"""The engines of all models of a run must leave CPUs to read and to prepare with, on the smallest machine too."""


@dataclass(frozen=True)
class Pool:
    """Handles of the actors. Small and picklable."""

    actors: tuple[Any, ...]

    def by(self, key: str) -> Any:
        """The actor for whatever belongs together: of one prompt, it is always the same, whose cache may know it."""
        return self.actors[zlib.crc32(key.encode()) % len(self.actors)]


@contextmanager
def pool(kind: type, arguments: Sequence[Any], *, size: int, options: Mapping[str, Any]) -> Iterator[Pool]:
    """So many actors of a class, which end with the block. `options` say where they are."""
    remote: Any = ray.remote(kind)
    actor = remote.options(
        num_cpus=_CPUS,
        max_restarts=-1,
        max_task_retries=-1,
        max_concurrency=_CALLS_AT_A_TIME,
        **options,
    )
    actors = tuple(actor.remote(*arguments) for _ in range(size))
    try:
        yield Pool(actors)
    finally:
        for one in actors:
            ray.kill(one)
        # What they had on several nodes is of no actor's any more, and the next pool may be waiting for it.
        placement.sweep([one._actor_id.hex() for one in actors])
