"""Clients that are broken or mean harm, through Ray Serve's own proxy: each is told so, and nobody else notices.

One deployment for all tests here, on the fake engine. While they go on, a neighbour asks all the time, and is answered.
"""

import contextlib
import json
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from tests.support.endpoints import QUESTION, application, deploy, head, post, raw, ray_serve, rewards, scorer, wait
from tests.support.processes import family, title

pytestmark = pytest.mark.long  # tests/deploy/web/test_limits.py shows most of the limits without Ray Serve

MODEL = "tiny-attributes"
KEY = "a-key-of-more-than-sixteen"
KEYED = {"Authorization": f"Bearer {KEY}"}
BODY = {"conversations": [{"messages": QUESTION, "responses": ["7", "9"]}]}
PLACES = 32
BODY_TIMEOUT_S = 6.0
MIB = 2**20
LIMITS = {"max_requests": PLACES, "max_body_bytes": MIB, "body_timeout_s": BODY_TIMEOUT_S}
LONG = 100 * MIB


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ray_serve() as cluster:
        deploy(MODEL, limits=LIMITS, keys=[KEY])
        yield cluster


@pytest.fixture(scope="module")
def expected() -> list[float]:
    """What the neighbour should be told, from the core in this process."""
    online_scorer = scorer(MODEL)
    actual_rewards = rewards(post(application([online_scorer]), "/v1/rewards", BODY))
    online_scorer.close()
    return actual_rewards


@contextmanager
def repeating(step: Callable[[], None]) -> Iterator[None]:
    """Do something again and again beside the block."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            step()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def neighbour(address: str, expected: list[float]) -> Iterator[None]:
    """Somebody with a key and no patience asks while the test goes on, and once more after it."""
    answers = list[httpx.Response]()
    with (
        httpx.Client(base_url=address, headers=KEYED, timeout=60) as client,
        repeating(lambda: answers.append(client.post("/v1/rewards", json=BODY))),
    ):
        wait(lambda: answers)
        yield
        after = len(answers) + 1
        wait(lambda: len(answers) > after)
    slowest_s = max(answer.elapsed.total_seconds() for answer in answers)
    print(f"the neighbour: {len(answers)} answers, the slowest after {slowest_s:.2f} s")
    assert {answer.status_code for answer in answers} == {200}
    assert all(rewards(answer) == expected for answer in answers)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def dribble(connection: socket.socket, content: bytes, pause_s: float) -> int:
    """Send each byte by itself until there is an answer; how many there were."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for sent, byte in enumerate(content):
        if select.select([connection], [], [], pause_s)[0]:
            return sent
        connection.send(bytes([byte]))
    return len(content)


def stalled(address: str) -> tuple[int, float]:
    """Half a body, and then nothing: what it is told, and after how long."""
    with raw(address) as item:
        began = time.monotonic()
        item.sendall(head(50, **KEYED) + b'{"conversations": [')
        return status(item.recv(4096)), time.monotonic() - began


def never_done(address: str) -> tuple[int, float]:
    """A byte now and then, of which each might be the last."""
    with raw(address) as item:
        began = time.monotonic()
        item.sendall(head(1000, **KEYED))
        assert dribble(item, b" " * 600, 0.05) < 600, "half a minute, and nobody has stopped it"
        return status(item.recv(4096)), time.monotonic() - began


# Slow ones.


def test_a_body_that_comes_byte_by_byte_is_read(address: str, neighbour: None, expected: list[float]) -> None:
    content = json.dumps(BODY).encode()
    with raw(address) as item:
        item.sendall(head(len(content), **KEYED, Connection="close"))
        assert dribble(item, content, 0.005) == len(content)
        answer = b"".join(iter(lambda: item.recv(4096), b""))
    assert status(answer) == 200
    (judged,) = json.loads(answer.partition(b"\r\n\r\n")[2])["data"]
    assert [response["reward"] for response in judged["responses"]] == expected


