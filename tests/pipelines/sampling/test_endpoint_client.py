"""Patience with an endpoint, in virtual time: what is sent when, what comes of it, and when it ends."""

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from actors.errors import EndpointError, EngineError
from pipelines.sampling.endpoint_client import OPENS_AT, EndpointClient, EndpointFault, FaultKind, wait_s

T = TypeVar("T")

DEAD = EndpointFault(FaultKind.BUSY, "can't be reached: connection refused")
BUSY = EndpointFault(FaultKind.BUSY, "answers 429: Request too large")
BROKEN = EndpointFault(FaultKind.FAILED, "answers 500: oh")
FORBIDDEN = EndpointFault(FaultKind.REFUSED, "answers 403: no")
KEYLESS = EndpointFault(FaultKind.UNUSABLE, "answers 401: no such key")
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
    loop = _Loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(work, 1e6)), loop.now
    finally:
        loop.close()


@dataclass
class Endpoint:
    """Takes so long for each request, and answers as `says`: by the request, how often it came before, and the time."""

    says: Callable[[int, int, float], EndpointFault | None]
    latency_s: float = 1.0
    sent: list[tuple[int, float]] = field(default_factory=list)
    came: Counter[int] = field(default_factory=Counter)

    async def answer(self, request: int) -> int:
        loop = asyncio.get_running_loop()
        self.sent.append((request, loop.time()))
        self.came[request] += 1
        fault = self.says(request, self.came[request] - 1, loop.time())
        await asyncio.sleep(0.01 if fault is DEAD else self.latency_s)
        if fault is not None:
            raise EndpointFault(fault.kind, fault.text, fault.retry_after_s)
        return request


async def asked(endpoint: Endpoint, count: int, at_a_time: int = 64, patience_s: float = PATIENCE_S) -> list[Any]:
    """What comes of so many requests at once: each one's answer, or the error."""
    return await answered(endpoint.answer, count, at_a_time, patience_s)


async def answered(
    answer: Callable[[int], Awaitable[int]], count: int, at_a_time: int = 64, patience_s: float = PATIENCE_S
) -> list[Any]:
    """The same of any endpoint, which answers a request by its number, and a probe as `PROBE`."""
    jitter = random.Random(1).random
    client = EndpointClient(
        "http://there/v1", lambda: answer(PROBE), at_a_time=at_a_time, patience_s=patience_s, jitter=jitter
    )
    work = (client.ask(lambda number=number: answer(number)) for number in range(count))  # type: ignore[misc]
    return await asyncio.gather(*work, return_exceptions=True)


def test_a_calm_endpoint_is_asked_once_for_each_after_a_probe() -> None:
    endpoint = Endpoint(lambda *_: None)
    found, took = virtually(asked(endpoint, 640))
    assert found == list(range(640))
    assert len(endpoint.sent) == 641
    assert took == pytest.approx(11.0)


@pytest.mark.parametrize("latency_s", [0.02, 1.0, 30.0])
@pytest.mark.parametrize("times", [1, 2])
def test_an_endpoint_that_fails_a_third_once_or_twice_is_never_given_up(times: int, latency_s: float) -> None:
    """And costs little more than the requests that were sent again: at half a second each, some in their last waits."""
    endpoint = Endpoint(lambda request, before, _: BROKEN if request % 3 == 0 and before < times else None, latency_s)
    found, took = virtually(asked(endpoint, 1920))
    assert found == list(range(1920))
    assert len(endpoint.sent) <= 1920 + 640 * times + 5
    least = 1920 / 64 * latency_s * (1 + times / 3)
    assert took < 1.2 * least + 30 * times


def test_failures_at_random_lose_nothing() -> None:
    draws = random.Random(3)
    endpoint = Endpoint(lambda *_: BROKEN if draws.random() < 0.4 else None)
    found, _ = virtually(asked(endpoint, 3000))
    assert found == list(range(3000))


@pytest.mark.parametrize("waiting", [1, 10, 5000])
def test_a_dead_endpoint_is_probed_and_given_up_however_many_wait(waiting: int) -> None:
    endpoint = Endpoint(lambda *_: DEAD)
    found, took = virtually(asked(endpoint, waiting, at_a_time=512))
    assert {type(error) for error in found} == {EngineError}
    assert str(found[0]) == (
        "the endpoint http://there/v1 can't be reached: connection refused; no answer for 300 s (--endpoint-patience-s)"
    )
    assert PATIENCE_S <= took < PATIENCE_S + 15
    assert {request for request, _ in endpoint.sent} == {PROBE}, "nothing but probes"
    assert len(endpoint.sent) < 60


