"""Sends requests to an endpoint that isn't ours, with retries, and a circuit breaker that all requests share.

A temporary failure (no connection, overload, server error, time-out) is not an outcome of a request: it is sent again after
a wait that doubles each time, and not earlier than the endpoint's Retry-After. The breaker has three states:

    open      at the start, and after many failures in a row: one probe is sent at a time, a short request with the settings
              of all requests, and all other requests wait for its result, whatever their number
    closed    once anything was answered: all requests are sent, up to a limit at a time
    ended     once probes have failed for `patience_s`: every waiting request raises

Some requests fail by themselves: the endpoint refuses them, breaks on them, or has no room for them however long they wait.
That is an outcome, but only if another request that was sent later is answered; a probe is sent to find out, if need be. And
a request on which a server breaks takes those down with it that are under way: where others fail as well, it isn't known
which it was, so each is sent once more with nothing else under way, and is blamed if it fails then.
"""

import asyncio
import contextlib
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from enum import Enum
from typing import NamedTuple, NoReturn, TypeVar

from actors.errors import EndpointError, EngineError

T = TypeVar("T")

OPENS_AT = 16
"""Failures in a row that open the breaker. An endpoint that fails a third of its requests does that once in 43 million."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 10.0
_LONGEST_BUSY_S = 60.0
"""Longest wait after a 429. With 512 requests waiting 60 s each, an overloaded endpoint gets some ten a second."""
_FEWEST_PROBES = 3
"""Failed probes before the endpoint is given up, even if `patience_s` is over: one slow time-out can use all of it."""
_MOST_FAILURES, _A_TIMEOUT = 20, 7
"""Failures after which a request is suspected rather than the endpoint. A time-out weighs 7: three of them are enough."""
_SLOW_S = 30.0
"""A failure that took as long weighs as a time-out: a server that hangs a minute and closes would hold a row 20 times."""


class FaultKind(Enum):
    """Who may be at fault: the endpoint, this request, or the settings."""

    BUSY = "busy"
    """The endpoint: it isn't reachable, or is overloaded (429). This request, if it never gets another answer."""
    FAILED = "failed"
    """The endpoint, or this request, which makes it answer 5xx or drop the connection."""
    TIMED_OUT = "timed out"
    """As `FAILED`, and it cost the whole request time-out."""
    GARBLED = "garbled"
    """As `FAILED`: the answer is no chat completion. Before any good answer: something else listens at the address."""
    REFUSED = "refused"
    """This request. Before any good answer: the settings that all requests share."""
    UNUSABLE = "unusable"
    """The address, the key or the model's name. After good answers: as `BUSY`, since the endpoint may change back."""


_NOTED_FROM = 100
"""Unanswered requests after which a note says how many there are; the next ones come at ten times as many each."""

_SILENT_S = 30.0
"""Seconds without an answer, while requests wait, after which a note says so; the next comes after ten times as long."""

_FATAL_AT_START = (FaultKind.GARBLED, FaultKind.REFUSED, FaultKind.UNUSABLE)
_FAILURE_WEIGHT = {FaultKind.FAILED: 1, FaultKind.GARBLED: 1, FaultKind.TIMED_OUT: _A_TIMEOUT}


