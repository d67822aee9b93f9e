"""Patience with an endpoint, in virtual time: what is sent when, what comes of it, and when it ends."""

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from actors.endpoint.client import OPENS_AT, CircuitBreaker, EndpointClient, wait_s
from actors.endpoint.faults import EndpointFault, FaultKind
from actors.errors import EndpointError, RunStopped

T = TypeVar("T")

DEAD = EndpointFault(FaultKind.BUSY, "can't be reached: connection refused")
BUSY = EndpointFault(FaultKind.BUSY, "answers 429: Request too large")
BROKEN = EndpointFault(FaultKind.FAILED, "answers 500: oh")
FORBIDDEN = EndpointFault(FaultKind.REFUSED, "answers 403: no")
KEYLESS = EndpointFault(FaultKind.UNUSABLE, "answers 401: no such key")
SLOW = EndpointFault(FaultKind.TIMED_OUT, "didn't answer in time")
PATIENCE_S = 300.0
PROBE = -1


class _Loop(asyncio.SelectorEventLoop):
    """A loop on which waiting takes no time: its clock goes to the next moment at which something is to be done."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, unused-ignore]
    def __init__(self, loop: _Loop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        self._loop.now += timeout or 0.0
        return super().select(0)


def virtually(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """What a coroutine gives, and how many seconds it would have taken."""
    random.seed(1)
    loop = _Loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(work, 1e6)), loop.now
    finally:
        loop.close()


@dataclass
class Endpoint:
    """Takes so long for each request; `fault` is given the request, how often it came before, and the time."""

    fault: Callable[[int, int, float], EndpointFault | None]
    latency_s: float = 1.0
    sent: list[tuple[int, float]] = field(default_factory=list)
    times: Counter[int] = field(default_factory=Counter)

    async def answer(self, request: int) -> int:
        now = asyncio.get_running_loop().time()
        self.sent.append((request, now))
        self.times[request] += 1
        fault = self.fault(request, self.times[request] - 1, now)
        await asyncio.sleep(0.01 if fault is DEAD else self.latency_s)
        if fault is not None:
            raise EndpointFault(fault.kind, fault.text, fault.retry_after_s)
        return request


def outcomes(
    answer: Callable[[int], Awaitable[int]],
    count: int,
    at_a_time: int = 64,
    notify: Callable[[str], None] | None = None,
    patience_s: float = PATIENCE_S,
) -> tuple[list[Any], float]:
    """The answer to each of so many requests at once, or its error; and the seconds that all took."""

    async def ask_all() -> list[Any]:
        client = EndpointClient(CircuitBreaker("http://there/v1", lambda: answer(PROBE), patience_s), at_a_time, notify)
        requests = (client.ask(lambda number=number: answer(number)) for number in range(count))  # type: ignore[misc]
        return await asyncio.gather(*requests, return_exceptions=True)

    return virtually(ask_all())


def test_a_calm_endpoint_is_asked_once_for_each_after_a_probe() -> None:
    endpoint = Endpoint(lambda *_: None)
    answers, seconds = outcomes(endpoint.answer, 640)
    assert answers == list(range(640))
    assert [request for request, _ in endpoint.sent] == [PROBE, *range(640)]
    assert seconds == pytest.approx(11.0), "64 at a time"


@pytest.mark.parametrize("latency_s", [0.02, 30.0])
@pytest.mark.parametrize("times", [1, 2])
def test_an_endpoint_that_fails_a_third_once_or_twice_is_never_given_up(times: int, latency_s: float) -> None:
    """And costs little more than the requests that were sent again: at half a second each, some in their last waits."""
    endpoint = Endpoint(lambda request, before, _: BROKEN if request % 3 == 0 and before < times else None, latency_s)
    answers, seconds = outcomes(endpoint.answer, 1920)
    assert answers == list(range(1920))
    assert len(endpoint.sent) <= 1920 + 640 * times + 5
    assert seconds < 1.2 * 1920 / 64 * latency_s * (1 + times / 3) + 30 * times


@pytest.mark.parametrize("waiting", [1, 5000])
def test_a_dead_endpoint_is_probed_and_given_up_however_many_wait(waiting: int) -> None:
    endpoint = Endpoint(lambda *_: DEAD)
    errors, seconds = outcomes(endpoint.answer, waiting, at_a_time=512)
    assert {type(error) for error in errors} == {RunStopped}
    assert str(errors[0]) == (
        "the endpoint http://there/v1 can't be reached: connection refused; no answer for 300 s (--endpoint-patience-s)"
    )
    assert PATIENCE_S <= seconds < PATIENCE_S + 15
    assert endpoint.times.keys() == {PROBE}
    assert len(endpoint.sent) < 60


@pytest.mark.parametrize(("patience_s", "limit_s"), [(PATIENCE_S, PATIENCE_S), (1.0, 60.0)])
@pytest.mark.parametrize("hangs", [1, 9])
def test_an_endpoint_that_hangs_is_given_up_after_two_probes(hangs: int, patience_s: float, limit_s: float) -> None:
    """Each of which ends with patience, though not before a minute, and not with the request time-out, which is longer."""
    probes = 0

    async def answer(request: int) -> int:
        nonlocal probes
        probes += request == PROBE
        await asyncio.sleep(1000.0 if probes <= hangs else 0.0)
        return request

    ((outcome,), seconds) = outcomes(answer, 1, patience_s=patience_s)
    assert seconds == pytest.approx(min(hangs, 2) * limit_s, abs=1.0)
    assert outcome == 0 if hangs == 1 else isinstance(outcome, RunStopped)


def test_an_endpoint_that_dies_in_between_costs_what_was_under_way() -> None:
    """And an answer to what was sent before doesn't bring the probes back."""
    endpoint = Endpoint(lambda request, before, now: DEAD if 20 <= now < 220 else None)

    async def answer(request: int) -> int:
        if request == 0:
            await asyncio.sleep(260.0)
        return await endpoint.answer(request)

    answers, seconds = outcomes(answer, 3000)
    assert answers == list(range(3000))
    during = Counter(request for request, moment in endpoint.sent if 20 <= moment < 220)
    assert during[PROBE] < 40
    assert during.total() - during[PROBE] <= 64 + OPENS_AT
    assert max(moment for request, moment in endpoint.sent if request == PROBE) < 260
    assert seconds < 220 + 30 + 3000 / 64 + 20