def test_an_endpoint_that_dies_in_between_costs_what_was_under_way() -> None:
    def says(request: int, before: int, now: float) -> EndpointFault | None:
        return DEAD if 20 <= now < 220 else None

    endpoint = Endpoint(says)
    found, took = virtually(asked(endpoint, 3000))
    assert found == list(range(3000))
    during = [request for request, at in endpoint.sent if 20 <= at < 220]
    assert during.count(PROBE) < 40
    assert len(during) - during.count(PROBE) <= 64 + OPENS_AT
    assert took < 220 + 11 + 3000 / 64 + 20


def test_one_that_dies_for_good_ends_everybody_with_the_cause() -> None:
    endpoint = Endpoint(lambda request, before, now: BROKEN if now >= 20 else None)
    found, took = virtually(asked(endpoint, 3000))
    assert found[0] == 0
    assert {str(error) for error in found if isinstance(error, Exception)} == {
        "the endpoint http://there/v1 answers 500: oh; no answer for 300 s (--endpoint-patience-s)"
    }
    assert not any(isinstance(error, EndpointFault) for error in found), "nothing of that is an outcome"
    assert took < 20 + PATIENCE_S + 20


@pytest.mark.parametrize("fault", [FORBIDDEN, KEYLESS], ids=["refuses all", "the key is gone"])
def test_one_that_begins_to_refuse_everything_gives_no_outcomes(fault: EndpointFault) -> None:
    endpoint = Endpoint(lambda request, before, now: fault if now >= 20 else None)
    found, _ = virtually(asked(endpoint, 3000))
    assert {type(error) for error in found if isinstance(error, Exception)} == {EngineError}
    assert len(endpoint.sent) < 64 * 25 + 64 * 5


@pytest.mark.parametrize("kind", [FaultKind.UNUSABLE, FaultKind.REFUSED, FaultKind.GARBLED])
def test_what_cant_be_asked_as_it_is_given_is_told_after_one_question(kind: FaultKind) -> None:
    endpoint = Endpoint(lambda *_: EndpointFault(kind, "answers 404: no such model"))
    found, _ = virtually(asked(endpoint, 50))
    assert {str(error) for error in found} == {"the endpoint http://there/v1 answers 404: no such model"}
    assert {type(error) for error in found} == {EndpointError}
    assert len(endpoint.sent) == 1


@pytest.mark.parametrize("others", [0, 300])
@pytest.mark.parametrize(
    ("kind", "most"),
    [(FaultKind.REFUSED, 2), (FaultKind.FAILED, 20), (FaultKind.GARBLED, 20), (FaultKind.TIMED_OUT, 3)],
    ids=str,
)
def test_a_request_that_is_not_answered_by_itself_has_an_outcome(kind: FaultKind, most: int, others: int) -> None:
    """Also if it is all that is left of a run."""
    endpoint = Endpoint(lambda request, *_: EndpointFault(kind, "won't") if request == 0 else None)
    (first, *rest), took = virtually(asked(endpoint, 1 + others))
    assert isinstance(first, EndpointFault)
    assert rest == list(range(1, 1 + others))
    assert endpoint.came[0] == most
    assert endpoint.came[PROBE] <= 3
    assert took < PATIENCE_S


def test_many_that_are_broken_on_are_outcomes_too() -> None:
    endpoint = Endpoint(lambda request, *_: BROKEN if request != PROBE else None)
    found, _ = virtually(asked(endpoint, 200))
    assert {type(error) for error in found} == {EndpointFault}
    assert max(endpoint.came[request] for request in range(200)) <= 21


def test_a_probe_isnt_what_ends_a_request_that_may_still_be_answered() -> None:
    """A server that restarts every minute for twenty seconds, and fails what it has then."""
    endpoint = Endpoint(lambda request, before, now: DEAD if now % 60 < 20 else BROKEN if now % 60 > 58 else None, 3.0)
    found, _ = virtually(asked(endpoint, 2000))
    assert found == list(range(2000))


def test_nothing_is_sent_again_before_the_endpoint_wants_it() -> None:
    endpoint = Endpoint(
        lambda request, before, now: EndpointFault(FaultKind.BUSY, "answers 429", 42.0) if before == 0 else None
    )
    found, _ = virtually(asked(endpoint, 10))
    assert found == list(range(10))
    for request in (PROBE, *range(10)):
        first, second = (at for number, at in endpoint.sent if number == request)
        assert second - first >= 42


def test_a_limit_of_requests_a_second_is_met() -> None:
    """Ten a second of 512 that want to: what is sent in vain stays within a few times what is answered."""
    seconds: Counter[int] = Counter()

    def says(request: int, before: int, now: float) -> EndpointFault | None:
        seconds[int(now)] += 1
        return EndpointFault(FaultKind.BUSY, "answers 429: slow down") if seconds[int(now)] > 10 else None

    endpoint = Endpoint(says, 0.2)
    found, took = virtually(asked(endpoint, 3000, at_a_time=512))
    assert found == list(range(3000))
    assert took < 2 * 3000 / 10
    assert len(endpoint.sent) < 6 * 3000


