"""Looks after the engines of a flow: says what their start waits for, and ends the flow if their nodes went away.

Ray starts such an actor again where there is room, and gives it the calls that it had. A pool of Ray Data's makes room: it
ends engines that have nothing left to do. Pools that several steps ask don't, and where no GPU is left nobody can: these
calls would then wait for ever. What is missing can be begun again by the engines that are there.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.data._internal.execution.execution_callback import ExecutionCallback

from actors.errors import EnginesLost
from actors.launch.placement import is_wanted
from actors.workers.engine_process import alive_nodes

_LOOK_EVERY_S = 5.0
_STEP_EVERY_S = 0.5
_GRACE_S = 60.0
"""A new node may come in a minute, or an engine that idles make room; to begin again costs the start of all engines."""


class EngineWatch(ExecutionCallback):
    """Called by Ray Data at every step of a dataset's execution; what it raises ends that."""

    def __init__(self, ledgers: Sequence[Any], noted: Callable[[str], None]) -> None:
        """`noted` is called with each step of the first engine's start."""
        self._ledgers = ledgers
        self._noted = noted
        self._noted_steps: set[str] = set()
        self._noted_at = 0.0
        self._looked = self._fine = time.monotonic()

    def on_execution_step(self, executor: Any) -> None:
        """Raise `EnginesLost` if engines have waited for a place, and the others for work, for a while."""
        now = time.monotonic()
        if now - self._noted_at >= _STEP_EVERY_S:
            self._noted_at = now
            self._note_steps()
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        lost = self._lost()
        if not lost:
            self._fine = now
        if now - self._fine >= _GRACE_S:
            went = "an engine went with its node" if lost == 1 else f"{lost} engines went with their nodes"
            raise EnginesLost(f"{went}, and found no other place")

    def _note_steps(self) -> None:
        for step in itertools.chain.from_iterable(ray.get([ledger.loading.remote() for ledger in self._ledgers])):
            if step not in self._noted_steps:
                self._noted_steps.add(step)
                self._noted(step)

    def _lost(self) -> int:
        """How many engines wait for a place, if no other has anything to do."""
        nodes = alive_nodes()
        standings = ray.get([ledger.standing.remote(nodes) for ledger in self._ledgers])
        if any(standing.busy for standing in standings):
            return 0
        return sum(is_wanted(engine) for standing in standings for engine in standing.lost)
