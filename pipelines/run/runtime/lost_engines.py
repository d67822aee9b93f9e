"""Watches the engines of a pipeline: reports what their start waits for, and ends the pipeline if engines lost their nodes.

Ray restarts an actor of a lost node where there is room, and gives it its calls again. An actor pool of Ray Data makes room
by ending idle engines. Pools that several steps share don't, and with no GPU left nobody can: those calls would wait for
ever. The pipeline is then ended with `EnginesLost`, and the remaining engines start it again with what is missing.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray.data._internal.execution.execution_callback import ExecutionCallback

from actors.errors import EnginesLost
from actors.launch.placement import is_wanted
from actors.text.counted import number_of
from actors.workers.crash_ledger import EngineStarts
from actors.workers.engine_process import alive_nodes
from pipelines.run.runtime.progress import Progress
from pipelines.run.runtime.session import PLACE_S, place_message

_CHECK_EVERY_S = 5.0
_REPORT_EVERY_S = 0.5  # Ray Data calls at every step, of which there are many a second
# Wait before giving up: a new node may join within a minute, or an idle engine make room; a restart costs the start of all
# engines.
_GRACE_S = 60.0


@contextlib.contextmanager
def watch_first_worker(ledgers: Sequence[Any], notify: Callable[[str], None], patience_s: float = PLACE_S) -> Iterator[None]:
    """In the block, report once if Ray has started no worker process after a time: then its logs say why.

    Where all workers die at their start, Ray starts others for ever, and `EngineWatch` is never called.
    """
    ended = threading.Event()
    # A ledger is an actor, so its first answer tells that a worker process has started.
    answers = [ledger.engine_starts.remote() for ledger in ledgers[:1]]

    def watch() -> None:
        deadline = time.monotonic() + patience_s
        while answers and not ended.is_set() and not ray.wait(answers, timeout=_REPORT_EVERY_S)[0]:
            if time.monotonic() >= deadline:
                node: Any = ray._private.worker._global_node
                notify(
                    f"Ray has started no worker process for {patience_s:.0f} s; why is in the logs under "
                    f"{node.get_session_dir_path()}/logs on the head node"
                )
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()  # a thread that calls Ray after its shutdown would end this process


class EngineWatch(ExecutionCallback):
    """Called by Ray Data at every step of a dataset's execution; an exception ends the execution."""

    def __init__(self, ledgers: Sequence[Any], gpus: int, progress: Progress, endpoint_ledgers: Sequence[Any] = ()) -> None:
        """`progress` gets what the first engines wait for and do, each step once, restarts, warnings, and the load of all.

        `gpus` is how many an engine takes. Of `endpoint_ledgers`, which have no engines, only the warnings are read.
        """
        self._ledgers = ledgers
        self._endpoint_ledgers = endpoint_ledgers
        self._gpus = gpus
        self._progress = progress
        self._reported: set[str] = set()
        self._reported_restarts = 0
        self._are_ready = not ledgers  # there is none where endpoints generate and judge
        self._load: tuple[int, int] | None = None
        self._reported_at = 0.0
        self._began_at = self._checked_at = self._complete_at = time.monotonic()

    def on_execution_step(self, executor: Any) -> None:
        """Raise `EnginesLost` if for `_GRACE_S` lost engines have waited for a place while all others were idle."""
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_EVERY_S:
            self._reported_at = now
            self._report(now)
        if now - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = now
        lost = self._count_lost()
        if not lost:
            self._complete_at = now
        if now - self._complete_at >= _GRACE_S:
            loss = "an engine went with its node" if lost == 1 else f"{lost} engines went with their nodes"
            raise EnginesLost(f"{loss}, and found no other place")

    def after_execution_succeeds(self, executor: Any) -> None:
        self._report(time.monotonic())  # what happened since the last report

    def after_execution_fails(self, executor: Any, error: Exception) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # with their node, the ledgers may be gone as well
            self._report_events()

    def _report(self, now: float) -> None:
        starts: list[EngineStarts] = ray.get([ledger.engine_starts.remote() for ledger in self._ledgers])
        if not self._are_ready:
            self._report_start(now, starts)
        ready = [start.at for start in starts if start.at is not None]
        load = sum(start.answered for start in starts), sum(start.under_way for start in starts)
        if self._are_ready and ready and load != self._load:
            self._load = load
            self._progress.loaded(*load, time.time() - max(ready))
        self._report_events()

    def _report_start(self, now: float, starts: Sequence[EngineStarts]) -> None:
        for step, node in itertools.chain.from_iterable(
            ray.get([ledger.list_start_steps.remote() for ledger in self._ledgers])
        ):
            self._report_once(step, f"{step}{self._place(node)}")
        self._are_ready = all(start.at is not None for start in starts)
        if self._are_ready:
            self._report_once("ready", "the first engine is ready; waiting for the first part")
        elif not any(start.engines for start in starts) and now - self._began_at >= PLACE_S:
            needed = f"{number_of(self._gpus, 'GPU')} and half a CPU" if self._gpus else "half a CPU"
            self._report_once("place", place_message(f"Ray to start the first engine, which takes {needed}"))

    def _report_once(self, event: str, text: str) -> None:
        if event not in self._reported:
            self._reported.add(event)
            self._progress.noted(text)

    def _place(self, node: str) -> str:
        """Where an engine starts, as far as it isn't plain: its GPUs, and its node if there are several."""
        nodes = {alive["NodeID"]: alive["NodeName"] for alive in ray.nodes() if alive["Alive"]}  # type: ignore[no-untyped-call]
        gpus = number_of(self._gpus, "GPU") if self._gpus else ""
        return "".join(f" on {place}" for place in (gpus, nodes.get(node) if len(nodes) > 1 else "") if place)

    def _report_events(self) -> None:
        self._report_restarts()
        warned = [ledger.warnings.remote() for ledger in (*self._ledgers, *self._endpoint_ledgers)]
        for text in itertools.chain.from_iterable(ray.get(warned)):
            self._report_once(text, text)

    def _report_restarts(self) -> None:
        ledger_restarts = ray.get([ledger.restarts.remote() for ledger in self._ledgers])
        restarts = sum(times for times, _ in ledger_restarts)
        # A sum so far, and not a line for each: a pool may lose many engines with one node.
        if restarts > self._reported_restarts:
            self._reported_restarts = restarts
            last = max(ledger_restarts)[1]
            self._progress.noted(f"engines died and were started again, {restarts} so far; the last one: {last}")

    def _count_lost(self) -> int:
        """The number of lost engines that wait for a place; 0 while any other engine is busy, since the run progresses."""
        nodes = alive_nodes()
        healths = ray.get([ledger.engine_health.remote(nodes) for ledger in self._ledgers])
        # An engine that was removed while it started never becomes ready: by the ledger it would be busy for good.
        if any(is_wanted(engine) for health in healths for engine in health.busy):
            return 0
        return sum(is_wanted(engine) for health in healths for engine in health.lost)
