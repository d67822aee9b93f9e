"""Sends requests to an endpoint that isn't ours, with retries, and a circuit breaker that all requests share.

A request that fails is sent again after a wait that doubles each time, and not before the endpoint's Retry-After is over.
The breaker has two states:

    closed    requests are sent, up to a limit at a time; many failures in a row open it
    open      at the start, too: a short request with the settings of all others, the probe, is sent until it is answered.
              Everything else waits for that, and raises if nothing is answered for `patience_s`

So an outage is no request's outcome. A request that fails again and again while others are answered has failed for good.
"""

import asyncio
import contextlib
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from actors.endpoint.faults import EndpointFault, FaultKind
from actors.errors import AssayError, EndpointError, RunStopped

T = TypeVar("T")

OPENS_AT = 16
"""Failures in a row that open the breaker. An endpoint that fails a third of its requests does that once in 43 million."""
_TEN_TIMES = (FaultKind.FAILED, FaultKind.ABORTED, FaultKind.GARBLED)
# Failures after which a request has failed for good. A time-out costs minutes; one failure in ten, ten times in a row, is
# one in ten billion.
_MOST_FAILURES = {FaultKind.REFUSED: 2, FaultKind.TIMED_OUT: 3, **dict.fromkeys(_TEN_TIMES, 10)}
# Failures after which a request is sent without the others that failed as often: less than half of ten, so that another
# request that ends the server, and comes later, can't add as many again.
_SUSPECT_AT = 4
_FATAL_AT_START = (FaultKind.GARBLED, FaultKind.REFUSED, FaultKind.UNUSABLE)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 30.0
# A probe gets a minute at least: a small patience must not call an endpoint dead that is only loading its model.
_LEAST_PROBE_S = 60.0


class CircuitBreaker:
    """Whether an endpoint takes requests, as those before tell. They have numbers, in the order in which they are sent."""

    def __init__(
        self,
        endpoint: str,
        probe: Callable[[], Awaitable[object]],
        patience_s: float,
        setting: str = "--endpoint-patience-s",
    ) -> None:
        """`endpoint` is its name in messages, `setting` that of the patience.

        `probe` sends a short request; it raises `EndpointFault`.
        """
        self._setting = setting
        self.endpoint = endpoint
        self.patience_s = patience_s
        self.newest = 0  # the number of the newest request, a probe or another
        self._probe = probe
        self._prober = asyncio.Lock()
        self._answered = 0  # the newest request that was answered
        self._opened = 0  # the newest request when the breaker opened: the answer to a newer one closes it
        self._failures = 0  # in a row
        # When the first of them failed, and not when it was sent: one probe that hangs isn't all of patience.
        self._failing_since = math.inf
        self.probe_failed_at = -math.inf
        self._error: AssayError | None = None

    async def send(self, request: Callable[[], Awaitable[T]]) -> T:
        self.newest += 1
        number = self.newest
        try:
            answer = await request()
        except EndpointFault:
            self._failures += 1
            self._failing_since = min(self._failing_since, now())
            # By time as well: a few requests, of which each ends the server, may take all of patience to come to 16.
            if self._failures >= OPENS_AT or now() - self._failing_since >= self.patience_s / 2:
                self._opened = self.newest
            raise
        self._answered = max(self._answered, number)  # answers come in any order
        self._failures, self._failing_since = 0, math.inf
        return answer

    async def wait_until_closed(self, since: int = 0) -> None:
        """Wait until requests may be sent, and one that is newer than the number `since` was answered.

        Raises `RunStopped` if nothing is answered for `patience_s`, `EndpointError` if the settings can't work at all.
        """
        if self._is_closed(since):
            return
        async with self._prober:  # whoever comes first probes for all that wait
            probes = 0
            while not self._is_closed(since):
                await self._send_probe(probes)
                probes += 1

    def give_up(self, fault: EndpointFault) -> None:
        """End all requests with this fault of the endpoint."""
        text = f"{fault.text}; no answer for {self.patience_s:g} s ({self._setting})"
        self._error = RunStopped(f"the endpoint {self.endpoint} {text}")

    def _is_closed(self, since: int) -> bool:
        return self._error is None and self._answered > max(since, self._opened)

    async def _send_probe(self, times: int) -> None:
        if self._error is not None:
            raise self._error
        try:
            await self.send(self._probe_in_time)
        except EndpointFault as fault:
            self.probe_failed_at = now()
            patience_left_s = self._failing_since + self.patience_s - now()
            if fault.kind in _FATAL_AT_START and not self._answered:  # a mistake of the user's: no patience mends it
                self._error = EndpointError(f"the endpoint {self.endpoint} {fault.text}")
            elif patience_left_s <= 0:
                self.give_up(fault)
            else:  # the last probe goes out just as patience ends
                await asyncio.sleep(min(wait_s(times, fault), patience_left_s))

    async def _probe_in_time(self) -> None:
        # Not the request time-out of 600 s: while a probe hangs, everything waits and patience isn't checked.
        try:
            async with asyncio.timeout(max(_LEAST_PROBE_S, self.patience_s)):
                await self._probe()
        except TimeoutError as error:
            raise EndpointFault(FaultKind.TIMED_OUT, "didn't answer in time") from error


