"""Limits in Serve's proxies on what a client sends beside bodies, and on how long it may leave answers unread.

The ingress sees a request only once its head is complete. Incomplete heads, trailers after a body, pipelined requests and
unread answers stay in the proxy, whose server, uvicorn, has no limit of time or size for any of them. Nor does the ingress
see what Serve makes of a head: a client that sends Serve's own headers could keep its request running after it has left, or
give it no time at all. Ray calls the function that this variable names in every proxy, before it listens:

    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=deploy.ray_serve.proxy:limit_heads

`assay serve` sets it; elsewhere it is set on all nodes whose Python has this package, as `deploy/Dockerfile` does.
"""

import asyncio
import resource
from typing import Any

from starlette.middleware import Middleware
from uvicorn.protocols.http import auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

VARIABLE = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
CALLBACK = f"{__name__}:limit_heads"
LONGEST_HEAD = 2**16
"""In bytes, the request line included. For comparison: Apache takes 100 lines of 8 KiB, nginx 32 KiB in all."""
HEAD_TIMEOUT_S = 30.0
"""Until a head is complete, from the connection's start or from the first byte of a further request on it."""
UNREAD_TIMEOUT_S = 30.0
"""Between two looks at a connection's write buffer; a client that read nothing in between is disconnected."""
MOST_WAITING = 16
"""Pipelined requests of one connection that wait for earlier answers; each holds its head in memory."""


def find_most_connections() -> int:
    """How many connections a proxy keeps: half of the files it may open, up to 8192; Ray and logs need the others."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 8192 if files == resource.RLIM_INFINITY else min(8192, files // 2)


MOST_CONNECTIONS = find_most_connections()
"""At a time, of all clients together: each costs memory and a file before any key was checked."""
_FIELD_BYTES = 32
"""Added per header field, as in HTTP/2: thousands of one-letter fields would take far more memory than their bytes."""
_SERVE_HEADERS = frozenset(
    {
        b"serve-multiplexed-model-id",  # routes to a replica that has this model
        b"x-session-id",  # routes to one replica
        b"x-request-id",  # names the request in logs
        b"x-request-timeout-seconds",  # bypasses our own deadline
        b"x-request-disconnect-disabled",  # keeps the request running when the client has left
    }
)
_ROUTES = "/-/routes"
_SERVE_PREFIX = b"x-serve-"
"""Of headers that Serve's router obeys."""


def limit_heads() -> list[Any]:
    """Make uvicorn in this process use `LimitedHeads`. Returns what Ray expects, a list of ASGI middlewares."""
    # `auto` is the module that uvicorn's default setting `http="auto"` loads the class from.
    auto.AutoHTTPProtocol = LimitedHeads
    return [Middleware(WithoutRoutes)]


