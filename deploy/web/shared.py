"""Shares one result among callers that come at about the same time, so that any number of them costs one call.

A call that blocks and may never return runs in a thread of its own, one at a time: while it hangs, no other is started.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """An asynchronous call whose result is cached for `lasts_s` seconds. Callers meanwhile wait for the same call."""

    def __init__(
        self, fetch: Callable[[], Awaitable[T]], lasts_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._lasts_s = lasts_s
        self._clock = clock
        self._answer: tuple[float, T] | None = None
        self._fetching: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The result, at most `lasts_s` old. Raises what the call raises; an error isn't cached."""
        if self._answer is not None and self._clock() - self._answer[0] < self._lasts_s:
            return self._answer[1]
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._refresh())
        return await asyncio.shield(self._fetching)  # a caller that is cancelled must not cancel it for the others

    async def _refresh(self) -> T:
        result = await self._fetch()
        self._answer = (self._clock(), result)
        return result


class Blocking(Generic[T]):
    """A blocking call that may hang. One runs at a time, in a daemon thread of its own rather than in a pool's."""

    def __init__(self, call: Callable[[], T], timeout_s: float) -> None:
        self._call = call
        self._timeout_s = timeout_s
        self._pending: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """What the call returns, or raises.

        Raises `TimeoutError` after `timeout_s`; later callers wait for the same call.
        """
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
