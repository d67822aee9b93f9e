"""An endpoint that fails as endpoints and the networks before them do."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any


class Faulty:
    """An ASGI application that answers with these faults, one a request, and then as it should.

    A fault is a status with headers; `drop` and `cut`, which end the connection before and amid the answer; `hang`; or the
    answer's body.
    """

    def __init__(self, app: Any, faults: Iterator[Any]) -> None:
        self._app, self._faults = app, faults
        self.bodies: list[Any] = []
        """Of all requests, in the order in which they came."""
        self.headers: list[dict[bytes, bytes]] = []
        self.most_at_once = self._at_once = 0
        self.hung_up = asyncio.Event()
        """A client left a request that hangs."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        body = await _read(receive)
        self.bodies.append(json.loads(body))
        self.headers.append(dict(scope["headers"]))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            fault = next(self._faults, None)
            if fault is None:
                await self._app(scope, _replay(body, receive), send)
            else:
                await self._fail(fault, receive, send)
        finally:
            self._at_once -= 1

    async def _fail(self, fault: Any, receive: Any, send: Any) -> None:
        if fault == "hang":
            await receive()  # nothing comes but the end of the connection
            self.hung_up.set()
            return
        if fault == "drop":
            raise ConnectionError("dropped, as it was told to")
        status, headers, body = fault if isinstance(fault, tuple) else (200, {}, b"{" if fault == "cut" else fault)
        length = len(body) + (fault == "cut")
        lines = {"Content-Type": "application/json", "Content-Length": str(length), **headers}
        encoded = [(name.encode(), value.encode()) for name, value in lines.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": body, "more_body": fault == "cut"})


async def _read(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def _replay(body: bytes, receive: Any) -> Any:
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive_again() -> Any:
        return next(messages, None) or await receive()

    return receive_again
