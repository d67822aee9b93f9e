"""Shares one result among callers that come at about the same time, so that any number of them costs one call."""

import asyncio
import time
from collections.abc import Awaitable, Callable
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
        # Never two at a time: whoever comes while one is under way gets its result, however old the last one is.
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._refresh())
        return await asyncio.shield(self._fetching)  # a caller that is cancelled must not cancel it for the others

    async def _refresh(self) -> T:
        result = await self._fetch()
        self._answer = (self._clock(), result)
        return result
