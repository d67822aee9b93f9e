"""An engine without a model: it runs a function on items in processes of its own, each bounded in time and memory.

For code that may hang, or take all memory, on a text that somebody wrote: SymPy on 9^(9^(9^9)). A process that does is
killed, and another takes its place. A chunk in which that happened is done item by item, so that one item fails alone.
"""

import asyncio
import ctypes
import itertools
import os
import queue
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from actors.engine.protocol import Engine
from actors.records import Reason

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items that are sent to a process together: sending one takes about as long as comparing two short texts.
_CHUNK = 64
# Seconds between two looks at a process's memory, and for a process to start and import on a busy machine.
_LOOK_S, _START_S = 0.1, 120.0
# Of resident memory. A limit by the kernel would raise MemoryError inside a library, which may take it for an answer.
_MOST_BYTES = 2 * 2**30
_PR_SET_PDEATHSIG = 1  # prctl's number: the signal that the kernel sends when the parent, here its thread, ends


class ProcessEngine(Engine):
    """Some processes, each of which has called `prepare` before its first item.

    An item has `request_timeout_s` seconds and 2 GiB. What takes more fails with `engine_timeout` or `engine_killer`, and
    what raises with `engine_refused`; all others keep their results.
    """

    max_model_len = 0
    runner = "none"

    def __init__(self, prepare: Callable[[], None], processes: int, request_timeout_s: float) -> None:
        super().__init__()
        self._timeout_s = request_timeout_s
        self._processes = [_Process(prepare) for _ in range(processes)]
        self._free = queue.SimpleQueue[_Process]()
        for process in self._processes:
            self._free.put(process)
        self._threads = ThreadPoolExecutor(processes, "processes")
        self._answered = self._under_way = 0

    @property
    def load(self) -> tuple[int, int]:
        return self._answered, self._under_way

    async def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Reason]:
        """The result of `function` for each item, in their order, or the reason why it has none.

        `function` and items are pickled, 64 items at a time.
        """
        run_in_thread = asyncio.get_running_loop().run_in_executor
        chunks = (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))
        self._under_way += len(items)
        try:
            works = [run_in_thread(self._threads, self._run_chunk, function, chunk) for chunk in chunks]
            results = list(itertools.chain.from_iterable(await asyncio.gather(*works)))
        finally:
            self._under_way -= len(items)
        self._answered += len(items)
        return results

    def _run_chunk(self, function: Callable[[Item], Result], chunk: Sequence[Item]) -> list[Result | Reason]:
        process = self._free.get()  # there are as many as threads
        try:
            # The time is a chunk's: 64 items that take 0.2 s each are done again one by one, and each has its own then.
            results = process.run(function, chunk, self._timeout_s)
            if isinstance(results, Reason):
                alone = (process.run(function, [item], self._timeout_s) for item in chunk) if len(chunk) > 1 else [results]
                return [result if isinstance(result, Reason) else result[0] for result in alone]
            return results
        finally:
            self._free.put(process)

    async def health(self) -> None:
        """See `Engine`. A process that has ended is started again, so nothing can be wrong with it for long."""

    async def _end(self) -> None:
        for process in self._processes:
            process.end()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Process:
    """One process, started at the first need and again after each that was killed."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._executor: Any = None

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item], timeout_s: float
    ) -> list[Result | Reason] | Reason:
        """The results, or the reason why the process was killed, or died, on them."""
        from loky.process_executor import BrokenProcessPool, ProcessPoolExecutor  # it doesn't run the user's script

        reason = Reason.ENGINE_KILLER
        try:
            if self._executor is None:
                self._executor = ProcessPoolExecutor(1, initializer=_begin, initargs=(self._prepare,))
                self._executor.submit(os.getpid).result(_START_S)
            executor = self._executor
            future = executor.submit(_apply, function, items)
            deadline = time.monotonic() + timeout_s
            # Looked up each time: loky replaces a process that has grown by 300 MB.
            while sum(map(_resident_bytes, list(executor._processes or ()))) <= _MOST_BYTES:
                try:
                    results: list[Result | Reason] = future.result(_LOOK_S)
                    return results
                except TimeoutError:
                    if time.monotonic() > deadline:
                        reason = Reason.ENGINE_TIMEOUT
                        break
        except (BrokenProcessPool, TimeoutError):  # it has died, or never began
            pass
        self.end()
        return reason

    def end(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(kill_workers=True)


def _begin(prepare: Callable[[], None]) -> None:
    # In a new process: it ends with the thread that started it, and Ctrl-C isn't for it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare()


def _apply(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Reason]:
    results: list[Result | Reason] = []
    for item in items:
        try:
            results.append(function(item))
        except Exception:  # noqa: BLE001  whatever a library raises on a text: it is this item's failure
            results.append(Reason.ENGINE_REFUSED)
    return results


def _resident_bytes(process: int) -> int:
    try:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
