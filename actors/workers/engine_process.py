"""An engine in an actor's process: it does work block by block, and the process ends when the engine is dead.

Ray then starts the actor again and gives it the lost blocks. `ray.actor.exit_actor` wouldn't do: Ray doesn't retry after it.
"""

import atexit
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import ray

from actors.engine.protocol import Engine
from actors.errors import AssayError, EngineDead
from actors.launch.start_engine import Report
from actors.timeline import mark
from actors.workers.crash_ledger import SUSPECT, name_item

Item = TypeVar("Item")
Result = TypeVar("Result")
Compute = Callable[[Sequence[Item]], list[Result]]

# Blocks that are computed together at most; no actor gets as many at a time.
_PLACES = 256
# Of a thousand engines, the ledger gets 200 calls a second.
_LOAD_EVERY_S = 5.0


class EngineProcess(ABC, Generic[Item, Result]):
    """One engine, and what it does with items. `run` may be called from several threads at a time.

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
        threading.Thread(target=self._report_load, name="load", daemon=True).start()

    def _report_load(self) -> None:
        tested, before = self.engine.load[0], (0, 0)
        while True:
            time.sleep(_LOAD_EVERY_S)
            answered, under_way = self.engine.load
            if (load := (answered - tested, under_way)) != before:
                self._ledger.note_load.remote(self._holder, *load)
                before = load

    @abstractmethod
    def compute(self, items: Sequence[Item]) -> list[Result]:
        """The results of several items. Raises `EngineDead` if the engine dies."""

    def compute_anew(self, items: Sequence[Item]) -> list[Result]:
        """The same without what a store remembers."""
        return self.compute(items)

    @abstractmethod
    def is_answer(self, result: Result) -> bool:
        """Whether the engine itself answered: results of a store, rejections, its time-outs and refusals are no answers."""

    @abstractmethod
    def killer_result(self, item: Item) -> Result:
        """The result of an item that kills engines."""

    def run(self, work: str, items: Sequence[Item], compute: Compute[Item, Result] | None = None) -> list[Result]:
        """The result of each item. `work` names the block, the same in every process that ever gets it."""
        compute = compute or self.compute
        if self._call("deaths", work) < SUSPECT:
            with self._gate.share():
                return self._enter(work, items, compute)
        with self._gate.exclude_others():
            return self._one_by_one(work, items, compute)

    def _one_by_one(self, work: str, items: Sequence[Item], compute: Compute[Item, Result]) -> list[Result]:
        """Each item by itself, from the first without a result: a suspect block whose killer has to be found."""
        # The block itself isn't entered again, and so stays open from its second death on: `deaths` says 2 in every further
        # process, which comes here, too, and goes on behind the results that are there, until `leave`.
        results: list[Result] = self._call("results", work)
        for number, item in enumerate(items[len(results) :], len(results)):
            item_work = name_item(work, number)
            if self._call("deaths", item_work) >= SUSPECT:
                self._answer_witness(work, items, number)
                results.append(self.killer_result(item))
            else:
                results += self._enter(item_work, [item], compute)
            self._call("add_result", work, number, results[-1])
        self._call("leave", work)
        return results

    def _answer_witness(self, work: str, items: Sequence[Item], killer: int) -> None:
        """Do a harmless item, which a sound engine answers: so it was the item of the number `killer` that has killed.

        Before anything was answered, a later item of the block may be harmless: the last ones first, since killers are
        neighbours. If none is, nothing tells the killers from a broken engine, and the row of deaths goes on.
        """
        if (witness := self._call("witness")) is not None:
            self._enter(f"{self._holder}/witness", [witness], self.compute_anew)
            return
        for number in range(len(items) - 1, killer, -1):
            item_work = name_item(work, number)
            if self._call("deaths", item_work):
                continue
            (result,) = self._enter(item_work, [items[number]], self.compute_anew)
            if self.is_answer(result):
                return

    def _enter(self, work: str, items: Sequence[Item], compute: Compute[Item, Result]) -> list[Result]:
        # Do items as one entered work. A death ends the process: Ray then starts the actor again and repeats the call.
        self._call("enter", work, self._holder)
        try:
            results = compute(items)
        except EngineDead as error:
            self._call("note_error", str(error))
            os._exit(1)
        answered = (item for item, result in zip(items, results, strict=True) if self.is_answer(result))
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
        self._door = threading.Lock()
        self._places = threading.Semaphore(_PLACES)

    @contextmanager
    def share(self) -> Iterator[None]:
        with self._door:
            self._places.acquire()
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def exclude_others(self) -> Iterator[None]:
        # The door is closed first: blocks that come and go without a pause would never leave all places free.
        with self._door:
            for _ in range(_PLACES):
                self._places.acquire()
            try:
                yield
            finally:
                self._places.release(_PLACES)