def test_waits_double_up_to_a_bound() -> None:
    assert [wait_s(times, 0.0) for times in range(8)] == [0.25, 0.5, 1, 2, 4, 8, 10, 10]
    assert wait_s(3, 1.0) == 1
    assert wait_s(100_000, 0.0) == 10


def test_what_fails_is_told_once_a_kind_and_then_counted() -> None:
    texts: list[str] = []
    faults = [BROKEN, DEAD, FORBIDDEN]
    endpoint = Endpoint(lambda request, before, _: faults[request % 3] if request != PROBE and before == 0 else None)
    client = EndpointClient(
        "http://there/v1", lambda: endpoint.answer(PROBE), at_a_time=8, patience_s=PATIENCE_S, notify=texts.append
    )

    async def ask_all() -> list[int]:
        return await asyncio.gather(*(client.ask(lambda number=number: endpoint.answer(number)) for number in range(300)))  # type: ignore[misc]

    assert virtually(ask_all())[0] == list(range(300))
    assert sorted(texts[:2]) == [
        "the endpoint http://there/v1 answers 500: oh; requests that fail so are sent again",
        "the endpoint http://there/v1 can't be reached: connection refused; requests that fail so are sent again",
    ]
    (count,) = texts[2:]
    assert count.startswith("the endpoint http://there/v1 failed 100 times so far (")
    assert "busy" in count
    assert "failed, " in count or "failed)" in count


def test_an_endpoint_that_hangs_is_noted_long_before_its_time_out() -> None:
    """A server that takes a connection and answers nothing had a run stand still for ten minutes without a word."""
    texts = list[tuple[float, str]]()

    async def ask_all() -> list[Any]:
        loop = asyncio.get_running_loop()

        async def answer(number: int) -> int:
            await asyncio.sleep(1.0 if number < 2 or loop.time() > 1200 else 600.0)
            if loop.time() < 1200 and number >= 2:
                raise EndpointFault(FaultKind.TIMED_OUT, "didn't answer in time")
            return number

        client = EndpointClient(
            "http://there/v1",
            lambda: answer(0),
            at_a_time=8,
            patience_s=2000.0,
            notify=lambda text: texts.append((loop.time(), text)),
        )
        return await asyncio.gather(*(client.ask(lambda number=number: answer(number)) for number in range(5)))  # type: ignore[misc]

    found, _ = virtually(ask_all())
    assert found == list(range(5))
    silences = [(moment, text) for moment, text in texts if "answered nothing" in text]
    assert silences[0] == (32.0, "the endpoint http://there/v1 has answered nothing for 30 s, and 3 requests wait for it")
    assert silences[1][0] == 302.0
    assert [moment for moment, text in texts if "didn't answer in time" in text] == [601.0]


def test_an_endpoint_that_is_slow_and_answers_is_not_noted() -> None:
    texts = list[str]()
    endpoint = Endpoint(lambda *_: None, latency_s=29.0)
    client = EndpointClient(
        "http://there/v1", lambda: endpoint.answer(PROBE), at_a_time=2, patience_s=PATIENCE_S, notify=texts.append
    )

    async def ask_all() -> list[int]:
        return await asyncio.gather(*(client.ask(lambda number=number: endpoint.answer(number)) for number in range(9)))  # type: ignore[misc]

    assert virtually(ask_all())[0] == list(range(9))
    assert texts == []


def test_a_request_on_which_the_server_hangs_and_closes_is_blamed_after_three_times() -> None:
    async def ask_all() -> tuple[list[Any], int]:
        count = 0

        async def hang() -> int:
            nonlocal count
            count += 1
            await asyncio.sleep(60.0)
            raise EndpointFault(FaultKind.FAILED, "closed the connection")

        async def answer() -> int:
            await asyncio.sleep(1.0)
            return 1

        client = EndpointClient("http://there/v1", answer, at_a_time=8, patience_s=PATIENCE_S)
        outcomes = await asyncio.gather(client.ask(hang), *(client.ask(answer) for _ in range(20)), return_exceptions=True)
        return outcomes, count

    (outcomes, count), _ = virtually(ask_all())
    assert isinstance(outcomes[0], EndpointFault)
    assert outcomes[1:] == [1] * 20
    assert count == 3


