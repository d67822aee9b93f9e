"""What is refused before anybody looks at it: too many requests at a time, too long a body, or one that doesn't come.

Pure ASGI, around all routes. A body is read whole here, so that no route ever waits for a slow client.
"""

import asyncio
import json
import time
from typing import Any

from actors.errors import AssayError
from deploy.errors import ApiError
from deploy.metrics.counters import Meters
from deploy.models.service import timeout_s
from deploy.models.work import body_bytes
from deploy.settings import LimitSettings
from deploy.web.auth import Keys

DOCS_FILES = "/docs-files"
OPEN_PATHS = frozenset({"/", "/app.js", "/style.css", "/icon.svg", "/docs", "/openapi.json", "/health", "/ready"})
"""What needs no key: pages, which ask for one, what they describe, and what probes look at."""
_MOST_DIGITS = 20
"""Of a length: enough for any number of bytes there is."""
TIMEOUT_HEADER = b"x-timeout-seconds"


class _Left(AssayError):
    """The client is gone before its request was."""


class Gate:
    """The first and the last that a request meets."""

    def __init__(self, app: Any, limits: LimitSettings, keys: Keys, routes: frozenset[str]) -> None:
        self._app = app
        self._limits = limits
        self._keys = keys
        self._routes = routes
        self._meters = Meters()
        self.under_way = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 499
        path = scope["path"]

        async def sent(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._let_in(scope, receive, sent)
        except _Left:
            pass
        except ApiError as error:
            await _answer(sent, error)
        finally:
            self._meters.answered(path if path in self._routes else "other", status, time.monotonic() - began)

    async def _let_in(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        path = scope["path"]
        public = path in OPEN_PATHS or path.startswith(f"{DOCS_FILES}/")
        if public and scope["method"] in {"GET", "HEAD"}:  # also when everything else is full
            await self._app(scope, receive, send)
            return
        authorization, host = (headers.get(name, b"").decode("latin-1") for name in (b"authorization", b"host"))
        self._keys.check(authorization, (scope.get("client") or ("",))[0], host)
        if self.under_way >= self._limits.max_requests:
            raise ApiError(429, f"{self.under_way} requests are under way already", code="overloaded", retry_after_s=1)
        timeout_s.set(_timeout(headers.get(TIMEOUT_HEADER)))
        self.under_way += 1
        self._meters.under_way(self.under_way)
        try:
            body = await self._body(headers, receive)
            body_bytes.set(len(body))
            await self._app(scope, _replayed(body, receive), send)
        finally:
            self.under_way -= 1
            self._meters.under_way(self.under_way)

    async def _body(self, headers: dict[bytes, bytes], receive: Any) -> bytes:
        most = self._limits.max_body_bytes
        told = headers.get(b"content-length", b"0")
        if not told.isdigit() or len(told) > _MOST_DIGITS or int(told) > most:  # int() takes no text of any length
            raise _too_long(most)
        parts, length = [], 0
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Left
                    parts.append(message.get("body", b""))
                    length += len(parts[-1])
                    if length > most:
                        raise _too_long(most)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiError(
                408, f"the body didn't come within {self._limits.body_timeout_s:g} s", code="body_timeout"
            ) from None


def _replayed(body: bytes, receive: Any) -> Any:
    """The body again, and then whatever comes, which is the client's leaving."""
    given = False

    async def again() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _timeout(value: bytes | None) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ApiError(400, "X-Timeout-Seconds takes a number above 0", param="X-Timeout-Seconds")
    return seconds


def _too_long(most: int) -> ApiError:
    return ApiError(413, f"the body is longer than {most} bytes; send several requests", code="body_too_long")


async def _answer(send: Any, error: ApiError) -> None:
    """An error, after which the connection ends: what is left of a body isn't read."""
    content = json.dumps(error.body).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(content)),
        "connection": "close",
        **error.headers,
    }
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})
