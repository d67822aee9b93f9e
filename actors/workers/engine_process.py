"""An engine in an actor's process: it does work block by block, and the process ends when the engine is dead.

Ray then starts the actor again and gives it the lost blocks. `ray.actor.exit_actor` wouldn't do: Ray doesn't retry after it.
"""

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import ray

from actors.engine.protocol import Engine
from actors.errors import AssayError, EngineDead
from actors.launch.start_engine import Report
from actors.scorers.batch_noise import BatchNoise
from actors.timeline import mark
from actors.workers.crash_ledger import SUSPECT, name_item

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Computation(Generic[Item, Result]):
    """What an engine does with items.

    `compute` returns the results of several items, and raises `EngineDead` if the engine dies; `compute_anew` does it
    without what a store remembers. `is_answer` says whether the engine itself answered: a result from a store, a rejection
    and the engine's time-outs and refusals are no answers. `killer` gives the result of an item that kills engines.
    """

    compute: Callable[[Sequence[Item]], list[Result]]
    compute_anew: Callable[[Sequence[Item]], list[Result]]
    is_answer: Callable[[Result], bool]
    killer: Callable[[Item], Result]


class EngineProcess:
    """One engine. `run` may be called from several threads at a time.

    `is_restart`: an earlier process of this actor died, so some of its work may be done already.
    """

    def __init__(self, ledger: Any, start: Callable[[Report], Engine]) -> None:
        """`start` returns an engine that is ready and tested. Its steps, and its error, are reported to the ledger."""
        mark("engine's actor")
        self._ledger = ledger
        self._gate = _Gate()
        context = ray.get_runtime_context()
        self._holder = context.get_actor_id() or "driver"
        self.is_restart: bool = self._call(
            "note_start", self._holder, context.get_worker_id(), context.get_node_id(), alive_nodes()
        )
        try:
            self.engine = start(lambda step: self._call("note_start_step", self._holder, step))
        except AssayError as error:
            self._call("note_error", str(error))
            raise
        self._call("note_ready", self._holder)
        # Ray ends an actor by ending its process. Later in the shutdown than `atexit`, in a destructor say, the engine's
        # daemon thread would be frozen already.
        atexit.register(self.engine.close)

    def run(self, work: str, items: Sequence[Item], computation: Computation[Item, Result]) -> list[Result]:
        """The result of each item. `work` names the block, the same in every process that ever gets it."""
        if self._call("deaths", work) < SUSPECT:
            with self._gate.share():
                return self._enter(work, items, computation)
        with self._gate.exclude_others():
            return self._one_by_one(work, items, computation)

    def note_noise(self, noise: BatchNoise) -> None:
        self._call("note_noise", self._holder, noise)

    def warn(self, text: str) -> None:
        """Have the driver tell the user something, once however often it is said."""
        self._call("warn", text)

    def _one_by_one(self, work: str, items: Sequence[Item], computation: Computation[Item, Result]) -> list[Result]:
        """Each item by itself, from the first without a result: a suspect block whose killer has to be found."""
        # The block itself isn't entered again, and so stays open from its second death on: `deaths` says 2 in every further
        # process, which comes here, too, and goes on behind the results that are there, until `leave`.
        results: list[Result] = self._call("results", work)
        for number, item in enumerate(items[len(results) :], len(results)):
            item_work = name_item(work, number)
            if self._call("deaths", item_work) >= SUSPECT:
                self._answer_witness(work, items, number, computation)
                results.append(computation.killer(item))
            else:
                results += self._enter(item_work, [item], computation)
            self._call("add_result", work, number, results[-1])
        self._call("leave", work)
        return results

    def _answer_witness(self, work: str, items: Sequence[Item], killer: int, computation: Computation[Item, Result]) -> None:
        """Do a harmless item, which a sound engine answers: so it was the item of the number `killer` that has killed.

        Before anything was answered, a later item of the block may be harmless: the last ones first, since killers are
        neighbours. If none is, nothing tells the killers from a broken engine, and the row of deaths goes on.
        """
        anew = replace(computation, compute=computation.compute_anew)
        if (witness := self._call("witness")) is not None:
            self._enter(f"{self._holder}/witness", [witness], anew)
            return
        for number in range(len(items) - 1, killer, -1):
            item_work = name_item(work, number)
            if not self._call("deaths", item_work) and computation.is_answer(*self._enter(item_work, [items[number]], anew)):
                return

    def _enter(self, work: str, items: Sequence[Item], computation: Computation[Item, Result]) -> list[Result]:
        """Do items as one entered work. A death ends the process: Ray then starts the actor again and repeats the call."""
        self._call("enter", work, self._holder)
        try:
            results = computation.compute(items)
        except EngineDead as error:
            self._call("note_error", str(error))
            os._exit(1)
        answered = (item for item, result in zip(items, results, strict=True) if computation.is_answer(result))
        self._call("leave", work, next(answered, None))
        return results

    def _call(self, method: str, *arguments: Any) -> Any:
        return ray.get(getattr(self._ledger, method).remote(*arguments))


def alive_nodes() -> set[str]:
    """The ids of the cluster's nodes."""
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]


class _Gate:
    """Lets many blocks run together, or one alone: other work must not die with a suspect, and be counted as a killer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._is_exclusive = False

    @contextmanager
    def share(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_exclusive)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def exclude_others(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_exclusive)
            # Closed first, and only then empty: blocks that come and go without a pause would never leave it empty.
            self._is_exclusive = True
            self._changed.wait_for(lambda: self._sharing == 0)
        try:
            yield
        finally:
            with self._changed:
                self._is_exclusive = False
                self._changed.notify_all()