class WithoutRoutes:
    """Gives requests for Serve's own list of routes, which knows no keys, to the ingress, which has no such page."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """An ASGI application."""
        is_routes = scope.get("path", "").removeprefix(scope.get("root_path", "")) == _ROUTES
        await self._app({**scope, "path": f"{scope['path']}/"} if is_routes else scope, receive, send)


class _Refused(ValueError):
    """Raised inside the parser, which then ends the connection."""


class LimitedHeads(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 protocol with limits on heads: too long gets 431, too late 408, and then the connection ends.

    A connection is also ended if it is one too many, pipelines more than 16 requests, or reads no answer.
    """

    open_connections = 0
    """Of all clients of this process."""
    _head_timer: asyncio.TimerHandle | None = None
    """Runs while a head is expected."""
    _read_timer: asyncio.TimerHandle | None = None
    """Runs for as long as the connection, from one look at the write buffer to the next."""
    _in_head = _has_spoken = _too_long = _too_many = _has_read = False
    _unparsed_bytes = 0
    """Bytes received since the parser last made progress. A field without an end is in no callback, so `_head_bytes` misses
    it."""
    _head_bytes = 0
    """Names and values of this request's fields, trailers included, with 32 bytes added for each."""
    _unread_bytes = 0
    """In the write buffer at the last look."""
    _progress = 0
    """Counts what the parser has completed: the start and end of a head, a piece of a body, the end of a request."""
    _unanswered: tuple[Any, ...] = ()
    """The requests whose answers aren't complete, in their order."""

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        LimitedHeads.open_connections += 1
        if LimitedHeads.open_connections > MOST_CONNECTIONS:
            self.transport.abort()  # not close(): an answer might never be read, and would keep the connection open
            return
        self._start_head_timer()
        self._read_timer = self.loop.call_later(UNREAD_TIMEOUT_S, self._check_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        LimitedHeads.open_connections -= 1
        self._stop_head_timer()
        if self._read_timer is not None:
            self._read_timer.cancel()
        # Uvicorn does this for the last request alone: pipelined ones before it would wait for a client that has gone.
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._has_spoken = True
        if self._head_timer is None and self._is_idle:
            self._start_head_timer()
        progress = self._progress
        super().data_received(data)
        if self._progress != progress:
            self._unparsed_bytes = 0
        elif not self.transport.is_closing():
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > LONGEST_HEAD:
                self._too_long = True
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """Called by the parser."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._progress += 1
        if self._head_timer is None:
            self._start_head_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self._head_bytes += len(name) + len(value) + _FIELD_BYTES
        if self._head_bytes + len(self.url) > LONGEST_HEAD:
            self._too_long = True
            raise _Refused
        if self._in_head and not _is_serve_header(name):  # outside a head it is a trailer, which no route reads
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._in_head = False
        self._progress += 1
        self._stop_head_timer()
        self._unanswered = tuple(cycle for cycle in self._unanswered if not cycle.response_complete)
        if len(self._unanswered) > MOST_WAITING:
            self._too_many = True
            raise _Refused
        super().on_headers_complete()
        self._unanswered += (self.cycle,)

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._progress += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._progress += 1
        super().on_message_complete()

    def resume_writing(self) -> None:
        """Asyncio's: the write buffer fell below its low mark, so the client reads."""
        self._has_read = True
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Uvicorn's, for what it can't parse; also called after `_Refused`."""
        if self._too_many:
            self.transport.close()  # without an error: it would come before the answers that are still being written
        elif self._too_long:
            self._refuse(b"431 Request Header Fields Too Large", f"the request head is longer than {LONGEST_HEAD} bytes")
        else:
            super().send_400_response(msg)

    def _should_upgrade_to_ws(self) -> bool:
        """Uvicorn's. Never: no route speaks WebSocket, and these limits don't apply to it."""
        return False

    def _check_reading(self) -> None:
        """End the connection if nothing was read since the last look; after close() too, which waits for an empty buffer."""
        unread = self.transport.get_write_buffer_size()
        # A buffer as full as before may have been read and refilled: then `resume_writing` was called in between.
        if unread and self._unread_bytes and unread >= self._unread_bytes and not self._has_read:
            self.transport.abort()
            return
        self._unread_bytes, self._has_read = unread, False
        self._read_timer = self.loop.call_later(UNREAD_TIMEOUT_S, self._check_reading)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._end_late_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_late_head(self) -> None:
        self._head_timer = None
        if not self._is_idle:  # an answer is being written, and uvicorn reads no further until it is complete
            self._start_head_timer()
        elif self._has_spoken:
            self._refuse(b"408 Request Timeout", f"the head didn't come within {HEAD_TIMEOUT_S:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: bytes, message: str) -> None:
        if not self.transport.is_closing():
            lines = (b"HTTP/1.1 " + status, b"content-type: text/plain", b"connection: close", b"", message.encode())
            self.transport.write(b"\r\n".join(lines))
            self.transport.close()


def _is_serve_header(name: bytes) -> bool:
    """Whether a header is an instruction to Serve. `_` counts as `-`: some servers read both as the same name."""
    plain = name.lower().replace(b"_", b"-")
    return plain in _SERVE_HEADERS or plain.startswith(_SERVE_PREFIX)
