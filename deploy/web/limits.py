"""Refuses requests before any route sees them: no key, too many at a time, a body that is too long or too slow.

Pure ASGI, around all routes. A body is read completely here, so that no route ever waits for a slow client.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse

from actors.errors import AssayError
from deploy.errors import ApiError
from deploy.metrics.counters import count_request, set_under_way
from deploy.models.service import timeout_s
from deploy.models.work import body_bytes
from deploy.settings import LimitSettings
from deploy.web.auth import Keys

DOCS_FILES = "/docs-files"
# Paths without a key: the page, which asks for one itself, the API's documentation, and probes.
OPEN_PATHS = frozenset({"/", "/app.js", "/style.css", "/icon.svg", "/docs", "/openapi.json", "/health", "/ready"})
_MOST_DIGITS = 20  # of a Content-Length: 10^20 bytes is more than any body, and int() of a long text takes quadratic time
_MOST_DISCARDED = 2**26  # bytes of a refused body: four times the longest that is read by default
# Refused bodies at a time. Each holds one of the 64 requests that Serve lets through beyond the others (`app.py`), and needs
# no key: slow clients must not hold them all.
_MOST_DISCARDING = 32
_SHOWN = 40  # characters of a header that an error repeats: a client may have chosen them
_CLIENT_LEFT = 499  # in the metrics, for a request without an answer, as nginx logs it; it is never sent
TIMEOUT_HEADER = b"x-timeout-seconds"
# Where requests wait for room. NeMo Gym's client sends up to 1,024 at once from each agent and never asks again by a status:
# a 429 ends its run.
_WAITING_PATHS = frozenset({"/verify"})


class _Left(AssayError):
    """The client disconnected before it had sent its whole body."""


class _Body:
    """ASGI's `receive`, and whether the whole body came, or the client left."""

    def __init__(self, receive: Any) -> None:
        self._receive = receive
        self.is_over = False

    async def __call__(self) -> Any:
        message = await self._receive()
        self.is_over = not message.get("more_body", False)
        return message


