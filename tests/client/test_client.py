"""The client against the real endpoint, well and failing: its numbers are the endpoint's, or there is none and a reason."""

import asyncio
import itertools
import json
import multiprocessing
import os
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from actors.scorers.online import OnlineScorer
from assay_client import Client, NoReward, Reward, _batches
from assay_client._batches import _pause_s
from assay_client._wire import _seconds, to_json
from tests.support.endpoints import ANSWERED, QUESTION, application, free_port, listening, scorer, wait
from tests.support.faulty import Faulty

KEY = "0123456789abcdef"
SEVEN = {"messages": ANSWERED}
BODY = {"reward": 1.0, "status": "scored", "reason": None, "scores": {}}
BUSY = (429, {"Retry-After": "0"}, b"{}")
# Of Ray Serve, which listens before a model is loaded.
STARTING: Any = (404, {}, b"Path '/v1/rewards' not found. Ping http://.../-/routes for available routes.")


@pytest.fixture(scope="module")
def model() -> Iterator[OnlineScorer]:
    made = scorer("tiny-attributes")
    yield made
    made.close()


@pytest.fixture(scope="module")
def well(model: OnlineScorer) -> Iterator[str]:
    with listening(application([model])) as address:
        yield address


@pytest.fixture(scope="module")
def seven(well: str) -> float:
    """What the endpoint itself says of `SEVEN`."""
    answer = httpx.post(f"{well}/v1/rewards", json={"conversations": [SEVEN]}, timeout=60).json()
    reward: float = answer["data"][0]["responses"][0]["reward"]
    return reward


@pytest.fixture
def failing(model: OnlineScorer) -> Callable[..., Any]:
    """An endpoint with these faults, and its address."""

    @contextmanager
    def start(*faults: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[Faulty, str]]:
        app = Faulty(
            application([model], keys=keys),
            itertools.chain(*(each if isinstance(each, Iterator) else [each] for each in faults)),
        )
        with listening(app) as address:
            yield app, address

    return start


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"messages": [*QUESTION, {"role": "assistant", "content": f"It is {number}."}]} for number in range(count)]


def only(rewards: list[Reward]) -> Reward:
    (reward,) = rewards
    return reward


def of_answer(**changes: Any) -> bytes:
    return json.dumps({"data": [{"index": 0, "responses": [BODY | changes]}]}).encode()


def test_rewards_are_the_endpoints_in_order_and_a_missing_one_says_why(well: str, seven: float) -> None:
    with Client(well) as client:
        first, second, empty, third = client.rewards([SEVEN, {"messages": QUESTION, "responses": ["7", ""]}, SEVEN])
    assert first == second == third
    assert first.value == pytest.approx(seven)
    assert {*first.scores} == {"helpfulness", "correctness", "coherence", "complexity", "verbosity"}
    assert (empty.value, empty.status, empty.reason) == (None, "rejected", "empty_content")
    with pytest.raises(NoReward, match="empty_content"):
        empty.require()


@pytest.mark.parametrize(
    "fault",
    [BUSY, STARTING, (503, {"Retry-After": "0"}, b"{}"), (500, {}, b"oops"), (502, {}, b"<html>"), "drop", "cut", b"<html>",
     b'{"data": []}', of_answer(reward=float("nan")), of_answer(reward=None), of_answer(reward=True),
     of_answer(status="rejected"), of_answer(reward=10**400), b"[" * 10**5],
    ids=lambda fault: str(fault)[:40],
)  # fmt: skip
def test_what_fails_once_is_asked_again(fault: Any, failing: Callable[..., Any], seven: float) -> None:
    with failing(fault) as (app, address), Client(address) as client:
        assert only(client.rewards([SEVEN])).value == pytest.approx(seven)
    assert len(app.bodies) == 2


@pytest.mark.parametrize(
    ("fault", "reason"),
    [((500, {}, b'{"error": {"code": "internal_error", "message": "oops"}}'), "internal_error"),
     ((503, {"Retry-After": "0"}, b'{"error": {"code": "replica_gone", "message": "it ended"}}'), "replica_gone"),
     ((502, {}, b""), "http_502"), ("cut", "unreachable"), (b"[]", "bad_answer"), (of_answer(reward=None), "bad_answer")],
    ids=str,
)  # fmt: skip
def test_what_keeps_failing_is_none_with_a_reason(fault: Any, reason: str, failing: Callable[..., Any]) -> None:
    with failing(itertools.repeat(fault)) as (app, address), Client(address, retries=1) as client:
        failed = client.rewards(numbered(2))
    assert [(reward.value, reward.status, reward.reason) for reward in failed] == [(None, "failed", reason)] * 2
    assert len(app.bodies) == 2


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_batches, "_RESTART_S", 1.5)
    with Client("http://127.0.0.1:9", retries=0) as client:
        start = time.monotonic()
        assert only(client.rewards([SEVEN])).reason == "unreachable"
        assert time.monotonic() - start > 1.5


def test_an_endpoint_that_restarts_is_waited_for(model: OnlineScorer, seven: float) -> None:
    port = free_port()
    with Client(f"http://127.0.0.1:{port}", retries=0) as client, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(client.rewards, [SEVEN])
        time.sleep(1)
        with listening(application([model]), port):
            assert only(answer.result()).value == pytest.approx(seven)


