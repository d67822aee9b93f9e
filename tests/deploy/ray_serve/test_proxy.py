"""Heads that don't end, against uvicorn as Serve's proxies run it."""

import asyncio
import contextlib
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ray.serve._private.proxy_request_response import ASGIProxyRequest
from uvicorn.protocols.http import auto

from deploy.ray_serve import proxy
from tests.support.endpoints import listening, raw, wait

WHOLE = b"GET /health HTTP/1.1\r\nHost: x\r\n"
SHORT_S = 0.3


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers when a request has been read, with the names in its head; at /long with more than anybody reads at once."""
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/long":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"a" * 2**16, "more_body": True})
        written.set()
        return
    if scope["path"] == "/wait":
        waiting.set()
        left.append((await receive())["type"])
        return
    text = b",".join(name for name, _ in scope["headers"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


written, waiting = threading.Event(), threading.Event()
left: list[str] = []


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(auto, "AutoHTTPProtocol", auto.AutoHTTPProtocol)
    (middleware,) = proxy.limit_heads()
    with listening(middleware.cls(app), log_config=None, timeout_keep_alive=600) as texts:
        yield texts


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, address: str) -> str:
    monkeypatch.setattr(proxy, "HEAD_TIMEOUT_S", SHORT_S)
    return address


def rest(one: socket.socket) -> bytes:
    """All until the other side ends it."""
    with contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: one.recv(4096), b""))
    return b""


def refused(answer: bytes) -> bool:
    """Nothing is a reset: the client still sent when it was refused, and lost what it was told."""
    return answer.startswith(b"HTTP/1.1 431 ") or answer == b""


@pytest.mark.parametrize("said", [b"G", WHOLE, b"\r\n", WHOLE + b"X: " + b"a" * 1000])
def test_half_a_head_is_given_up(impatient: str, said: bytes) -> None:
    with raw(impatient) as item:
        item.sendall(said)
        assert rest(item).startswith(b"HTTP/1.1 408 ")


def test_who_says_nothing_is_let_go(impatient: str) -> None:
    with raw(impatient) as item:
        assert rest(item) == b""


def test_half_a_head_after_an_answer_is_given_up(impatient: str) -> None:
    with raw(impatient) as item:
        item.sendall(WHOLE + b"\r\n")
        assert item.recv(4096).startswith(b"HTTP/1.1 200 ")
        item.sendall(b"GET /hea")
        assert b"HTTP/1.1 408 " in rest(item)


def test_a_body_may_take_longer_than_a_head(impatient: str) -> None:
    """The ingress has a limit of its own for that."""
    with raw(impatient) as item, raw(impatient) as half:
        item.sendall(WHOLE + b"Content-Length: 2\r\n\r\na")
        half.sendall(WHOLE)
        assert rest(half).startswith(b"HTTP/1.1 408 "), "so long it has been by now"
        item.sendall(b"b")
        assert item.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "lines",
    [
        b"X: " + b"a" * 2 * proxy.LONGEST_HEAD + b"\r\n\r\n",
        b"X: " + b"a" * 100 * proxy.LONGEST_HEAD,
        b"X: aaaaaaaaaaaa\r\n" * (proxy.LONGEST_HEAD // 10),
    ],
    ids=["a long field", "one that never ends", "many"],
)
def test_a_long_head_is_refused(address: str, lines: bytes) -> None:
    with raw(address) as item:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who isn't listened to any more
            item.sendall(WHOLE + lines)
        assert refused(rest(item))


def test_a_long_address_is_refused(address: str) -> None:
    with raw(address) as item:
        item.sendall(b"GET /" + b"a" * 2 * proxy.LONGEST_HEAD + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert refused(rest(item))


def test_heads_that_are_long_enough_for_anybody_pass(address: str) -> None:
    with raw(address) as item:
        for _ in range(3):  # on one connection, each with a body
            item.sendall(WHOLE + b"X: " + b"a" * 32_000 + b"\r\nContent-Length: 100000\r\n\r\n" + b"b" * 100_000)
            assert item.recv(4096).startswith(b"HTTP/1.1 200 ")


# What comes after a head.

CHUNKED = WHOLE + b"Transfer-Encoding: chunked\r\n\r\n"


def test_trailers_are_read_and_left_out(address: str) -> None:
    with raw(address) as item:
        item.sendall(CHUNKED + b"1\r\na\r\n0\r\nX-Late: 1\r\n\r\n")
        answer = item.recv(4096)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"host,transfer-encoding")


@pytest.mark.parametrize(
    "lines",
    [
        b"1\r\na\r\n0\r\nX: " + b"a" * 200 * proxy.LONGEST_HEAD,
        b"1\r\na\r\n0\r\n" + b"a:\r\n" * 100_000,
        b"1;" + b"a" * 200 * proxy.LONGEST_HEAD,
    ],
    ids=["a trailer that never ends", "many trailers", "a chunk's extension"],
)
def test_endless_trailers_are_refused(address: str, lines: bytes) -> None:
    with raw(address) as item:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            item.sendall(CHUNKED + lines)
        assert refused(rest(item))


def test_a_body_in_many_small_chunks_passes(address: str) -> None:
    with raw(address) as item:
        item.sendall(CHUNKED + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n")
        assert item.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_many_short_fields_count_what_they_take(address: str) -> None:
    with raw(address) as item:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            item.sendall(WHOLE + b"a:\r\n" * 10_000 + b"\r\n")
        assert refused(rest(item))


@pytest.mark.parametrize(
    "name",
    [
        b"serve_multiplexed_model_id",
        b"Serve-Multiplexed-Model-Id",
        b"X-Session-Id",
        b"X-Request-Id",
        b"X-Request-Timeout-Seconds",
        b"X-Request-Disconnect-Disabled",
        b"X-Serve-Router-Anything",
    ],
)
def test_nobody_tells_serve_what_to_do(address: str, name: bytes) -> None:
    with raw(address) as item:
        item.sendall(WHOLE + name + b": ?1\r\nX-Timeout-Seconds: 1\r\n\r\n")
        assert item.recv(4096).endswith(b"\r\n\r\nhost,x-timeout-seconds")


def test_nobody_speaks_another_protocol(address: str) -> None:
    with raw(address) as item:
        item.sendall(
            WHOLE + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert item.recv(4096).startswith(b"HTTP/1.1 200 ")


# Answers.


def test_a_few_requests_may_wait_for_the_answer_before_them(address: str) -> None:
    with raw(address) as item:
        item.sendall((WHOLE + b"\r\n") * proxy.MOST_WAITING + WHOLE + b"Connection: close\r\n\r\n")
        assert rest(item).count(b"HTTP/1.1 200 ") == proxy.MOST_WAITING + 1


def test_who_sends_requests_without_end_is_let_go(address: str) -> None:
    left.clear()
    with raw(address) as item:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            item.sendall(WHOLE.replace(b"/health", b"/wait") + b"\r\n" + (WHOLE + b"\r\n") * 1000)
        assert rest(item) == b""
    wait(lambda: left == ["http.disconnect"])


def test_a_request_that_others_wait_for_is_told_when_the_client_leaves(address: str) -> None:
    left.clear()
    waiting.clear()
    with raw(address) as item:
        item.sendall(WHOLE.replace(b"/health", b"/wait") + b"\r\n" + (WHOLE + b"\r\n") * 2)
        assert waiting.wait(60)
    wait(lambda: left == ["http.disconnect"])


def test_who_reads_no_answer_is_let_go(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(proxy, "UNREAD_TIMEOUT_S", SHORT_S)
    written.clear()
    with raw(address) as item:
        item.sendall(WHOLE.replace(b"/health", b"/long") + b"\r\n")
        assert written.wait(60), "nobody waits for the client any more"


class Unread:
    """A transport of which so much is unread at each look."""

    def __init__(self, *sizes: int) -> None:
        self._sizes, self.looks, self.aborted = sizes, 0, False

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        return self._sizes[self.looks - 1]

    def abort(self) -> None:
        self.aborted = True


def test_who_reads_something_is_kept() -> None:
    cases: list[tuple[tuple[int, ...], bool]] = [
        ((9, 9), True),
        ((9, 10), True),
        ((9, 8), False),
        ((0, 9), False),
        ((9, 0), False),
        ((0, 0), False),
    ]
    for sizes, aborted in cases:
        item: Any = object.__new__(proxy.LimitedHeads)
        item.transport, item.loop = Unread(*sizes), asyncio.new_event_loop()
        for _ in sizes:
            item._check_reading()
        item.loop.close()
        assert item.transport.aborted is aborted


# Connections.


def test_there_is_a_bound_to_connections(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    wait(lambda: proxy.LimitedHeads.open_connections == 0)
    monkeypatch.setattr(proxy, "MOST_CONNECTIONS", 2)
    for _ in range(2):  # who leaves makes room
        with raw(address), raw(address) as item:
            wait(lambda: proxy.LimitedHeads.open_connections == 2)
            with raw(address) as beyond:
                assert rest(beyond) == b""
            item.sendall(WHOLE + b"\r\n")
            assert item.recv(4096).startswith(b"HTTP/1.1 200 ")
        wait(lambda: proxy.LimitedHeads.open_connections == 0)


@pytest.mark.parametrize(("files", "most"), [(1024, 512), (2**20, 8192), (resource.RLIM_INFINITY, 8192)])
def test_connections_leave_files_for_the_rest(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert proxy.find_most_connections() == most


@pytest.mark.parametrize("path", ["/-/routes", "/-/%72outes"])
def test_serves_own_list_of_routes_is_the_ingress_to_answer(path: str) -> None:
    """As `ray.serve._private.proxy_request_response` compares the path, which servers have decoded."""
    seen = list[bool]()

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        seen.append(ASGIProxyRequest(scope, receive, send).is_route_request)
        await app(scope, receive, send)

    with listening(proxy.WithoutRoutes(serve), log_config=None) as address, raw(address) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        rest(connection)
    assert seen == [False]
