"""What Serve's proxies are told as they start: a request's head has a time limit and a size limit.

The ingress sees a request once its head is whole, so that half a head is the proxy's matter. Uvicorn, which the proxy
listens with, would wait for the rest for ever, and take one of any length. Ray calls the function that this variable names
in every proxy, before it listens:

    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=deploy.proxy:limit_heads

`assay serve` sets it; elsewhere it is set on all nodes whose Python has this package, as `deploy/Dockerfile` does.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http import auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

VARIABLE = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
CALLBACK = f"{__name__}:limit_heads"
LONGEST_HEAD = 2**16
"""In bytes, the request line included. Apache takes 8 KiB a line and 100 of them, nginx 32 KiB in all."""
HEAD_TIMEOUT_S = 30.0
"""From when a connection is made, or the first byte of a further request on it came, until its head is whole."""


def limit_heads() -> list[Any]:
    """Have uvicorn in this process refuse heads that don't end. Returns what Ray wants: a list of middlewares, here none."""
    auto.AutoHTTPProtocol = LimitedHeads
    return []


class _TooLong(ValueError):
    """Raised inside the parser, which then ends the connection."""


class LimitedHeads(HttpToolsProtocol):
    """HTTP/1.1 whose heads come in time and in a sane size. A client whose head doesn't is told so, and let go."""

    _waiting: asyncio.TimerHandle | None = None
    _in_head = _has_spoken = _too_long = False
    _before = _fields = 0
    """Bytes of a head in earlier reads, and in its fields: a field that never ends is in none."""

    def connection_made(self, transport: Any) -> None:
        """Asyncio's."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Asyncio's."""
        self._has_spoken = True
        if self._waiting is None and self._is_idle:
            self._wait()
        continues = self._in_head
        super().data_received(data)
        if continues and self._in_head and not self._too_long:
            self._before += len(data)
            if self._before > LONGEST_HEAD:
                self._too_long = True
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """The parser's."""
        super().on_message_begin()
        self._in_head, self._before, self._fields = True, 0, 0
        if self._waiting is None:
            self._wait()

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's."""
        self._fields += len(name) + len(value)
        if self._fields + len(self.url) > LONGEST_HEAD:
            self._too_long = True
            raise _TooLong
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The parser's."""
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Uvicorn's, for what it can't parse."""
        if self._too_long:
            self._refuse(b"431 Request Header Fields Too Large", f"the head is longer than {LONGEST_HEAD} bytes")
        else:
            super().send_400_response(msg)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self._is_idle:  # an answer is being written: the head of the next request has to wait for it
            self._wait()
        elif self._has_spoken:
            self._refuse(b"408 Request Timeout", f"the head didn't come within {HEAD_TIMEOUT_S:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: bytes, told: str) -> None:
        if not self.transport.is_closing():
            lines = (b"HTTP/1.1 " + status, b"content-type: text/plain", b"connection: close", b"", told.encode())
            self.transport.write(b"\r\n".join(lines))
            self.transport.close()
