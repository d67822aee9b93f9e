"""What Serve's proxies are told as they start: what a client may send beside bodies, and how long it may leave answers.

The ingress sees a request once its head is whole, so that half a head is the proxy's matter; so are trailers after a body,
requests that wait for the answers to others before them, and answers that nobody reads. Uvicorn, which the proxy listens
with, would wait for ever, and take as much as is sent. Nor does the ingress see what Serve makes of a head: whoever may
write Serve's own headers there has his request go on after he has left, or gives it no time at all. Ray calls the function
that this variable names in every proxy, before it listens:

    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=deploy.ray_serve.proxy:limit_heads

`assay serve` sets it; elsewhere it is set on all nodes whose Python has this package, as `deploy/Dockerfile` does.
"""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http import auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

VARIABLE = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
CALLBACK = f"{__name__}:limit_heads"
LONGEST_HEAD = 2**16
"""In bytes, the request line included. Apache takes 8 KiB a line and 100 of them, nginx 32 KiB in all."""
HEAD_TIMEOUT_S = 30.0
"""From when a connection is made, or the first byte of a further request on it came, until its head is whole."""
UNREAD_TIMEOUT_S = 30.0
"""After which a client is let go that reads nothing of what waits for it."""
MOST_WAITING = 16
"""Requests of one connection whose turn is after another's answer."""


def find_most_connections() -> int:
    """How many connections a proxy keeps: of the files that it may have open, half are left to Ray and to logs."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 8192 if files == resource.RLIM_INFINITY else min(8192, files // 2)


MOST_CONNECTIONS = find_most_connections()
"""At a time, of all clients together: each costs memory and a file before anybody has shown a key."""
_FIELD_BYTES = 32
"""What a field of a head counts beside its name and value, as in HTTP/2: kept, the shortest one takes more."""
_SERVES_OWN = frozenset(
    {
        b"serve-multiplexed-model-id",  # looks for a replica that has this one
        b"x-session-id",  # keeps to one replica
        b"x-request-id",  # names the request in logs
        b"x-request-timeout-seconds",
        b"x-request-disconnect-disabled",  # goes on when nobody waits
    }
)
_SERVES_ROUTER = b"x-serve-"


def limit_heads() -> list[Any]:
    """Have uvicorn in this process refuse heads that don't end. Returns what Ray wants: a list of middlewares, here none."""
    auto.AutoHTTPProtocol = LimitedHeads
    return []


class _Refused(ValueError):
    """Raised inside the parser, which then ends the connection."""


class LimitedHeads(HttpToolsProtocol):
    """HTTP/1.1 whose heads come in time and in a sane size. A client whose head doesn't is told so, and let go.

    Nor is a client kept that sends more trailers or requests than anybody means, reads no answer, or is one too many.
    """

    open_connections = 0
    """Of all clients of this process."""
    _waiting: asyncio.TimerHandle | None = None
    _looking: asyncio.TimerHandle | None = None
    _in_head = _has_spoken = _too_long = _too_many = _has_read = False
    _before = _fields = _unread = 0
    """Bytes since the parser last got anywhere, in earlier reads, and in fields: a field that never ends is in none."""
    _steps = 0
    """How often the parser got somewhere: to the end of a head, a piece of a body, the end of a request."""
    _unanswered: tuple[Any, ...] = ()
    """The requests whose answers aren't complete, in their order."""

    def connection_made(self, transport: Any) -> None:
        """Asyncio's."""
        super().connection_made(transport)
        LimitedHeads.open_connections += 1
        if LimitedHeads.open_connections > MOST_CONNECTIONS:
            self.transport.abort()  # an answer would be one more thing to wait for
            return
        self._wait()
        self._looking = self.loop.call_later(UNREAD_TIMEOUT_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's."""
        LimitedHeads.open_connections -= 1
        self._stop_waiting()
        if self._looking is not None:
            self._looking.cancel()
        for cycle in self._unanswered:  # uvicorn tells the last alone
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Asyncio's."""
        self._has_spoken = True
        if self._waiting is None and self._is_idle:
            self._wait()
        steps = self._steps
        super().data_received(data)
        if self._steps != steps:
            self._before = 0
        elif not self.transport.is_closing():
            self._before += len(data)
            if self._before > LONGEST_HEAD:
                self._too_long = True
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """The parser's."""
        super().on_message_begin()
        self._in_head, self._fields = True, 0
        self._steps += 1
        if self._waiting is None:
            self._wait()

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's."""
        self._fields += len(name) + len(value) + _FIELD_BYTES
        if self._fields + len(self.url) > LONGEST_HEAD:
            self._too_long = True
            raise _Refused
        if self._in_head and not _is_serves_own(name):  # else a trailer, which nobody here reads
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The parser's."""
        self._in_head = False
        self._steps += 1
        self._stop_waiting()
        self._unanswered = tuple(cycle for cycle in self._unanswered if not cycle.response_complete)
        if len(self._unanswered) > MOST_WAITING:
            self._too_many = True
            raise _Refused
        super().on_headers_complete()
        self._unanswered += (self.cycle,)

    def on_body(self, body: bytes) -> None:
        """The parser's."""
        self._steps += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The parser's."""
        self._steps += 1
        super().on_message_complete()

    def resume_writing(self) -> None:
        """Asyncio's: enough of what was written has been read."""
        self._has_read = True
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Uvicorn's, for what it can't parse."""
        if self._too_many:
            self.transport.close()  # nothing may stand before the answers that are being written
        elif self._too_long:
            self._refuse(b"431 Request Header Fields Too Large", f"the head is longer than {LONGEST_HEAD} bytes")
        else:
            super().send_400_response(msg)

    def _should_upgrade_to_ws(self) -> bool:
        """Uvicorn's. Nothing here speaks WebSocket, which has no limits of ours."""
        return False

    def _look(self) -> None:
        """Whether anything has been read of what waited at the last look. What was closed waits for that, too."""
        unread = self.transport.get_write_buffer_size()
        if unread and self._unread and unread >= self._unread and not self._has_read:
            self.transport.abort()
            return
        self._unread, self._has_read = unread, False
        self._looking = self.loop.call_later(UNREAD_TIMEOUT_S, self._look)

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


def _is_serves_own(name: bytes) -> bool:
    """Whether Serve would obey a header that we have no use for; proxies on the way may write `_` for `-`."""
    plain = name.lower().replace(b"_", b"-")
    return plain in _SERVES_OWN or plain.startswith(_SERVES_ROUTER)
