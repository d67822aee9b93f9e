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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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


class Neighbour:
    """Somebody with a key, a question, and no patience."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answers: list[httpx.Response] = []
        self.slowest_s = 0.0

    def _ask(self) -> None:
        with httpx.Client(base_url=self._address, headers=KEYED, timeout=60) as client:
            while not self._stop.is_set():
                began = time.monotonic()
                self.answers.append(client.post("/v1/rewards", json=BODY))
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def __enter__(self) -> "Neighbour":
        self._thread.start()
        wait(lambda: self.answers)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def neighbour(address: str, expected: list[float]) -> Iterator[Neighbour]:
    """Asks while the test goes on, and once more after it."""
    with Neighbour(address) as item:
        yield item
        after = len(item.answers) + 1
        wait(lambda: len(item.answers) > after or not item._thread.is_alive())
    print(f"the neighbour: {len(item.answers)} answers, the slowest after {item.slowest_s:.2f} s")
    assert {answer.status_code for answer in item.answers} == {200}
    assert all(rewards(answer) == expected for answer in item.answers)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def dribble(one: socket.socket, content: bytes, pause_s: float) -> int:
    """Send each byte by itself until there is an answer; how many there were."""
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for sent, byte in enumerate(content):
        if select.select([one], [], [], pause_s)[0]:
            return sent
        one.send(bytes([byte]))
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


def test_a_body_that_comes_byte_by_byte_is_read(address: str, neighbour: Neighbour, expected: list[float]) -> None:
    content = json.dumps(BODY).encode()
    with raw(address) as item:
        item.sendall(head(len(content), **KEYED, Connection="close"))
        assert dribble(item, content, 0.005) == len(content)
        answer = b"".join(iter(lambda: item.recv(4096), b""))
    assert status(answer) == 200
    (judged,) = json.loads(answer.partition(b"\r\n\r\n")[2])["data"]
    assert [response["reward"] for response in judged["responses"]] == expected


def test_bodies_that_never_end_are_given_up(address: str, neighbour: Neighbour) -> None:
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
        wait(lambda: asked(address).status_code == 429)
        full = asked(address)
        counts = Counter(client.result()[0] for client in clients)
    assert (full.status_code, full.headers["Retry-After"]) == (429, "1")
    assert set(counts) <= {408, 429}
    assert counts[408] > PLACES / 2
    wait(lambda: asked(address).status_code == 200)


def asked(address: str, **headers: str) -> httpx.Response:
    return httpx.post(f"{address}/v1/rewards", json=BODY, headers=headers or KEYED, timeout=60)


# Large ones.


class Peaks:
    """How much some processes grow, looked at all the time."""

    def __init__(self, processes: Sequence[psutil.Process]) -> None:
        self._processes = processes
        self._before = [process.memory_info().rss for process in processes]
        self._peaks = list(self._before)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._stop.wait(0.002):
            self._peaks = [
                max(peak, process.memory_info().rss) for peak, process in zip(self._peaks, self._processes, strict=True)
            ]

    def __enter__(self) -> "Peaks":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def grown(self) -> list[float]:
        """In MiB."""
        return [(peak - before) / MIB for peak, before in zip(self._peaks, self._before, strict=True)]


@pytest.fixture(scope="module")
def processes(address: str) -> list[psutil.Process]:
    """The proxy, the ingress, and the model's replica."""
    wanted = ("ray::ProxyActor", "ray::ServeReplica:assay:ingress", "ray::ServeReplica:assay:model-0")

    def handler() -> list[list[psutil.Process]]:
        running = [(item, title(item)) for item in family(psutil.Process())]
        return [[item for item, name in running if name.startswith(request)] for request in wanted]

    # Those of an earlier Ray of this process may need a moment to end.
    wait(lambda: [len(item) for item in handler()] == [1, 1, 1])
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
def test_a_body_of_100_mb_is_refused_and_not_held(
    address: str, neighbour: Neighbour, processes: Any, length: int | None
) -> None:
    with Peaks(processes) as peaks, ThreadPoolExecutor(4) as threads:
        message = list(threads.map(flood, [address] * 4, [length] * 4))
    print(f"grown by {peaks.grown} MiB")
    assert message == [413] * 4
    assert max(peaks.grown) < 128  # 45 at the most in 20 runs; without limits it was 200 to 1,000


# Without a key.


def test_without_a_key_nobody_is_listened_to(address: str, neighbour: Neighbour) -> None:
    for header in ("", "Bearer", f"Bearer {KEY}x", f"Basic {KEY}", "Bearer another-key-that-is-long"):
        answer = asked(address, Authorization=header)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    for headers in ({}, {"Authorization": f"Bearer {KEY}x"}):
        with raw(address) as item:
            item.sendall(head(LONG, **headers))
            assert status(item.recv(4096)) == 401, "before any of its body"