@dataclass
class _Failures:
    counts: Counter[FaultKind] = field(default_factory=Counter)
    began_at: float = math.inf
    newest: int = 0  # the newest request of all when this one failed last
    is_last_try: bool = False


class EndpointClient:
    """Sends requests to an endpoint, up to `at_a_time` at once, with retries. Used on one event loop."""

    def __init__(self, breaker: CircuitBreaker, at_a_time: int, notify: Callable[[str], object] | None) -> None:
        """`notify` is called with the first fault of each kind, in words."""
        self._breaker = breaker
        self._notify = notify
        self._noted = set[FaultKind]()
        self._places = asyncio.Semaphore(at_a_time)
        self._suspect = asyncio.Lock()
        self._unanswered = 0  # requests that have a place and no outcome yet
        self._answered_at = -math.inf  # when something other than a probe was answered last

    async def ask(self, send: Callable[[], Awaitable[T]]) -> T:
        """The result of `send`, which raises `EndpointFault`, and is called again after each failure.

        Raises the `EndpointFault` of a request that fails for good while others are answered; `RunStopped` if the endpoint
        answers nothing for `patience_s`, and `EndpointError` if the settings can't work at all.
        """
        failures = _Failures()
        async with self._places:  # kept through the waits too: a request that waits for its retry still counts as one
            self._unanswered += 1
            try:
                while True:
                    try:
                        return await self._send(send, failures)
                    except EndpointFault as fault:
                        self._record_or_raise(fault, failures)
                        wait = wait_s(failures.counts.total() - 1, fault)
                        await asyncio.sleep(min(wait, self._breaker.patience_s))  # a Retry-After of a day isn't waited for
            finally:
                self._unanswered -= 1

    async def _send(self, send: Callable[[], Awaitable[T]], failures: _Failures) -> T:
        # A prompt that ends the server takes down all that is under way with it. Those that failed several times go one at a
        # time, so that it fails again without them, and they are answered without it.
        is_suspect = failures.counts[FaultKind.FAILED] >= _SUSPECT_AT
        async with self._suspect if is_suspect else contextlib.nullcontext():
            almost = any(failures.counts[kind] >= most - 1 for kind, most in _MOST_FAILURES.items())
            failures.is_last_try = almost or self._is_in_vain(failures)
            # Before the last try something newer must have been answered: else it may be the endpoint that fails.
            await self._breaker.wait_until_closed(since=failures.newest if failures.is_last_try else 0)
            answer = await self._breaker.send(send)
        self._answered_at = now()
        return answer

    def _record_or_raise(self, fault: EndpointFault, failures: _Failures) -> None:
        failures.counts[fault.kind] += 1
        failures.began_at = min(failures.began_at, now())
        failures.newest = self._breaker.newest
        if fault.kind in _MOST_FAILURES:
            if failures.counts[fault.kind] >= _MOST_FAILURES[fault.kind]:
                raise fault
        elif failures.is_last_try and self._is_in_vain(failures):
            # An endpoint whose tokens of a day are used up answers probes, too, which are short, and takes nobody's request.
            if self._answered_at < failures.began_at and self._unanswered > 1:
                self._breaker.give_up(fault)
            else:
                raise fault
        self._note(fault)

    def _is_in_vain(self, failures: _Failures) -> bool:
        """Whether a request has failed for as long as patience lasts, in which no other was answered, but all probes were.

        A prompt above the tokens of a minute gets 429 for ever. While others are answered, the endpoint may just be busy.
        """
        since = max(failures.began_at, self._answered_at, self._breaker.probe_failed_at)
        return now() - since >= self._breaker.patience_s

    def _note(self, fault: EndpointFault) -> None:
        if self._notify is None or fault.kind in self._noted or fault.kind is FaultKind.REFUSED:  # refusals are outcomes
            return
        self._noted.add(fault.kind)
        self._notify(f"the endpoint {self._breaker.endpoint} {fault.text}; requests that fail so are sent again")


def wait_s(times: int, fault: EndpointFault) -> float:
    """Seconds to wait after a fault and `times` earlier ones: doubled each time, at least the endpoint's Retry-After."""
    wait = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(times, 16))  # 2.0 ** 1024 raises OverflowError
    # Up to half less: else hundreds of requests that failed together would all come back in the same moment.
    return max(wait * (1 - random.random() / 2), fault.retry_after_s)


def now() -> float:
    """Seconds of the running loop's clock."""
    return asyncio.get_running_loop().time()
