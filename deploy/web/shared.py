"""One answer for everybody who asks at about the same time, so that however many ask, the work is done once.

A call that blocks and may never return is made in a thread of its own, one at a time: while it hangs, nobody makes another.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """A question whose answer holds for a while. Those who ask while it is being found wait for the same answer."""

    def __init__(self, ask: Callable[[], Awaitable[T]], lasts_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._lasts_s = lasts_s
        self._clock = clock
        self._answer: tuple[float, T] | None = None
        self._asking: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The answer, not older than it may be. Raises what asking raises; an error isn't kept."""
        if self._answer is not None and self._clock() - self._answer[0] < self._lasts_s:
            return self._answer[1]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._find())
        return await asyncio.shield(self._asking)  # somebody who leaves leaves the others their answer

    async def _find(self) -> T:
        found = await self._ask()
        self._answer = (self._clock(), found)
        return found


class Blocking(Generic[T]):
    """A call that may hang. There is one at a time, in no thread that anything else needs."""

    def __init__(self, call: Callable[[], T], timeout_s: float) -> None:
        self._call = call
        self._timeout_s = timeout_s
        self._pending: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """What the call returns, or raises. Raises `TimeoutError` if it takes too long; it then stays the one."""
        if self._pending is None or self._pending.done():
            self._pending = self._begin()
        async with asyncio.timeout(self._timeout_s):
            return await asyncio.shield(self._pending)

    def _begin(self) -> asyncio.Future[T]:
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(self._call())
            except BaseException as error:  # noqa: BLE001  whoever waits raises it
                answer.set_exception(error)

        pending = asyncio.wrap_future(answer)
        pending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # also if nobody waits any more
        threading.Thread(target=work, daemon=True).start()
        return pending
