"""How an endpoint that isn't ours is asked: patiently, and never harder for its failing.

What passes by (no connection, an overload, an error of the server, no answer in time) is no outcome of a request: it is sent
again, after a while that doubles each time, and not before the endpoint wants it to be. A breaker is shared by all requests:

    open      at the beginning, and after many failures in a row: a probe goes out at a time, a short question that asks for
              what requests ask for, and everything else waits for what comes of it, however much that is
    closed    once anything is answered: everything goes out, so many at a time
    ended     when probes were in vain for as long as there is patience. Everybody who waits hears why

Some requests an endpoint doesn't answer by themselves: it refuses them, or breaks on them. That is an outcome, but only if
another one that was sent later is answered, if need be a probe.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import NoReturn, TypeVar

from actors.errors import EndpointError, EngineError

T = TypeVar("T")

OPENS_AT = 16
"""Failures in a row. Of an endpoint that fails a third of all requests, 16 in a row are one in forty millions."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 10.0
_LONGEST_BUSY_S = 60.0
"""After a 429 beside answers, by which hundreds that want to come to a pace of a few a second."""
_FEWEST_PROBES = 3
"""Fewer failures of probes say nothing, however long they took: an endpoint may be slow."""
_MOST_FAILURES, _A_TIMEOUT = 20, 7
"""Failures of a request that is answered by no more, beside others that are; a time-out costs as much as some of them."""


class FaultKind(Enum):
    """What a failure may be due to."""

    BUSY = "busy"
    """The endpoint, for sure: it isn't there, or has too much to do."""
    FAILED = "failed"
    """The endpoint, or this request, on which it breaks."""
    TIMED_OUT = "timed out"
    """The same, after a long time."""
    GARBLED = "garbled"
    """The same; at the first question, an address at which something else is."""
    REFUSED = "refused"
    """This request, or at the first question the settings that all of them have."""
    UNUSABLE = "unusable"
    """An address, a key or a name that won't do; later on, an endpoint that changes."""


_AS_GIVEN = (FaultKind.GARBLED, FaultKind.REFUSED, FaultKind.UNUSABLE)
_COUNT = {FaultKind.FAILED: 1, FaultKind.GARBLED: 1, FaultKind.TIMED_OUT: _A_TIMEOUT}