def test_bodies_that_never_end_are_given_up(address: str, neighbour: None) -> None:
    """Beside clients that say nothing at all, or half of what they want."""
    with contextlib.ExitStack() as several, ThreadPoolExecutor(16) as threads:
        for text in (b"", b"POST /v1/rewards HTTP/1.1\r\nHost"):
            for _ in range(25):
                several.enter_context(raw(address)).sendall(text)
        clients = [threads.submit(item, address) for item in (stalled, never_done) for _ in range(8)]
        message = [client.result() for client in clients]
    print(message)
    assert {answered for answered, _ in message} == {408}
    assert min(after for _, after in message) >= BODY_TIMEOUT_S


def test_places_that_half_bodies_took_are_free_again(address: str) -> None:
    with ThreadPoolExecutor(PLACES + 4) as threads:
        clients = [threads.submit(stalled, address) for _ in range(PLACES + 4)]
        wait(lambda: post_rewards(address).status_code == 429)
        full = post_rewards(address)
        counts = Counter(client.result()[0] for client in clients)
    assert (full.status_code, full.headers["Retry-After"]) == (429, "1")
    assert set(counts) <= {408, 429}
    assert counts[408] > PLACES / 2
    wait(lambda: post_rewards(address).status_code == 200)


def post_rewards(address: str, **headers: str) -> httpx.Response:
    return httpx.post(f"{address}/v1/rewards", json=BODY, headers=headers or KEYED, timeout=60)


# Large ones.


@contextmanager
def watched(processes: Sequence[psutil.Process]) -> Iterator[list[float]]:
    """How much each process grows at the most in the block, in MiB."""
    before = [process.memory_info().rss for process in processes]
    growth = [0.0] * len(processes)

    def look() -> None:
        time.sleep(0.002)
        for number, process in enumerate(processes):
            growth[number] = max(growth[number], (process.memory_info().rss - before[number]) / MIB)

    with repeating(look):
        yield growth


@pytest.fixture(scope="module")
def processes(address: str) -> list[psutil.Process]:
    """HAProxy, and the model's replica."""

    def handler() -> list[list[psutil.Process]]:
        running = [(item, title(item)) for item in family(psutil.Process())]
        proxies = [item for item, name in running if "/haproxy -db" in name]
        return [proxies[-1:], [item for item, name in running if name.startswith("ray::ServeReplica:assay:model-0")]]

    # Those of an earlier Ray of this process may need a moment to end.
    wait(lambda: [len(item) for item in handler()] == [1, 1])
    return [item for (item,) in handler()]


def flood(address: str, length: int | None) -> int:
    """100 MB, whatever the server says; the status that it said then."""
    piece = b" " * 2**16
    with raw(address) as item:
        item.sendall(head(length, **KEYED))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who isn't listened to any more
            for _ in range(LONG // len(piece)):
                item.sendall(piece if length else b"10000\r\n%s\r\n" % piece)
        return status(item.recv(4096))


@pytest.mark.parametrize("length", [LONG, None], ids=["told", "in chunks"])
def test_a_body_of_100_mb_is_refused_and_not_held(address: str, neighbour: None, processes: Any, length: int | None) -> None:
    with watched(processes) as growth, ThreadPoolExecutor(4) as threads:
        message = list(threads.map(flood, [address] * 4, [length] * 4))
    print(f"grown by {growth} MiB")
    assert message == [413] * 4
    assert max(growth) < 128  # 45 at the most in 20 runs; without limits it was 200 to 1,000


# Without a key.


def test_without_a_key_nobody_is_listened_to(address: str, neighbour: None) -> None:
    for header in ("", "Bearer", f"Bearer {KEY}x", f"Basic {KEY}", "Bearer another-key-that-is-long"):
        answer = post_rewards(address, Authorization=header)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    for headers in ({}, {"Authorization": f"Bearer {KEY}x"}):
        with raw(address) as item:
            item.sendall(head(LONG, **headers))
            assert status(item.recv(4096)) == 401, "before any of its body"
