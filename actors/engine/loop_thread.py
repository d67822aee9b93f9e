"""An event loop in a daemon thread of its own: what every engine lives on."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from actors.errors import EngineDead

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads until it is stopped; then it refuses them with `EngineDead`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `work` on the loop. Don't wait for the result on the loop's own thread: it would wait for itself."""
        with self._lock:  # a loop that stops between the check and the hand-over would leave the future unanswered
            if self._open:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise EngineDead("the engine is closed")

    def stop(self) -> None:
        """Cancel running tasks, end the thread and close the loop. Safe to call twice and from several threads."""
        with self._lock:
            if not self._open:
                return
            self._open = False
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # Results reach the waiting threads by callbacks of the finished tasks: one more round of the loop runs them.
    await asyncio.sleep(0)