@dataclass
class Crashing:
    """A server that the request 0 ends, a second after it came, with all that is under way; it starts again by itself."""

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
        if request == 0:
            loop.call_later(1.0, self._end)
        done, _ = await asyncio.wait([crash], timeout=0.5 if request == PROBE else self.latency_s)
        self.under_way.discard(crash)
        if done:
            raise EndpointFault(FaultKind.FAILED, "can't be reached: Server disconnected")
        return request

    def _end(self) -> None:
        self.crashes += 1
        self.starts_at = asyncio.get_running_loop().time() + self.restart_s
        for crash in self.under_way:
            if not crash.done():
                crash.set_result(None)


@pytest.mark.parametrize("restart_s", [0.0, 5.0, 60.0])
@pytest.mark.parametrize(("others", "latency_s"), [(0, 60.0), (31, 60.0), (31, 20.0), (100, 2.0)])
def test_a_request_that_ends_the_server_takes_no_other_with_it(others: int, latency_s: float, restart_s: float) -> None:
    server = Crashing(restart_s, latency_s)

    (culprit, *rest), took = virtually(answered(server.answer, 1 + others, at_a_time=64))
    assert isinstance(culprit, EndpointFault)
    assert rest == list(range(1, 1 + others))
    assert server.crashes <= 21
    assert took < 21 * (restart_s + 30) + others * latency_s + 60


@pytest.mark.parametrize("others", [0, 1, 300])
@pytest.mark.parametrize("fault", [BUSY, KEYLESS], ids=["429", "401"])
def test_a_request_that_is_never_taken_has_an_outcome(fault: EndpointFault, others: int) -> None:
    """OpenAI answers a prompt above the tokens of a minute with 429, however often it comes."""
    endpoint = Endpoint(lambda request, *_: fault if request == 0 else None)
    (first, *rest), took = virtually(asked(endpoint, 1 + others))
    assert isinstance(first, EndpointFault)
    assert first.text == fault.text
    assert rest == list(range(1, 1 + others))
    assert PATIENCE_S <= took < 2 * PATIENCE_S


def test_many_that_are_never_taken_wait_together() -> None:
    endpoint = Endpoint(lambda request, *_: BUSY if request != PROBE and request % 2 else None)
    outcomes, took = virtually(asked(endpoint, 40))
    assert [isinstance(outcome, EndpointFault) for outcome in outcomes] == [False, True] * 20
    assert took < 2 * PATIENCE_S


@pytest.mark.parametrize("latency_s", [60.0, 400.0])
def test_an_endpoint_that_takes_few_at_a_time_loses_nothing(latency_s: float) -> None:
    """Also where a request is refused for much longer than patience lasts, and where nothing is answered for as long."""
    under_way = 0

    async def answer(number: int) -> int:
        nonlocal under_way
        if number == PROBE:
            return number
        if under_way >= 10:
            raise EndpointFault(FaultKind.BUSY, "answers 429: too many at a time")
        under_way += 1
        await asyncio.sleep(latency_s)
        under_way -= 1
        return number

    outcomes, took = virtually(answered(answer, 200, at_a_time=128))
    assert outcomes == list(range(200))
    assert took < 2 * 200 / 10 * latency_s


def test_an_endpoint_that_takes_nothing_but_probes_blames_no_request() -> None:
    """As one whose tokens of a day are used up: the next day it takes all of them."""
    endpoint = Endpoint(lambda request, *_: None if request == PROBE else BUSY)
    outcomes, took = virtually(asked(endpoint, 20))
    assert all(isinstance(outcome, EngineError) and "429" in str(outcome) for outcome in outcomes)
    assert took < 2 * PATIENCE_S


def test_requests_that_time_out_at_the_end_are_tried_together() -> None:
    def say(request: int, *_: object) -> EndpointFault | None:
        return EndpointFault(FaultKind.TIMED_OUT, "didn't answer in time") if request in range(10) else None

    outcomes, took = virtually(asked(Endpoint(say, latency_s=200.0), 12))
    assert [isinstance(outcome, EndpointFault) for outcome in outcomes] == [True] * 10 + [False] * 2
    assert took < 8 * 200.0, "three time-outs of all together, and probes"


def test_requests_that_time_out_beside_others_hold_nobody_up() -> None:
    """To send each of them alone would cost everybody a time-out."""
    came = Counter[int]()

    async def answer(number: int) -> int:
        came[number] += 1
        if number in range(5):
            await asyncio.sleep(600.0 + number)
            raise EndpointFault(FaultKind.TIMED_OUT, "didn't answer in time")
        await asyncio.sleep(20.0)
        return number

    outcomes, took = virtually(answered(answer, 7000, at_a_time=64))
    assert [isinstance(outcome, EndpointFault) for outcome in outcomes[:6]] == [True] * 5 + [False]
    assert {came[number] for number in range(5)} == {3}
    assert took < 1.2 * 7000 / 59 * 20
