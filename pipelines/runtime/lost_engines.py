"""Watches the engines of a pipeline: reports what their start waits for, and ends the pipeline if engines lost their nodes.

Ray restarts an actor of a lost node where there is room, and gives it its calls again. An actor pool of Ray Data makes room
by ending idle engines. Pools that several steps share don't, and with no GPU left nobody can: those calls would wait for
ever. The pipeline is then ended with `EnginesLost`, and the remaining engines start it again with what is missing.
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

_CHECK_EVERY_S = 5.0
_REPORT_EVERY_S = 0.5
_GRACE_S = 60.0
"""Wait before giving up: a new node may join within a minute, or an idle engine make room; a restart costs the start of all
engines."""


class EngineWatch(ExecutionCallback):
    """Called by Ray Data at every step of a dataset's execution; an exception ends the execution."""

    def __init__(self, ledgers: Sequence[Any], notify: Callable[[str], None]) -> None:
        """`notify` is called with each step of the first engine's start, once."""
        self._ledgers = ledgers
        self._notify = notify
        self._reported_steps: set[str] = set()
        self._reported_at = 0.0
        self._checked_at = self._complete_at = time.monotonic()

    def on_execution_step(self, executor: Any) -> None:
        """Raise `EnginesLost` if for `_GRACE_S` lost engines have waited for a place while all others were idle."""
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_EVERY_S:
            self._reported_at = now
            self._report_steps()
        if now - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = now
        lost = self._count_lost()
        if not lost:
            self._complete_at = now
        if now - self._complete_at >= _GRACE_S:
            loss = "an engine went with its node" if lost == 1 else f"{lost} engines went with their nodes"
            raise EnginesLost(f"{loss}, and found no other place")

    def _report_steps(self) -> None:
        for step in itertools.chain.from_iterable(ray.get([ledger.loading.remote() for ledger in self._ledgers])):
            if step not in self._reported_steps:
                self._reported_steps.add(step)
                self._notify(step)

    def _count_lost(self) -> int:
        """The number of lost engines that wait for a place; 0 while any other engine is busy, since the run progresses."""
        nodes = alive_nodes()
        standings = ray.get([ledger.standing.remote(nodes) for ledger in self._ledgers])
        if any(standing.busy for standing in standings):
            return 0
        return sum(is_wanted(engine) for standing in standings for engine in standing.lost)