@pytest.mark.parametrize("fault", [BROKEN, DEAD, FORBIDDEN, KEYLESS], ids=str)
def test_one_that_fails_everything_for_good_ends_everybody_with_the_cause(fault: EndpointFault) -> None:
    endpoint = Endpoint(lambda request, before, now: fault if now >= 20 else None)
    answers, seconds = outcomes(endpoint.answer, 3000)
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    assert {(type(error), str(error)) for error in errors} == {
        (RunStopped, f"the endpoint http://there/v1 {fault.text}; no answer for 300 s (--endpoint-patience-s)")
    }
    assert len(endpoint.sent) < 64 * 25 + 64 * 5
    assert seconds < 20 + PATIENCE_S + 30


@pytest.mark.parametrize("retry_after_s", [0.0, 100.0, 299.5])
def test_one_request_that_waits_is_given_up_as_early_as_many(retry_after_s: float) -> None:
    fault = EndpointFault(FaultKind.BUSY, "answers 503: down", retry_after_s)
    endpoint = Endpoint(lambda request, before, now: fault if now >= 0.5 else None)
    ((error,), seconds) = outcomes(endpoint.answer, 1)
    assert isinstance(error, RunStopped)
    assert seconds < 1.2 * PATIENCE_S + retry_after_s


@pytest.mark.parametrize("at_a_time", [1, 64])
@pytest.mark.parametrize("fault", [FORBIDDEN, BROKEN], ids=str)
def test_one_that_fails_everything_for_two_minutes_fails_nobody(fault: EndpointFault, at_a_time: int) -> None:
    endpoint = Endpoint(lambda request, before, now: fault if 20 <= now < 140 else None)
    answers, _ = outcomes(endpoint.answer, 30 * at_a_time, at_a_time)
    assert answers == list(range(30 * at_a_time))


def test_one_that_is_back_and_busy_when_patience_is_almost_over_blames_nobody() -> None:
    def fault(request: int, before: int, now: float) -> EndpointFault | None:
        if 20 <= now < 315:
            return DEAD
        return BUSY if request != PROBE and 315 <= now < 330 else None

    for count in (64, 2000):
        answers, _ = outcomes(Endpoint(fault, latency_s=15.0).answer, count)
        assert answers == list(range(count))


@pytest.mark.parametrize("kind", [FaultKind.UNUSABLE, FaultKind.REFUSED, FaultKind.GARBLED])
def test_what_cant_be_asked_as_it_is_given_is_told_after_one_question(kind: FaultKind) -> None:
    endpoint = Endpoint(lambda *_: EndpointFault(kind, "answers 404: no such model"))
    errors, _ = outcomes(endpoint.answer, 50)
    assert {(type(error), str(error)) for error in errors} == {
        (EndpointError, "the endpoint http://there/v1 answers 404: no such model")
    }
    assert len(endpoint.sent) == 1