class EndpointFault(Exception):
    """A request that wasn't answered; `text` says why, as the end of a sentence that begins with the endpoint.

    `retry_after_s` is how long the endpoint wants to be left alone.
    """

    def __init__(self, kind: FaultKind, text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.retry_after_s = retry_after_s


def wait_s(times: int, jitter: float, longest: float = _LONGEST_WAIT_S) -> float:
    """How long to wait after so many failures: doubled each time, up to a bound; `jitter` (0 to 1) takes up to half off."""
    return min(longest, _FIRST_WAIT_S * 2.0 ** min(times, 16)) * (1 - jitter / 2)


class Breaker:
    """Knows how an endpoint stands, from what came of the requests. Times are seconds of one clock, given by the caller."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._failing_since: float | None = None
        self._failures = 0
        self._probes = 0
        self.is_open = True
        self.is_proven = False
        """Whether it has ever answered."""
        self.sent = 0
        """The number of the newest request."""
        self.answered = 0
        """The number of the newest request that was answered."""
        self.probe_at = 0.0

    def send(self) -> int:
        """A request goes out; its number."""
        self.sent += 1
        return self.sent

    def passed(self, number: int) -> None:
        """It was answered."""
        self.answered = max(self.answered, number)
        self.is_open, self.is_proven = False, True
        self._failing_since, self._failures, self._probes = None, 0, 0

    def failed(self, now: float) -> None:
        """A request wasn't."""
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._failures += 1
        if not self.is_open and (self._failures >= OPENS_AT or self._waited(now) >= self._patience_s):
            self.is_open, self._probes, self.probe_at = True, 0, now

    def probe_failed(self, now: float, retry_after_s: float, jitter: float) -> bool:
        """A probe wasn't, either; returns whether there is patience for another one, which is at `probe_at`."""
        self._failing_since = now if self._failing_since is None else self._failing_since
        wait = max(wait_s(self._probes, jitter), retry_after_s)
        self._probes += 1
        left = self._patience_s - self._waited(now)
        self.probe_at = now + (min(wait, left) if left > 0 else wait)
        return left > 0 or self._probes < _FEWEST_PROBES

    def _waited(self, now: float) -> float:
        return 0.0 if self._failing_since is None else now - self._failing_since


class _Tries:
    """What came of a request so far."""

    def __init__(self) -> None:
        self.waits = 0
        self.failures = 0
        self.failed_at = 0
        """The number under which it failed last; of a failure that it may be itself the cause of."""
        self.refused_at: int | None = None


class Patience:
    """Asks an endpoint, not more than so much at a time. Used on one event loop."""

    def __init__(
        self,
        endpoint: str,
        probe: Callable[[], Awaitable[object]],
        *,
        at_a_time: int,
        patience_s: float,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`endpoint` is what it is called in messages. `probe` asks a short question, and raises `EndpointFault`."""
        self._endpoint = endpoint
        self._probe = probe
        self._patience_s = patience_s
        self._jitter = jitter
        self._breaker = Breaker(patience_s)
        self._places = asyncio.Semaphore(at_a_time)
        self._closed = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[tuple[int, EndpointFault | None]] | None = None

    async def ask(self, send: Callable[[], Awaitable[T]]) -> T:
        """What `send` gives, which raises `EndpointFault`, and is called as often as it takes.

        Raises the `EndpointFault` of a request that is refused, or broken on, by itself, `EngineError` if the endpoint
        answers nothing any more, and `EndpointError` if it can't be asked as it is given.
        """
        tries = _Tries()
        async with self._places:
            while True:
                await self._admitted()
                number = self._breaker.send()
                try:
                    answer = await send()
                except EndpointFault as fault:
                    await self._consider(fault, number, tries)
                    longest = _LONGEST_BUSY_S if fault.kind is FaultKind.BUSY else _LONGEST_WAIT_S
                    wait = max(wait_s(tries.waits, self._jitter(), longest), fault.retry_after_s)
                else:
                    self._passed(number)
                    return answer
                tries.waits += 1
                await asyncio.sleep(min(wait, self._patience_s))

    async def _consider(self, fault: EndpointFault, number: int, tries: _Tries) -> None:
        """Return if it is to be sent again."""
        if fault.kind is FaultKind.REFUSED:
            if tries.refused_at is None:  # once may be the endpoint's mood
                tries.refused_at = number
                return
            if await self._trouble(tries.refused_at) is None:
                raise fault
            tries.refused_at = None
        elif fault.kind in _COUNT:
            tries.failures += _COUNT[fault.kind]
            if tries.failures >= _MOST_FAILURES:
                if await self._trouble(tries.failed_at) is None:
                    raise fault
                tries.failures = 0
            tries.failed_at = number
        self._breaker.failed(self._now())
        if self._breaker.is_open:
            self._closed.clear()

    async def _admitted(self) -> None:
        """Wait until a request may go out. Raises if none ever will."""
        while self._breaker.is_open:
            if self._probing is None or (self._probing.done() and self._probing.exception() is None):
                self._probing = asyncio.ensure_future(self._until_answered())
            await asyncio.shield(self._probing)

    async def _until_answered(self) -> None:
        while self._breaker.is_open:
            with contextlib.suppress(TimeoutError):  # what went out before may still be answered
                await asyncio.wait_for(self._closed.wait(), max(0.0, self._breaker.probe_at - self._now()))
            if not self._breaker.is_open:
                return
            fault = await self._trouble(self._breaker.sent)
            if fault is None or not self._breaker.is_open:
                return
            if fault.kind in _AS_GIVEN and not self._breaker.is_proven:
                raise EndpointError(f"the endpoint {self._endpoint} {fault.text}")
            if not self._breaker.probe_failed(self._now(), fault.retry_after_s, self._jitter()):
                self._give_up(fault)

    def _give_up(self, fault: EndpointFault) -> NoReturn:
        raise EngineError(
            f"the endpoint {self._endpoint} {fault.text}; that is so for {self._patience_s:g} s (--endpoint-patience-s)"
        )

    async def _trouble(self, since: int) -> EndpointFault | None:
        """None if a request that was sent after the one of this number was answered, or else what a probe now comes to."""
        while self._breaker.answered <= since:
            if self._checking is None or self._checking.done():
                self._checking = asyncio.ensure_future(self._check())
            number, fault = await asyncio.shield(self._checking)
            if fault is not None and number > since:
                return fault
        return None

    async def _check(self) -> tuple[int, EndpointFault | None]:
        number = self._breaker.send()
        try:
            await self._probe()
        except EndpointFault as fault:
            return number, fault
        self._passed(number)
        return number, None

    def _passed(self, number: int) -> None:
        self._breaker.passed(number)
        self._closed.set()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