class EndpointFault(Exception):
    """A request that wasn't answered; `text` says why, as a predicate whose subject is the endpoint.

    `retry_after_s` is the endpoint's Retry-After in seconds, 0 without one.
    """

    def __init__(self, kind: FaultKind, text: str, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.retry_after_s = retry_after_s


def wait_s(times: int, jitter: float, longest: float = _LONGEST_WAIT_S) -> float:
    """Seconds to wait after `times` earlier waits: doubled each time, up to `longest`.

    `jitter` (0 to 1) takes up to half off. Without jitter, hundreds of requests that failed together would all come back in
    the same moment.
    """
    # The exponent is bounded because 2.0 ** 1024 raises OverflowError; 0.25 s * 2^16 is far above any `longest`.
    return min(longest, _FIRST_WAIT_S * 2.0 ** min(times, 16)) * (1 - jitter / 2)


class Breaker:
    """The state of an endpoint, from the outcomes of its requests. Times are seconds of one clock, given by the caller."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._failing_since: float | None = None
        self._failures = 0
        self._probes = 0
        self.is_open = True
        self.is_proven = False
        """Whether the endpoint has ever answered a request."""
        self.sent = 0
        """The number of the newest request."""
        self.answered = 0
        """The number of the newest request that was answered."""
        self.probe_at = 0.0

    def send(self) -> int:
        """Count a request that is sent now, and return its number."""
        self.sent += 1
        return self.sent

    def record_answer(self, number: int) -> None:
        """Record that this request was answered; closes the breaker."""
        self.answered = max(self.answered, number)  # answers come in any order
        self.is_open, self.is_proven = False, True
        self._failing_since, self._failures, self._probes = None, 0, 0

    def record_failure(self, now: float) -> None:
        """Record that a request failed; opens the breaker after 16 failures in a row, or failures for half the patience."""
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._failures += 1
        # By time as well: a few requests that all get 429 may take very long to come to 16 failures in a row. The other half
        # is for probes: a request that ends the server each time may be the only one.
        if not self.is_open and (self._failures >= OPENS_AT or self._failing_for_s(now) >= self._patience_s / 2):
            self.open(now)

    def open(self, now: float) -> None:
        """Open the breaker: a probe is due, and until something is answered nothing else is sent."""
        self.is_open, self._probes, self.probe_at = True, 0, now

    def record_failed_probe(self, now: float, retry_after_s: float, jitter: float) -> bool:
        """Record that a probe failed; returns whether another one is due, at `probe_at`."""
        self._failing_since = now if self._failing_since is None else self._failing_since
        wait = max(wait_s(self._probes, jitter), retry_after_s)
        self._probes += 1
        patience_left_s = self._patience_s - self._failing_for_s(now)
        # The last probe goes out just as patience ends, also where Retry-After asks for more: else it would never be sent.
        self.probe_at = now + (min(wait, patience_left_s) if patience_left_s > 0 else wait)
        return patience_left_s > 0 or self._probes < _FEWEST_PROBES

    def _failing_for_s(self, now: float) -> float:
        return 0.0 if self._failing_since is None else now - self._failing_since


class _RequestFailures:
    """The failures of one request so far. Times are seconds of the loop's clock."""

    def __init__(self) -> None:
        self.waits = 0
        self.began_at = math.inf
        """When it failed first."""
        self.weight = 0
        """Failures that the request itself may have caused, a time-out as 7."""
        self.refused_at: int | None = None
        """The number under which it was refused, until a second refusal decides."""


class _Sent(NamedTuple):
    """A request under way, with its number."""

    number: int
    at: float
    breaks: int
    """Failures by then that a request may have caused."""
    is_alone: bool


class _Gate:
    """Lets many requests go together, or one alone: others must not fail with a suspect, and be taken for the cause.

    Suspects go first, one after another, so that the others wait only once for those that are under way to end.
    """

    def __init__(self) -> None:
        self._suspects = self._sharing = 0
        self._no_suspect, self._empty = asyncio.Event(), asyncio.Event()
        self._empty.set()
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def share(self) -> AsyncIterator[None]:
        while self._suspects:
            await self._no_suspect.wait()
        self._sharing += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._sharing -= 1
            if not self._sharing:
                self._empty.set()

    @contextlib.asynccontextmanager
    async def exclude_others(self) -> AsyncIterator[None]:
        # Closed first, and only then empty: requests that come and go without a pause would never leave it empty.
        self._suspects += 1
        self._no_suspect.clear()
        try:
            async with self._turn:
                await self._empty.wait()
                yield
        finally:
            self._suspects -= 1
            if not self._suspects:
                self._no_suspect.set()


class _Silence:
    """Notices how long nothing was answered while requests wait. Used on one event loop.

    A server that hangs gives no fault before the request time-out, which may be ten minutes.
    """

    def __init__(self, notify: Callable[[float, int], None]) -> None:
        """`notify` is called with the seconds without an answer, and the number of requests that wait."""
        self._notify = notify
        self._waiting = 0
        self._began_at = 0.0
        self._next_s = _SILENT_S
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Count a request as waiting within the block."""
        if not self._waiting:
            self._begin()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._stop()

    def end(self) -> None:
        """Begin anew: something was answered."""
        self._stop()
        if self._waiting:
            self._begin()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._began_at, self._next_s = loop.time(), _SILENT_S
        self._timer = loop.call_later(_SILENT_S, self._check)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._notify(loop.time() - self._began_at, self._waiting)
        self._next_s *= 10
        self._timer = loop.call_at(self._began_at + self._next_s, self._check)


class EndpointClient:
    """Sends requests to an endpoint, up to `at_a_time` at once, with retries. Used on one event loop."""

    def __init__(
        self,
        endpoint: str,
        probe: Callable[[], Awaitable[object]],
        *,
        at_a_time: int,
        patience_s: float,
        jitter: Callable[[], float] = random.random,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        """`endpoint` is its name in messages. `probe` sends a short request; it raises `EndpointFault`.

        `notify` is called with what fails, in words: the first fault of each kind, and then how many there were; and with
        how long nothing has been answered, while requests wait for it.
        """
        self._endpoint = endpoint
        self._probe = probe
        self._patience_s = patience_s
        self._jitter = jitter
        self._notify = notify
        self._faults: Counter[FaultKind] = Counter()
        self._noted_next = _NOTED_FROM
        self._silence = _Silence(self._note_silence)
        self._breaker = Breaker(patience_s)
        self._places = asyncio.Semaphore(at_a_time)
        self._gate = _Gate()
        self._breaks = 0
        """Failures that a request may have caused."""
        self._answered_at = -math.inf
        """When something other than a probe was answered last."""
        self._waiting = 0
        """Requests that have no outcome yet, without those that wait for a place."""
        self._final_error: EngineError | None = None
        self._closed = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[tuple[int, EndpointFault | None]] | None = None

    async def ask(self, send: Callable[[], Awaitable[T]]) -> T:
        """The result of `send`, which raises `EndpointFault`, and is called again after each temporary failure.

        Raises the `EndpointFault` of a request that the endpoint refuses, or breaks on, while it answers others;
        `EngineError` if it answers nothing for `patience_s`, and `EndpointError` if the settings can't work at all.
        """
        failures = _RequestFailures()
        async with self._place():  # kept through the waits too: a request that waits for its retry still counts as one
            while True:
                is_alone = self._is_suspect(failures)
                async with self._gate.exclude_others() if is_alone else self._gate.share():
                    if self._final_error is not None:
                        raise self._final_error
                    if is_alone and not self._is_suspect(failures):
                        continue  # others were answered while it waited for its turn
                    await self._wait_until_closed()
                    sent = _Sent(self._breaker.send(), self._now(), self._breaks, is_alone)
                    try:
                        with self._silence.watched():
                            answer = await send()
                    except EndpointFault as error:
                        fault = error
                    else:
                        self._record_answer(sent.number)
                        self._answered_at = self._now()
                        return answer
                self._note(fault)
                await self._record_or_raise(fault, sent, failures)
                longest = _LONGEST_BUSY_S if fault.kind is FaultKind.BUSY else _LONGEST_WAIT_S
                wait = max(wait_s(failures.waits, self._jitter(), longest), fault.retry_after_s)
                failures.waits += 1
                await asyncio.sleep(min(wait, self._patience_s))  # a Retry-After of a day isn't waited for

    @contextlib.asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        async with self._places:
            self._waiting += 1
            try:
                yield
            finally:
                self._waiting -= 1

    async def _record_or_raise(self, fault: EndpointFault, sent: _Sent, failures: _RequestFailures) -> None:
        """Record a failure of a request that is to be sent again, or raise it as the request's outcome.

        A request is blamed only if the endpoint answered something that was sent after it: an endpoint that fails everything
        must not reject rows one by one.
        """
        failures.began_at = min(failures.began_at, self._now())
        if fault.kind is FaultKind.REFUSED:
            if failures.refused_at is None:  # one refusal may be temporary: a second one decides
                failures.refused_at = sent.number
                return
            if await self._fault_since(failures.refused_at) is None:
                raise fault
            failures.refused_at = None  # the probe failed as well: it is the endpoint, and the request starts anew
        elif fault.kind in _FAILURE_WEIGHT:
            await self._weigh_or_raise(fault, sent, failures)
        elif sent.is_alone and self._waits_in_vain(failures) and await self._fault_since(sent.number) is None:
            # A probe is short: an endpoint whose tokens of a day are used up still answers it, and takes nobody's request.
            if self._answered_at < failures.began_at and self._waiting > 1:
                self._give_up(fault)
            raise fault
        self._breaker.record_failure(self._now())
        if self._breaker.is_open:
            self._closed.clear()

    async def _weigh_or_raise(self, fault: EndpointFault, sent: _Sent, failures: _RequestFailures) -> None:
        """Weigh a failure that the request may have caused, or raise it.

        20 failures at once, or 3 time-outs (3 x 7), are enough: a row that breaks a server costs it one more at most.
        """
        self._breaks += 1
        failures.weight += _A_TIMEOUT if self._now() - sent.at >= _SLOW_S else _FAILURE_WEIGHT[fault.kind]
        if failures.weight < _MOST_FAILURES:
            return
        if sent.is_alone:
            self._breaker.open(self._now())
            self._closed.clear()
            await self._wait_until_closed()  # a server that it ended has to start again
            raise fault
        if await self._fault_since(self._breaker.sent) is not None:
            return
        # A crash drops connections. Time-outs aren't tried alone: each would take as long again, and all others would wait.
        # By the time that a probe is answered, what a crash took down has failed too, and the request is then sent alone.
        if fault.kind is FaultKind.TIMED_OUT or self._breaks == sent.breaks + 1:
            raise fault

    def _is_suspect(self, failures: _RequestFailures) -> bool:
        """Whether a request is to be sent alone, to find out whether its failures are due to itself."""
        return failures.weight >= _MOST_FAILURES or self._waits_in_vain(failures)

    def _waits_in_vain(self, failures: _RequestFailures) -> bool:
        """Whether a request has failed for `patience_s`, in which no other was answered.

        As one above a limit of tokens per minute, which gets 429 for ever. While others are answered, the endpoint may just
        be busy with them.
        """
        return self._now() - max(failures.began_at, self._answered_at) >= self._patience_s

    def _note(self, fault: EndpointFault) -> None:
        """Say of the first temporary fault of each kind, and at 100, 1,000 ... how many there were."""
        if self._notify is None or fault.kind is FaultKind.REFUSED:  # a refusal is an outcome, which the summary counts
            return
        self._faults[fault.kind] += 1
        if self._faults[fault.kind] == 1:
            self._notify(f"the endpoint {self._endpoint} {fault.text}; requests that fail so are sent again")
        if self._faults.total() >= self._noted_next:
            self._noted_next *= 10
            kinds = ", ".join(f"{count:,} {kind.value}" for kind, count in self._faults.most_common())
            self._notify(
                f"the endpoint {self._endpoint} failed {self._faults.total():,} times so far ({kinds}), and is asked again; "
                f"the last time it {fault.text}"
            )

    def _note_silence(self, seconds: float, waiting: int) -> None:
        if self._notify is not None:
            requests = "a request waits" if waiting == 1 else f"{waiting:,} requests wait"
            self._notify(f"the endpoint {self._endpoint} has answered nothing for {seconds:.0f} s, and {requests} for it")

    async def _wait_until_closed(self) -> None:
        """Wait until requests may be sent. Raises the final error once the breaker has ended."""
        while self._breaker.is_open:
            # A task that raised is kept: whoever comes later gets the same error without waiting for `patience_s` again.
            if self._closing is None or (self._closing.done() and self._closing.exception() is None):
                self._closing = asyncio.ensure_future(self._probe_until_closed())
            await asyncio.shield(self._closing)  # shared: a request that is cancelled must not cancel it for the others

    async def _probe_until_closed(self) -> None:
        while self._breaker.is_open:
            with contextlib.suppress(TimeoutError):  # requests that were sent before may be answered yet, which closes it
                await asyncio.wait_for(self._closed.wait(), max(0.0, self._breaker.probe_at - self._now()))
            if not self._breaker.is_open:
                return
            fault = await self._fault_since(self._breaker.sent)
            if fault is None or not self._breaker.is_open:
                return
            # Before the first answer these are mistakes of the user's, which no patience mends: say so at once.
            if fault.kind in _FATAL_AT_START and not self._breaker.is_proven:
                raise EndpointError(f"the endpoint {self._endpoint} {fault.text}")
            if not self._breaker.record_failed_probe(self._now(), fault.retry_after_s, self._jitter()):
                self._give_up(fault)

    def _give_up(self, fault: EndpointFault) -> NoReturn:
        self._final_error = EngineError(
            f"the endpoint {self._endpoint} {fault.text}; no answer for {self._patience_s:g} s (--endpoint-patience-s)"
        )
        raise self._final_error

    async def _fault_since(self, number: int) -> EndpointFault | None:
        """None if a request sent after the one of this number was answered, otherwise the fault of a probe sent after it."""
        while self._breaker.answered <= number:
            # Probes are shared: any number of requests in doubt cost one probe at a time.
            if self._checking is None or self._checking.done():
                self._checking = asyncio.ensure_future(self._send_probe())
            probe_number, fault = await asyncio.shield(self._checking)
            if fault is not None and probe_number > number:  # a probe that was under way before proves nothing: loop
                return fault
        return None

    async def _send_probe(self) -> tuple[int, EndpointFault | None]:
        number = self._breaker.send()
        try:
            with self._silence.watched():
                await self._probe()
        except EndpointFault as fault:
            return number, fault
        self._record_answer(number)
        return number, None

    def _record_answer(self, number: int) -> None:
        self._silence.end()
        self._breaker.record_answer(number)
        self._closed.set()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