class Gate:
    """The outermost ASGI application: checks a request, runs the routes, and counts the answer."""

    def __init__(
        self, app: Any, limits: LimitSettings, keys: Keys, routes: frozenset[str], origins: Sequence[str] = ()
    ) -> None:
        """`routes` are the paths that metrics name; pages of `origins` may ask from a browser."""
        self._app = app
        # Around all else: a browser asks beforehand without a key, and shows a page no error without these headers.
        self._enter: Any = _with_cors(self._answer, origins) if origins else self._answer
        self._limits = limits
        self._keys = keys
        self._routes = routes
        self.under_way = self.waiting = 0
        self._places = asyncio.Semaphore(limits.max_requests)
        self._discarding = 0
        self.is_stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def drain(self) -> None:
        """Refuse requests from now on, and return when none is under way any more."""
        self.is_stopping = True
        await self._idle.wait()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._enter(scope, receive, send)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), _CLIENT_LEFT
        path = _path(scope)
        if scope["method"] == "HEAD":  # FastAPI has no HEAD for its GET routes; uvicorn, by its own scope, sends no body
            scope = {**scope, "method": "GET"}

        async def send_and_note(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        async def send_without_end(message: Any) -> None:
            is_body = message["type"] == "http.response.body"
            await send_and_note({**message, "more_body": True} if is_body else message)

        body, is_refused = _Body(receive), False
        try:
            await self._admit(scope, body, send_and_note)
        except _Left:
            pass  # nobody is there to read an answer
        except ApiError as error:  # only of this class: the routes' errors became answers inside the application
            is_refused = True
            # Closing: a rest of the body that isn't read would pass for the next request on this connection.
            answer = JSONResponse(error.body, error.status, {"Connection": "close", **error.headers})
            await answer(scope, body, send_without_end)
        finally:
            # Known routes alone are labels: a client that makes up paths would make a time series of each.
            count_request(path if path in self._routes else "other", status, time.monotonic() - start)
        if is_refused:
            await self._discard(body)
            await send({"type": "http.response.body"})

    async def _discard(self, body: _Body) -> None:
        """Read what still comes of a refused body, after its answer and before the server closes.

        Most clients send all before they read, and to close on one that still sends resets the connection: of 1 MB and more,
        it would lose the answer.
        """
        if self._discarding >= _MOST_DISCARDING:
            return
        self._discarding += 1
        length = 0
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                while not body.is_over and length < _MOST_DISCARDED:
                    message = await body()
                    length += len(message.get("body", b""))
        except TimeoutError:
            pass  # a slow client, to which the answer has been sent
        finally:
            self._discarding -= 1

    async def _admit(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on to the routes. Raises `ApiError` or `_Left` if it doesn't get there.

        The order matters: the key before the limit, so that clients without one can't use up the places, and both before the
        body, so that a refused request costs no memory.
        """
        headers = dict(scope["headers"])
        path = _path(scope)
        public = path in OPEN_PATHS or path.startswith(f"{DOCS_FILES}/")
        # Before the limit as well: a probe that got 429 under load would have the endpoint restarted.
        if public and scope["method"] == "GET":
            await self._app(scope, receive, send)
            return
        authorization, host = (headers.get(name, b"").decode("latin-1") for name in (b"authorization", b"host"))
        self._keys.check(authorization, (scope.get("client") or ("",))[0], host)
        self._check_stopping()
        timeout_s.set(_timeout(headers.get(TIMEOUT_HEADER)))
        await self._take_place(path)
        self.under_way += 1
        self._idle.clear()
        set_under_way(self.under_way)
        try:
            self._check_stopping()  # it may have begun meanwhile
            body = await self._read_body(headers, receive)
            body_bytes.set(len(body))
            await self._app(scope, _replay(body, receive), send)
        finally:
            self._places.release()
            self.under_way -= 1
            set_under_way(self.under_way)
            if not self.under_way:
                self._idle.set()

    def _check_stopping(self) -> None:
        if self.is_stopping:
            raise ApiError(503, "this endpoint is stopping", code="stopping", retry_after_s=5)

    async def _take_place(self, path: str) -> None:
        """Take a place among the requests under way. Raises `ApiError`: 429 if there is none.

        On some paths as many again wait for one, in the order of their coming and for the time that an answer may take.
        """
        if not self._places.locked():
            await self._places.acquire()  # at once
            return
        refusal = ApiError(429, f"{self.under_way} requests are under way already", code="overloaded", retry_after_s=1)
        if path not in _WAITING_PATHS or self.waiting >= self._limits.max_requests:
            raise refusal
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.answer_timeout_s):
                await self._places.acquire()
        except TimeoutError:
            raise refusal from None
        finally:
            self.waiting -= 1

    async def _read_body(self, headers: dict[bytes, bytes], receive: Any) -> bytes:
        """The whole body.

        Raises `ApiError` if it is too long (413) or takes too long (408), `_Left` if the client leaves.
        """
        max_bytes = self._limits.max_body_bytes
        # A packed body could hold a thousand times its bytes, and no client of a route here packs its own.
        if headers.get(b"content-encoding", b"").strip().lower() not in {b"", b"identity"}:
            raise ApiError(415, "a body with a Content-Encoding isn't read here: send it as it is", code="encoded")
        # By the header first, so that a long body isn't read at all; a chunked body has none, so bytes are counted as well.
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > _MOST_DIGITS or int(declared) > max_bytes:
            raise _too_long(max_bytes)
        parts, length = [], 0
        try:
            # For the whole body, not for each piece: a client may send a byte every second.
            async with asyncio.timeout(self._limits.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Left
                    parts.append(message.get("body", b""))
                    length += len(parts[-1])
                    if length > max_bytes:
                        raise _too_long(max_bytes)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiError(
                408, f"the body didn't come within {self._limits.body_timeout_s:g} s", code="body_timeout"
            ) from None


def _path(scope: Any) -> str:
    """The path of a route: below that of its model, where the model has a path of its own."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path or "/"


def _replay(body: bytes, receive: Any) -> Any:
    """An ASGI `receive` that gives the body, which was read already, and then what the server gives: a disconnect."""
    is_replayed = False

    async def receive_again() -> Any:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _with_cors(app: Any, origins: Sequence[str]) -> CORSMiddleware:
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "HEAD", "POST", "PUT"),
        allow_headers=("Authorization", "Content-Type", TIMEOUT_HEADER.decode()),
        expose_headers=("Retry-After",),
    )


def _timeout(value: bytes | None) -> float | None:
    """Seconds in X-Timeout-Seconds; None without it. Raises `ApiError` unless it is a finite number above 0."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0  # refused below
    if not 0 < seconds < float("inf"):
        raise ApiError(
            400,
            f"X-Timeout-Seconds is {value[:_SHOWN].decode('latin-1')!a}, and must be a number of seconds above 0",
            param="X-Timeout-Seconds",
        )
    return seconds


def _too_long(max_bytes: int) -> ApiError:
    return ApiError(413, f"the body is longer than {max_bytes} bytes; send several requests", code="body_too_long")
