"""Heads that don't end, against uvicorn as Serve's proxies run it."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from uvicorn.protocols.http import auto

from deploy import proxy
from tests.endpoints import listening, raw

WHOLE = b"GET /health HTTP/1.1\r\nHost: x\r\n"
SHORT_S = 0.3


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers when a request has been read."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(auto, "AutoHTTPProtocol", auto.AutoHTTPProtocol)
    assert proxy.limit_heads() == []
    with listening(app, log_config=None, timeout_keep_alive=600) as own:
        yield own


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
    with raw(impatient) as one:
        one.sendall(said)
        assert rest(one).startswith(b"HTTP/1.1 408 ")


def test_who_says_nothing_is_let_go(impatient: str) -> None:
    with raw(impatient) as one:
        assert rest(one) == b""


def test_half_a_head_after_an_answer_is_given_up(impatient: str) -> None:
    with raw(impatient) as one:
        one.sendall(WHOLE + b"\r\n")
        assert one.recv(4096).startswith(b"HTTP/1.1 200 ")
        one.sendall(b"GET /hea")
        assert b"HTTP/1.1 408 " in rest(one)


def test_a_body_may_take_longer_than_a_head(impatient: str) -> None:
    """The ingress has a limit of its own for that."""
    with raw(impatient) as one, raw(impatient) as half:
        one.sendall(WHOLE + b"Content-Length: 2\r\n\r\na")
        half.sendall(WHOLE)
        assert rest(half).startswith(b"HTTP/1.1 408 "), "so long it has been by now"
        one.sendall(b"b")
        assert one.recv(4096).startswith(b"HTTP/1.1 200 ")


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
    with raw(address) as one:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who isn't listened to any more
            one.sendall(WHOLE + lines)
        assert refused(rest(one))


def test_a_long_address_is_refused(address: str) -> None:
    with raw(address) as one:
        one.sendall(b"GET /" + b"a" * 2 * proxy.LONGEST_HEAD + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert refused(rest(one))


def test_heads_that_are_long_enough_for_anybody_pass(address: str) -> None:
    with raw(address) as one:
        for _ in range(3):  # on one connection, each with a body
            one.sendall(WHOLE + b"X: " + b"a" * 32_000 + b"\r\nContent-Length: 100000\r\n\r\n" + b"b" * 100_000)
            assert one.recv(4096).startswith(b"HTTP/1.1 200 ")
