"""One answer for everybody who asks at about the same time, so that however many ask, the work is done once."""

import asyncio
import time
from collections.abc import Awaitable, Callable
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
