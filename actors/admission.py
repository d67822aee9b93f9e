"""Who may be inside an engine, until when, and what becomes of them when it dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from actors.errors import EngineDead, EngineError, EngineTimeout


@dataclass(eq=False, slots=True)
class _Ticket:
    """One request, from its arrival to its answer. `scope` is the block that ends when the ticket is called in."""

    request_id: str
    scope: asyncio.Timeout
    aborted: bool = False

    def call_in(self) -> None:
        self.scope.reschedule(asyncio.get_running_loop().time())


class Admission:
    """At most `places` requests at a time, each with a deadline from the moment it is let in. Lives on one event loop."""

    def __init__(self, places: int, deadline_s: float) -> None:
        self._free = asyncio.Semaphore(places)
        self._deadline_s = deadline_s
        self._tickets: set[_Ticket] = set()
        self._cause_of_death: str | None = None

    @property
    def held(self) -> int:
        """Requests that wait or are inside."""
        return len(self._tickets)

    @asynccontextmanager
    async def place(self, request_id: str) -> AsyncIterator[None]:
        """A place for the length of the block, which is cancelled when the request's time is over.

        Raises `EngineTimeout` past the deadline, `EngineError` after an `abort`, `EngineDead` once the engine is dead.
        """
        self.check()
        try:
            async with asyncio.timeout(None) as scope:
                ticket = _Ticket(request_id, scope)
                self._tickets.add(ticket)
                try:
                    async with self._free:
                        self.check()
                        scope.reschedule(asyncio.get_running_loop().time() + self._deadline_s)
                        yield
                finally:
                    self._tickets.discard(ticket)
        except TimeoutError:
            if not scope.expired():
                raise
            self.check()
            if ticket.aborted:
                raise EngineError(f"request {request_id} was aborted") from None
            raise EngineTimeout(f"request {request_id} took longer than {self._deadline_s:g} s") from None

    def abort(self, request_id: str) -> None:
        """End the block of a request; unknown ids are fine."""
        for ticket in self._tickets:
            if ticket.request_id == request_id:
                ticket.aborted = True
                ticket.call_in()

    def die(self, cause: str) -> EngineDead:
        """Let nobody in any more, and end every block. The first cause is the one that is told."""
        if self._cause_of_death is None:
            self._cause_of_death = cause
            for ticket in self._tickets:
                ticket.call_in()
        return self._dead()

    def check(self) -> None:
        """Raises `EngineDead` if the engine is dead."""
        if self._cause_of_death is not None:
            raise self._dead()

    def _dead(self) -> EngineDead:
        return EngineDead(f"the engine is gone: {self._cause_of_death}")