def test_requests_are_bounded_by_their_bytes_on_the_wire(failing: Callable[..., Any]) -> None:
    text = "三加四等于七" * 60_000  # 1.08 MB as UTF-8, 2.16 MB escaped
    long = [{"messages": QUESTION, "responses": [text]} for _ in range(7)]
    huge = {"messages": QUESTION, "responses": [text * 5]}
    with failing(itertools.repeat((401, {}, b"{}"))) as (app, address), Client(address) as client:
        assert {reward.reason for reward in client.rewards([*long, huge, SEVEN])} == {"http_401"}
    assert sorted(len(body["conversations"]) for body in app.bodies) == [1, 1, 1, 3, 3]
    assert sorted(int(header[b"content-length"]) // 10**6 for header in app.headers) == [0, 1, 3, 3, 5]
    sent = [each for body in app.bodies for each in body["conversations"]]  # requests arrive in any order
    assert (sent.count(huge), sent.count(SEVEN), len(sent)) == (1, 1, 9)


def test_a_text_is_utf_8_and_half_a_character_is_escaped() -> None:
    for text in ("七", '🙂 \\ "', "\ud83d", "七\udc00\\ud800", "\ud83d\ude42"):
        written = to_json([text])
        assert json.loads(written.decode()) == json.loads(json.dumps([text]))
    assert to_json("七🙂") == '"七🙂"'.encode()


def test_who_is_asked_to_come_again_comes_beyond_the_retries(failing: Callable[..., Any], seven: float) -> None:
    with failing(*[BUSY] * 4) as (app, address), Client(address, retries=0) as client:
        assert only(client.rewards([SEVEN])).value == pytest.approx(seven)
    assert len(app.bodies) == 5


def test_pauses_are_what_the_endpoint_asks_for_and_differ_between_clients() -> None:
    assert all(20 <= _pause_s(20, failures=0) <= 30 for _ in range(20))
    assert len({_pause_s(None, failures=3) for _ in range(20)}) == 20
    assert max(_pause_s(None, failures=50) for _ in range(20)) <= 30
    assert _seconds("7") == 7
    assert _seconds(formatdate(time.time() + 100, usegmt=True)) == pytest.approx(100, abs=3)
    assert _seconds(formatdate(time.time() - 100, usegmt=True)) == 0
    assert _seconds("soon") is _seconds("") is _seconds("-1") is _seconds("nan") is None


def test_a_call_ends_at_its_deadline_and_frees_the_endpoint(failing: Callable[..., Any]) -> None:
    with failing("hang", "hang") as (app, address), Client(address) as client:
        late = only(client.rewards([SEVEN], timeout=0.3))
        assert (late.value, late.reason) == (None, "deadline")
        wait(app.hung_up.is_set)
    assert 0 < float(app.headers[0][b"x-timeout-seconds"]) <= 0.3


def test_a_call_without_time_left_ends_at_once(failing: Callable[..., Any]) -> None:
    with failing("hang") as (app, address), Client(address, timeout=10) as client:
        start = time.monotonic()
        assert only(client.rewards([SEVEN], timeout=0)).reason == "deadline"
        assert time.monotonic() - start < 10
        assert not app.bodies


def test_concurrent_calls_share_requests_of_which_few_are_under_way(failing: Callable[..., Any], well: str) -> None:
    conversations = numbered(60)
    with Client(well, wait_ms=0) as client:
        expected = [only(client.rewards([conversation])).value for conversation in conversations]
    assert len({*expected}) > 30

    async def ask_all(client: Client) -> list[float | None]:
        answers = await asyncio.gather(*(client.rewards_async([conversation]) for conversation in conversations))
        return [only(answer).value for answer in answers]

    with failing() as (app, address), Client(address, batch=8, max_in_flight=2, wait_ms=50) as client:
        assert asyncio.run(ask_all(client)) == pytest.approx(expected)
        with ThreadPoolExecutor(60) as threads:
            answers = threads.map(lambda conversation: only(client.rewards([conversation])).value, conversations)
            assert [*answers] == pytest.approx(expected)
    assert app.most_at_once == 2
    assert max(len(body["conversations"]) for body in app.bodies) == 8
    assert len(app.bodies) <= 2 * (60 / 8 + 4)


def test_a_refused_conversation_doesnt_fail_its_neighbours(failing: Callable[..., Any], seven: float) -> None:
    unread, lone = SEVEN | {"reference": "7"}, {"messages": QUESTION, "responses": ["七\ud800"]}
    with failing() as (_, address), Client(address) as client:
        answers = client.rewards([SEVEN, unread, SEVEN, lone, SEVEN])
    assert [reward.value for reward in answers[::2]] == pytest.approx([seven] * 3)
    assert (answers[1].value, answers[1].reason) == (None, "no_such_field")
    assert answers[3].value is None


def test_what_is_left_of_a_refused_request_is_asked_at_once(model: OnlineScorer) -> None:
    """By an endpoint that takes a second for what it doesn't refuse, as a judge does."""
    app = application([model])
    under_way: list[int] = [0, 0]

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == httpx.codes.OK:
                await asyncio.sleep(1)
            await send(message)

        under_way[:] = under_way[0] + 1, max(under_way[1], under_way[0] + 1)
        try:
            await app(scope, receive, answer)
        finally:
            under_way[0] -= 1

    conversations = numbered(64)
    conversations[21] |= {"reference": "7"}
    with listening(slow) as address, Client(address, max_in_flight=4) as client:
        rewards = client.rewards(conversations)
    assert [place for place, reward in enumerate(rewards) if reward.value is None] == [21]
    assert 1 < under_way[1] <= 4


def test_a_deadline_says_what_failed_before(failing: Callable[..., Any]) -> None:
    gone = (503, {"Retry-After": "0"}, b'{"error": {"code": "no_replica", "message": "send it again"}}')
    with failing(gone, "hang", "hang") as (_, address), Client(address) as client:
        late = only(client.rewards([SEVEN], timeout=1))
    assert late.reason == "deadline"
    assert "no_replica (HTTP 503: send it again)" in late.message


def test_a_wrong_key_is_no_conversations_fault(
    failing: Callable[..., Any], seven: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_API_KEY", raising=False)
    with failing(keys=(KEY,)) as (app, address):
        with Client(address) as client:
            assert {reward.reason for reward in client.rewards([SEVEN] * 8)} == {"invalid_api_key"}
        assert len(app.bodies) == 1
        with Client(address, key=KEY) as client:
            assert only(client.rewards([SEVEN])).value == pytest.approx(seven)
        monkeypatch.setenv("ASSAY_API_KEY", KEY)
        with Client(address) as client:
            assert KEY.encode() not in pickle.dumps(client)
            assert only(client.rewards([SEVEN])).value == pytest.approx(seven)


def test_no_message_repeats_a_key(failing: Callable[..., Any], seven: float) -> None:
    with failing(keys=(KEY,)) as (_, address):
        with Client(address, key=f"{KEY}\n") as client:  # as it comes out of a file
            assert only(client.rewards([SEVEN])).value == pytest.approx(seven)
        with Client(address, key=f"{KEY}\n{KEY}") as client, pytest.raises(ValueError, match="the key") as refused:
            client.rewards([SEVEN])
    assert KEY not in str(refused.value)


def test_who_is_cancelled_takes_the_conversation_back(failing: Callable[..., Any]) -> None:
    first, second, third = numbered(3)

    async def ask(client: Client, app: Faulty) -> list[Reward]:
        held = asyncio.create_task(client.rewards_async([first]))
        await asyncio.to_thread(wait, lambda: bool(app.bodies))
        waiting, kept = (asyncio.create_task(client.rewards_async([each])) for each in (second, third))
        await asyncio.sleep(0)
        waiting.cancel()
        held.cancel()
        await asyncio.wait([waiting, held])
        return await kept

    with failing("hang") as (app, address), Client(address, max_in_flight=1, wait_ms=0) as client:
        assert only(asyncio.run(ask(client, app))).value is not None
    assert [body["conversations"] for body in app.bodies] == [[first], [third]]


def test_a_closed_client_says_so(failing: Callable[..., Any]) -> None:
    with failing("hang") as (app, address), ThreadPoolExecutor(1) as threads:
        client = Client(address, max_in_flight=1)
        held = threads.submit(client.rewards, numbered(200))
        wait(lambda: bool(app.bodies))
        client.close()
        client.close()
        assert {reward.reason for reward in held.result()} == {"closed"}
        assert only(client.rewards([SEVEN])).reason == "closed"


def test_what_isnt_json_is_the_callers_mistake(well: str) -> None:
    with Client(well) as client:
        with pytest.raises(TypeError, match="set"):
            client.rewards([SEVEN | {"fields": {"criteria": {1}}}])
        with pytest.raises(ValueError, match="JSON compliant"):
            client.rewards([SEVEN | {"fields": {"criteria": float("nan")}}])
        assert client.rewards([]) == []
    with pytest.raises(ValueError, match="ASSAY_URL"):
        Client("127.0.0.1:8000")


def _ask(client: Client) -> float:
    return only(client.rewards([SEVEN])).require()


def test_it_works_in_a_process_that_was_forked_after_use(well: str, seven: float) -> None:
    with Client(well) as client:
        assert _ask(client) == pytest.approx(seven)
        child = os.fork()
        if not child:  # nothing of pytest may run here
            try:
                os._exit(0 if abs(_ask(client) - seven) < 1e-9 else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert _ask(client) == pytest.approx(seven)


def test_a_pickle_is_a_client_with_the_same_settings(well: str, seven: float) -> None:
    with Client(well, timeout=50) as client, multiprocessing.get_context("spawn").Pool(1) as processes:
        assert _ask(client) == pytest.approx(seven)
        assert processes.apply(_ask, (client,)) == pytest.approx(seven)
    failure = pickle.loads(pickle.dumps(NoReward("deadline", "late")))
    assert (failure.reason, str(failure)) == ("deadline", "no reward: deadline (late)")
