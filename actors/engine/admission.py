"""How many requests are inside an engine at a time, their deadlines, and their end when the engine dies."""

import asyncio
import itertools
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from operator import itemgetter

from actors.errors import EngineDead, EngineTimeout

answer_by: ContextVar[float | None] = ContextVar("answer_by", default=None)
"""When requests of this context time out at the latest, by `time.monotonic`; None: by their engine's deadline alone."""


@dataclass(eq=False, slots=True)
class _Ticket:
    """One request, from its arrival to its answer. `cancel` ends the block of `scope`."""

    scope: asyncio.Timeout
    ahead: int = 0  # those inside that were admitted earlier and hadn't ended when this one's current deadline was set
    alarm: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        if not self.scope.expired():
            self.scope.reschedule(asyncio.get_running_loop().time())


# The length of a prompt, and what is done when it is admitted.
_Turn = tuple[int, asyncio.Future[None]]


class Admission:
    """At most `places` requests at a time, each with a deadline. Lives on one event loop.

    An engine works on requests in the order of their admission, and some wait inside it for room in its cache. So a request
    times out when for `deadline_s` neither it nor any admitted before it was answered: waiting behind others that make
    progress doesn't count, and a request that hangs while later ones are answered still has its limit.

    The next to be admitted is the one that waits longest, and behind it, the shortest first, those that wait with the same
    context: the engine's prefix cache still has it then. None is passed by others without end, since those of a context
    that come later stand in line for it again.
    """

    def __init__(self, places: int, deadline_s: float) -> None:
        self._free = places
        self._waiting: OrderedDict[object, list[_Turn]] = OrderedDict()  # by context, in the order of the first of each
        self._next: deque[_Turn] = deque()  # those of the context that is being admitted
        self._deadline_s = deadline_s
        self._tickets: set[_Ticket] = set()
        self._inside: dict[_Ticket, None] = {}  # an ordered set, in the order of admission, which is the engine's order
        self._cause_of_death: str | None = None
        self.answered = 0  # the requests that left without an error

    @property
    def request_count(self) -> int:
        return len(self._tickets)

    @asynccontextmanager
    async def place(self, context: str = "", length: int = 0) -> AsyncIterator[None]:
        """A place for the duration of the block, which is cancelled when the request times out.

        `context` is that of the request, whose prompt has `length` tokens; a request without one meets no others.
        Raises `EngineTimeout` past the deadline, `EngineDead` once the engine is dead.
        """
        self.check()
        try:
            latest = answer_by.get()
            async with asyncio.timeout(None if latest is None else latest - time.monotonic()) as scope:
                ticket = _Ticket(scope)
                self._tickets.add(ticket)
                try:
                    async with self._turn(context, length):
                        self.check()
                        with self._with_deadline(ticket):
                            yield
                        self.answered += 1
                finally:
                    self._tickets.discard(ticket)
        except TimeoutError:
            if not scope.expired():  # a TimeoutError from inside the block, not our cancellation
                raise
            self.check()
            limit = f"{self._deadline_s:g} s" if latest is None else "its answer may"
            raise EngineTimeout(f"a request took longer than {limit}") from None

    @asynccontextmanager
    async def _turn(self, context: str, length: int) -> AsyncIterator[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(context or turn, []).append((length, turn))
        self._admit()
        try:
            await turn
            yield
        finally:
            if not turn.cancelled():  # as it is when the request ends before its turn comes
                self._free += 1
                self._admit()

    def _admit(self) -> None:
        while self._free and (self._next or self._waiting):
            if not self._next:
                _, turns = self._waiting.popitem(last=False)
                self._next.extend(sorted(turns, key=itemgetter(0)))
            _, turn = self._next.popleft()
            if not turn.done():
                turn.set_result(None)
                self._free -= 1

    @contextmanager
    def _with_deadline(self, ticket: _Ticket) -> Iterator[None]:
        ticket.ahead = len(self._inside)
        self._inside[ticket] = None
        self._set_alarm(ticket)
        try:
            yield
        finally:
            if ticket.alarm is not None:
                ticket.alarm.cancel()
            self._inside.pop(ticket, None)

    def _set_alarm(self, ticket: _Ticket) -> None:
        ticket.alarm = asyncio.get_running_loop().call_later(self._deadline_s, self._end_if_stuck, ticket)

    def _end_if_stuck(self, ticket: _Ticket) -> None:
        # Time the request out, unless an earlier one ended since the alarm was set: then it gets a new deadline.
        ahead = self._count_ahead(ticket)
        if ahead == ticket.ahead:
            self._time_out(ticket)
        else:
            ticket.ahead = ahead
            self._set_alarm(ticket)

    def _count_ahead(self, ticket: _Ticket) -> int:
        return next(number for number, other in enumerate(self._inside) if other is ticket)

    def _time_out(self, ticket: _Ticket) -> None:
        # End a request. A time-out isn't progress, so requests behind it get no new deadline from it.
        for other in itertools.islice(self._inside, self._count_ahead(ticket) + 1, None):
            other.ahead -= 1
        del self._inside[ticket]
        ticket.cancel()

    def die(self, cause: str) -> EngineDead:
        """Admit no more requests, and end every block. Only the first cause is kept."""
        if self._cause_of_death is None:
            self._cause_of_death = cause
            for ticket in self._tickets:
                ticket.cancel()
        return self._dead_error()

    def check(self) -> None:
        if self._cause_of_death is not None:
            raise self._dead_error()

    def _dead_error(self) -> EngineDead:
        return EngineDead(f"the engine is gone: {self._cause_of_death}")
