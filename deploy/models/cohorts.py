"""Cohorts: responses to one prompt that come in requests of their own, and are judged together.

They meet in this process, where whoever comes last has all of them judged. What is never complete ends by itself; nothing is
kept longer than the requests that wait.
"""

import asyncio
import contextvars
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from actors.records import Reason, Score, ScoreRequest

Member = ScoreRequest | Reason  # a response with its context, or why it can't be judged
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
    waiting: dict[asyncio.Future[Score | None], tuple[_Slot, Member]] = field(default_factory=dict)

    @property
    def members(self) -> dict[_Slot, Member]:
        """Of those that wait for one slot, who came last."""
        return dict(self.waiting.values())

    def settle(self, members: Mapping[_Slot, Member], scores: Mapping[_Slot, Score]) -> None:
        """Give whoever waits the score of its slot; None to one that another took the place of."""
        for future, (slot, member) in self.waiting.items():
            if not future.done():
                future.set_result(scores.get(slot) if members.get(slot) == member else None)


class Cohorts:
    """The cohorts of one process, on one event loop.

    A rollout that is sent again takes the place of the earlier one; a cohort that isn't whole in time has no scores.
    """

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
        # With a slot, by its number; without, after these by their coming. The pair keeps both kinds apart in the order.
        slot = (False, seat.slot) if seat.slot is not None else (True, next(self._numbers))
        score: asyncio.Future[Score | None] = asyncio.get_running_loop().create_future()
        cohort.waiting[score] = slot, member
        if len(members := cohort.members) == seat.size:
            self._close(seat.key)
            # In a task and a context of its own: the client that came last may leave, and the others still wait. By the
            # context Serve would know whose call of a replica this is, and cancel it; and its deadline isn't the others'.
            task = asyncio.create_task(_judge(cohort, members, judge), context=contextvars.Context())
            self._judging.add(task)
            task.add_done_callback(self._judging.discard)
        try:
            return await score
        except asyncio.CancelledError:  # its client has left
            del cohort.waiting[score]
            if not cohort.waiting and self._open.get(seat.key) is cohort:
                self._close(seat.key)
            raise

    def _close(self, key: str) -> None:
        self._open.pop(key).timer.cancel()

    def _begin(self, seat: Seat) -> _Cohort:
        def end() -> None:  # at the time-out: whoever waits gets None, and the next rollout begins a new cohort
            self._open.pop(seat.key).settle({}, {})

        cohort = self._open[seat.key] = _Cohort(asyncio.get_running_loop().call_later(seat.timeout_s, end))
        return cohort


async def _judge(cohort: _Cohort, members: Mapping[_Slot, Member], judge: Judge) -> None:
    slots = sorted(members)
    try:
        scores = await judge([members[slot] for slot in slots])
        cohort.settle(members, dict(zip(slots, scores, strict=True)))
    except Exception as error:  # noqa: BLE001  whoever waits raises it
        for future in cohort.waiting:
            if not future.done():
                future.set_exception(error)
    finally:  # also if the call was cancelled
        cohort.settle({}, {})
