"""Cohorts: responses to one prompt that come in requests of their own, and are judged together.

They meet in this process, where whoever comes last has all of them judged. What is never complete ends by itself; nothing is
kept longer than the requests that wait.
"""

import asyncio
import contextvars
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from actors.records import Reason, Score, ScoreRequest

Member = ScoreRequest | Reason
"""A response with its context, or why it can't be judged."""
Judge = Callable[[Sequence[Member]], Awaitable[Sequence[Score]]]
_Slot = tuple[bool, int]


@dataclass(frozen=True, slots=True)
class Seat:
    """Which cohort a response belongs to, of which size, and at which slot of it; None if any will do."""

    key: str
    slot: int | None
    size: int
    timeout_s: float


@dataclass(eq=False)
class _Cohort:
    timer: asyncio.TimerHandle
    members: dict[_Slot, Member] = field(default_factory=dict)
    waiting: list[tuple[_Slot, Member, asyncio.Future[Score | None]]] = field(default_factory=list)

    def settle(self, scores: dict[_Slot, Score]) -> None:
        """Give whoever waits the score of its slot; None to one that another took the place of."""
        for slot, member, future in self.waiting:
            if not future.done():
                future.set_result(scores.get(slot) if self.members.get(slot) == member else None)


class Cohorts:
    """The cohorts of one process, on one event loop."""

    def __init__(self) -> None:
        self._open: dict[str, _Cohort] = {}
        self._numbers = itertools.count()
        self._judging = set[asyncio.Task[None]]()  # an event loop alone would let a task be collected

    async def join(self, seat: Seat, member: Member, judge: Judge) -> Score | None:
        """The score of a member beside all others of its cohort; None if that isn't completed in time. Raises `ApiError`.

        Of two members in one slot the later counts, such as a request that was sent again: the earlier has its score if they
        are equal. Without a slot, the order is that of their coming.
        """
        cohort = self._open.get(seat.key) or self._begin(seat)
        slot = (False, seat.slot) if seat.slot is not None else (True, next(self._numbers))
        cohort.members[slot] = member
        score: asyncio.Future[Score | None] = asyncio.get_running_loop().create_future()
        cohort.waiting.append((slot, member, score))
        if len(cohort.members) == seat.size:
            del self._open[seat.key]
            cohort.timer.cancel()
            # In a task and a context of its own: the client that came last may leave, and the others still wait. By the
            # context Serve would know whose call of a replica this is, and cancel it; and its deadline isn't the others'.
            task = asyncio.create_task(_judge(cohort, judge), context=contextvars.Context())
            self._judging.add(task)
            task.add_done_callback(self._judging.discard)
        try:
            return await score
        except asyncio.CancelledError:  # its client has left, and nobody else waits at this place
            if self._open.get(seat.key) is cohort and cohort.members[slot] is member:
                del cohort.members[slot]
            raise

    def _begin(self, seat: Seat) -> _Cohort:
        def end() -> None:
            self._open.pop(seat.key).settle({})

        cohort = self._open[seat.key] = _Cohort(asyncio.get_running_loop().call_later(seat.timeout_s, end))
        return cohort


async def _judge(cohort: _Cohort, judge: Judge) -> None:
    slots = sorted(cohort.members)
    try:
        scores = await judge([cohort.members[slot] for slot in slots])
        cohort.settle(dict(zip(slots, scores, strict=True)))
    except Exception as error:  # noqa: BLE001  whoever waits raises it
        for _, _, future in cohort.waiting:
            if not future.done():
                future.set_exception(error)
    finally:  # also if the call was cancelled
        cohort.settle({})