@pytest.mark.parametrize("others", [0, 300])
@pytest.mark.parametrize(
    ("kind", "most"),
    [(FaultKind.REFUSED, 2), (FaultKind.FAILED, 10), (FaultKind.GARBLED, 10), (FaultKind.TIMED_OUT, 3)],
    ids=str,
)
def test_a_request_that_is_not_answered_by_itself_has_an_outcome(kind: FaultKind, most: int, others: int) -> None:
    """Also if it is all that is left of a run."""
    endpoint = Endpoint(lambda request, *_: EndpointFault(kind, "won't") if request == 0 else None)
    (first, *remainder), seconds = outcomes(endpoint.answer, 1 + others)
    assert isinstance(first, EndpointFault)
    assert remainder == list(range(1, 1 + others))
    assert endpoint.times[0] == most
    assert endpoint.times[PROBE] <= 3
    assert seconds < PATIENCE_S


def test_many_that_are_broken_on_are_outcomes_too() -> None:
    endpoint = Endpoint(lambda request, *_: BROKEN if request != PROBE else None, latency_s=0.1)
    errors, _ = outcomes(endpoint.answer, 200)
    assert {type(error) for error in errors} == {EndpointFault}
    assert max(endpoint.times[request] for request in range(200)) == 10


def test_a_server_that_restarts_every_minute_and_fails_what_it_has_loses_nothing() -> None:
    endpoint = Endpoint(lambda request, before, now: DEAD if now % 60 < 20 else BROKEN if now % 60 > 58 else None, 3.0)
    answers, _ = outcomes(endpoint.answer, 2000)
    assert answers == list(range(2000))


def test_nothing_is_sent_again_before_the_endpoint_wants_it() -> None:
    endpoint = Endpoint(
        lambda request, before, now: EndpointFault(FaultKind.BUSY, "answers 429", 42.0) if before == 0 else None
    )
    answers, _ = outcomes(endpoint.answer, 10)
    assert answers == list(range(10))
    for request in (PROBE, *range(10)):
        first, second = (moment for number, moment in endpoint.sent if number == request)
        assert second - first >= 42


def test_a_retry_after_of_a_day_isnt_waited_for() -> None:
    fault = EndpointFault(FaultKind.BUSY, "answers 429", 86_400.0)
    answers, seconds = outcomes(Endpoint(lambda request, before, now: fault if before == 0 else None).answer, 10)
    assert answers == list(range(10))
    assert seconds < 3 * PATIENCE_S


def test_a_limit_of_requests_a_second_is_met() -> None:
    """Ten a second of 512 that want to: what is sent in vain stays within a few times what is answered."""
    seconds: Counter[int] = Counter()

    def fault(request: int, before: int, now: float) -> EndpointFault | None:
        seconds[int(now)] += 1
        return EndpointFault(FaultKind.BUSY, "answers 429: slow down") if seconds[int(now)] > 10 else None

    endpoint = Endpoint(fault, 0.2)
    answers, took = outcomes(endpoint.answer, 3000, at_a_time=512)
    assert answers == list(range(3000))
    assert took < 2 * 3000 / 10
    assert len(endpoint.sent) < 6 * 3000


def test_waits_double_up_to_half_a_minute_and_differ() -> None:
    waits = [[wait_s(times, BUSY) for _ in range(1000)] for times in (0, 1, 2, 5, 7, 100_000)]
    assert [max(group) for group in waits] == pytest.approx([0.25, 0.5, 1, 8, 30, 30], rel=0.02)
    assert [min(group) for group in waits] == pytest.approx([0.125, 0.25, 0.5, 4, 15, 15], rel=0.02)


def test_what_fails_is_told_once_a_kind() -> None:
    faults, texts = [BROKEN, DEAD, FORBIDDEN], list[str]()
    endpoint = Endpoint(lambda request, before, _: faults[request % 3] if request != PROBE and before == 0 else None)
    answers, _ = outcomes(endpoint.answer, 300, at_a_time=8, notify=texts.append)
    assert answers == list(range(300))
    assert sorted(texts) == [
        "the endpoint http://there/v1 answers 500: oh; requests that fail so are sent again",
        "the endpoint http://there/v1 can't be reached: connection refused; requests that fail so are sent again",
    ]


