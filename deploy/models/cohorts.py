"""Cohorts: responses to one prompt that come in requests of their own, and are judged together.

Whoever completes a cohort gets all its members, judges them and settles it; the others wait. What is never completed or
settled ends by itself, so that a cohort is held for `timeout_s` twice at the most, and no longer than its requests.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from actors.records import Reason, Score, ScoreRequest
from deploy.errors import ApiError

Member = ScoreRequest | Reason
"""A response with its context, or why it can't be judged."""
Outcome = Score | ApiError | None
"""What a member gets; None if its cohort wasn't completed."""
_Slot = tuple[bool, int]


@dataclass(frozen=True, slots=True)
class Seat:
    """Which cohort a response belongs to, of which size, and at which slot of it; None if any will do."""

    key: str
    slot: int | None
    size: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Complete:
    """All members of a cohort, in the order of their slots. Whoever gets this, at `position`, settles `ticket`."""

    ticket: int
    members: tuple[Member, ...]
    position: int


class Meeting(Protocol):
    """Where the members of cohorts meet: in this process, or in another that all ingresses reach."""

    async def join(self, seat: Seat, member: Member) -> Complete | Outcome:
        """See `Cohorts.join`."""

    async def settle(self, ticket: int, outcomes: Sequence[Outcome]) -> None:
        """See `Cohorts.settle`."""


@dataclass(eq=False)
class _Cohort:
    members: dict[_Slot, Member] = field(default_factory=dict)
    waiting: list[tuple[_Slot, Member, asyncio.Future[Outcome]]] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Cohorts:
    """The cohorts of one process, on one event loop."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Cohort] = {}
        self._complete: dict[Hashable, _Cohort] = {}
        self._numbers = itertools.count()

    async def join(self, seat: Seat, member: Member) -> Complete | Outcome:
        """Join a cohort, and wait until it is settled; whoever completes it gets it at once.

        Of two members in one slot the later counts, such as a request that was sent again: the earlier has its outcome if
        they are equal. Without a slot, the order is that of their coming.
        """
        key, timeout_s = seat.key, seat.timeout_s
        cohort = self._open.setdefault(key, _Cohort())
        place = (False, seat.slot) if seat.slot is not None else (True, next(self._numbers))
        cohort.members[place] = member
        if cohort.timer is None:
            self._end_after(timeout_s, self._open, key, cohort)
        if len(cohort.members) == seat.size:
            del self._open[key]
            ticket = next(self._numbers)
            self._complete[ticket] = cohort
            self._end_after(timeout_s, self._complete, ticket, cohort)
            places = sorted(cohort.members)
            return Complete(ticket, tuple(map(cohort.members.__getitem__, places)), places.index(place))
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        cohort.waiting.append((place, member, outcome))
        try:
            return await outcome
        except asyncio.CancelledError:  # its client has left, and nobody else waits at this place
            if self._open.get(key) is cohort and cohort.members[place] is member:
                del cohort.members[place]
            raise

    async def settle(self, ticket: int, outcomes: Sequence[Outcome]) -> None:
        """Give the members of a complete cohort their outcomes, in the order of `Complete.members`."""
        if (cohort := self._complete.pop(ticket, None)) is not None:
            _end(cohort, dict(zip(sorted(cohort.members), outcomes, strict=True)))

    def _end_after(self, timeout_s: float, cohorts: dict[Hashable, _Cohort], key: Hashable, cohort: _Cohort) -> None:
        if cohort.timer is not None:
            cohort.timer.cancel()

        def end() -> None:
            del cohorts[key]
            _end(cohort, {})

        cohort.timer = asyncio.get_running_loop().call_later(timeout_s, end)


def _end(cohort: _Cohort, outcomes: dict[_Slot, Outcome]) -> None:
    assert cohort.timer is not None
    cohort.timer.cancel()
    for place, member, future in cohort.waiting:
        if not future.done():
            future.set_result(outcomes.get(place) if cohort.members.get(place) == member else None)


_judging: set[asyncio.Task[Any]] = set()  # an event loop alone would let a task be collected


async def judge_together(
    cohorts: Meeting,
    seat: Seat,
    member: Member,
    judge: Callable[[Sequence[Member]], Awaitable[Sequence[Score]]],
) -> Score | None:
    """The score of a member beside all others of its cohort; None if that isn't completed. Raises `ApiError`."""
    outcome = await cohorts.join(seat, member)
    if isinstance(outcome, Complete):
        # In a task of its own: its client may leave, and the others still wait.
        task = asyncio.create_task(_judge(cohorts, outcome, judge))
        _judging.add(task)
        task.add_done_callback(_judging.discard)
        outcome = (await asyncio.shield(task))[outcome.position]
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome


async def _judge(
    cohorts: Meeting, complete: Complete, judge: Callable[[Sequence[Member]], Awaitable[Sequence[Score]]]
) -> Sequence[Outcome]:
    outcomes: Sequence[Outcome] = [None] * len(complete.members)
    try:
        outcomes = await judge(complete.members)
    except ApiError as error:
        outcomes = [error] * len(complete.members)
    finally:
        await cohorts.settle(complete.ticket, outcomes)
    return outcomes