@dataclass
class Crashing:
    """A server that some requests end, a second after they came, with all under way; it starts again by itself."""

    killers: Sequence[int]
    restart_s: float
    latency_s: float
    starts_at: float = 0.0
    crashes: int = 0
    under_way: set[asyncio.Future[None]] = field(default_factory=set)

    async def answer(self, request: int) -> int:
        loop = asyncio.get_running_loop()
        if loop.time() < self.starts_at:
            raise EndpointFault(DEAD.kind, DEAD.text)
        crash = loop.create_future()
        self.under_way.add(crash)
        if request in self.killers:
            loop.call_later(1.0, self._end, crash)
        done, _ = await asyncio.wait([crash], timeout=0.5 if request == PROBE else self.latency_s)
        self.under_way.discard(crash)
        if done:
            raise EndpointFault(FaultKind.FAILED, "can't be reached: Server disconnected")
        return request

    def _end(self, crash: asyncio.Future[None]) -> None:
        if crash.done():
            return
        self.crashes += 1
        self.starts_at = asyncio.get_running_loop().time() + self.restart_s
        for other in self.under_way:
            if not other.done():
                other.set_result(None)


def test_a_request_that_ends_the_server_takes_no_other_with_it() -> None:
    cases: list[tuple[int, float]] = [(1, 60.0), (32, 60.0), (32, 20.0), (100, 2.0)]
    all_killers: list[Sequence[int]] = [range(1), range(4), range(0, 100, 20)]
    for killers in all_killers:
        for restart_s in (0.0, 60.0):
            for count, latency_s in cases:
                server = Crashing(killers, restart_s, latency_s)
                answers, seconds = outcomes(server.answer, count, at_a_time=32)
                failed = [number for number, answer in enumerate(answers) if isinstance(answer, EndpointFault)]
                assert failed == [number for number in killers if number < count]
                assert all(answers[number] == number for number in range(count) if number not in failed)
                assert server.crashes <= 10 * len(killers)
                assert seconds < 10 * len(killers) * (restart_s + 45) + 2 * count * latency_s + 60


@pytest.mark.parametrize("others", [0, 1, 300])
@pytest.mark.parametrize("fault", [BUSY, KEYLESS], ids=["429", "401"])
def test_a_request_that_is_never_taken_has_an_outcome(fault: EndpointFault, others: int) -> None:
    """OpenAI answers a prompt above the tokens of a minute with 429, however often it comes."""
    endpoint = Endpoint(lambda request, *_: fault if request == 0 else None)
    (first, *remainder), seconds = outcomes(endpoint.answer, 1 + others)
    assert isinstance(first, EndpointFault)
    assert first.text == fault.text
    assert remainder == list(range(1, 1 + others))
    assert PATIENCE_S <= seconds < 2 * PATIENCE_S


def test_many_that_are_never_taken_wait_together() -> None:
    endpoint = Endpoint(lambda request, *_: BUSY if request != PROBE and request % 2 else None)
    answers, seconds = outcomes(endpoint.answer, 40)
    assert [isinstance(answer, EndpointFault) for answer in answers] == [False, True] * 20
    assert seconds < 2 * PATIENCE_S


def test_an_endpoint_that_takes_few_at_a_time_loses_nothing() -> None:
    """Also where a request is turned away for much longer than patience lasts."""
    under_way = 0

    async def answer(number: int) -> int:
        nonlocal under_way
        if under_way >= 10:
            raise EndpointFault(FaultKind.BUSY, "answers 429: too many at a time")
        under_way += 1
        await asyncio.sleep(0.5 if number == PROBE else 60.0)
        under_way -= 1
        return number

    answers, seconds = outcomes(answer, 200, at_a_time=128)
    assert answers == list(range(200))
    assert seconds < 2 * 200 / 10 * 60


def test_an_endpoint_that_takes_nothing_but_probes_blames_no_request() -> None:
    """As one whose tokens of a day are used up: the next day it takes all of them."""
    endpoint = Endpoint(lambda request, *_: None if request == PROBE else BUSY)
    errors, seconds = outcomes(endpoint.answer, 20)
    assert {(type(error), "429" in str(error)) for error in errors} == {(RunStopped, True)}
    assert seconds < 2 * PATIENCE_S


def test_requests_that_time_out_hold_nobody_up() -> None:
    """To send them one at a time would cost the others a time-out each."""
    endpoint = Endpoint(lambda request, *_: SLOW if request in range(5) else None, latency_s=20.0)
    times = Counter[int]()

    async def answer(request: int) -> int:
        times[request] += 1
        await asyncio.sleep(580.0 if request in range(5) else 0.0)
        return await endpoint.answer(request)

    answers, seconds = outcomes(answer, 7000)
    assert [isinstance(answer, EndpointFault) for answer in answers[:6]] == [True] * 5 + [False]
    assert {times[request] for request in range(5)} == {3}
    assert seconds < 1.2 * 7000 / 59 * 20
