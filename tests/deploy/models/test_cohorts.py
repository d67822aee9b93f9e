"""Cohorts: who is judged with whom, what the others get, and that nobody waits without end."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from actors.records import Reading, Score
from deploy.errors import ApiError
from deploy.models.cohorts import Cohorts, Member, Seat

ANSWERS: tuple[Any, ...] = ("a", "b", "c")


def seat(slot: int | None, *, key: str = "key", size: int = 3, timeout_s: float = 60.0) -> Seat:
    return Seat(key, slot, size, timeout_s)


async def lengths(members: Sequence[Member]) -> list[Score]:
    """Each response's reward is how many of the members are no greater than it."""
    return [Score.scored(Reading(float(sum(str(other) <= str(member) for other in members)), {}), 1) for member in members]


async def join(cohorts: Cohorts, slot: int | None, member: Any, judge: Any = lengths, **more: Any) -> float | None:
    score = await cohorts.join(seat(slot, **more), member, judge)
    return None if score is None else score.reward


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_cohort_is_judged_once_in_the_order_of_its_slots_however_they_come() -> None:
    calls: list[Sequence[Member]] = []

    async def judge(members: Sequence[Member]) -> list[Score]:
        calls.append(members)
        return await lengths(members)

    async def work() -> None:
        cohorts = Cohorts()
        others = [join(cohorts, slot, f"other {slot}", judge, key="other") for slot in range(3)]
        joined = [join(cohorts, slot, ANSWERS[slot], judge) for slot in (2, 0, 1)]
        rewards = await asyncio.gather(*joined, *others)
        assert rewards == [3.0, 1.0, 2.0, 1.0, 2.0, 3.0]
        assert [list(members) for members in calls] == [list(ANSWERS), [f"other {slot}" for slot in range(3)]]
        assert not cohorts._open
        assert await asyncio.gather(*(join(cohorts, None, answer) for answer in "cab")) == [3.0, 1.0, 2.0]

    asyncio.run(work())


def test_a_member_that_is_sent_again_isnt_another_one() -> None:
    async def work() -> None:
        cohorts = Cohorts()
        first = asyncio.create_task(join(cohorts, 0, "a"))
        await settled()
        again = asyncio.create_task(join(cohorts, 0, "a"))
        replaced = asyncio.create_task(join(cohorts, 1, "z"))
        await settled()
        second = asyncio.create_task(join(cohorts, 1, "b"))
        await settled()
        assert await join(cohorts, 2, "c") == 3.0
        assert [await task for task in (first, again, replaced, second)] == [1.0, 1.0, None, 2.0]

    asyncio.run(work())


def test_who_has_left_is_not_waited_for_and_not_judged() -> None:
    async def work() -> None:
        cohorts = Cohorts()
        gone = asyncio.create_task(join(cohorts, None, "gone"))
        await settled()
        gone.cancel()
        await settled()
        assert await asyncio.gather(*(join(cohorts, None, answer) for answer in ANSWERS)) == [1.0, 2.0, 3.0]

    asyncio.run(work())


def test_nothing_is_kept_of_who_has_left() -> None:
    async def work() -> None:
        cohorts = Cohorts()
        waiting = asyncio.create_task(join(cohorts, 1, "b"))
        leaving = [asyncio.create_task(join(cohorts, 0, "a long text", key=key)) for key in ("key", "another")]
        await settled()
        for task in leaving:
            task.cancel()
        await settled()
        assert {key: len(cohort.waiting) for key, cohort in cohorts._open.items()} == {"key": 1}
        waiting.cancel()

    asyncio.run(work())


def test_who_was_sent_again_and_left_gives_its_place_back() -> None:
    async def work() -> None:
        cohorts = Cohorts()
        first = asyncio.create_task(join(cohorts, 0, "a"))
        await settled()
        again = asyncio.create_task(join(cohorts, 0, "a"))
        await settled()
        again.cancel()
        await settled()
        assert await asyncio.gather(*(join(cohorts, slot, ANSWERS[slot]) for slot in (1, 2))) == [2.0, 3.0]
        assert await first == 1.0

    asyncio.run(work())


def test_who_completes_a_cohort_may_leave_while_it_is_judged() -> None:
    async def work() -> None:
        cohorts, go = Cohorts(), asyncio.Event()

        async def judge(members: Sequence[Member]) -> list[Score]:
            await go.wait()
            return await lengths(members)

        waiting = [asyncio.create_task(join(cohorts, slot, ANSWERS[slot], judge)) for slot in (0, 1)]
        await settled()
        last = asyncio.create_task(join(cohorts, 2, "c", judge))
        await settled()
        last.cancel()
        await settled()
        go.set()
        assert await asyncio.gather(*waiting) == [1.0, 2.0]

    asyncio.run(work())


def test_judging_is_nobodys_request() -> None:
    """Serve cancels what a request's context has called when its client leaves, and a deadline is in there, too."""
    client = ContextVar("client", default="nobody")
    seen: list[str] = []

    async def judge(members: Sequence[Member]) -> list[Score]:
        seen.append(client.get())
        return await lengths(members)

    async def come(cohorts: Cohorts, slot: int) -> float | None:
        client.set(f"client {slot}")
        return await join(cohorts, slot, ANSWERS[slot], judge)

    async def work() -> None:
        cohorts = Cohorts()
        assert await asyncio.gather(*(asyncio.create_task(come(cohorts, slot)) for slot in range(3))) == [1.0, 2.0, 3.0]

    asyncio.run(work())
    assert seen == ["nobody"]


def test_a_call_that_is_cancelled_lets_nobody_wait() -> None:
    async def cancelled(members: Sequence[Member]) -> list[Score]:
        raise asyncio.CancelledError

    async def work() -> list[float | None]:
        cohorts = Cohorts()
        async with asyncio.timeout(5):
            return await asyncio.gather(*(join(cohorts, slot, "a", cancelled) for slot in range(3)))

    assert asyncio.run(work()) == [None] * 3


def test_a_cohort_that_is_never_complete_ends() -> None:
    async def work() -> None:
        cohorts = Cohorts()
        assert await asyncio.gather(*(join(cohorts, slot, "a", timeout_s=0.01) for slot in (0, 1))) == [None, None]
        assert not cohorts._open

    asyncio.run(work())


def test_an_error_of_the_judge_reaches_all() -> None:
    async def fail(members: Sequence[Member]) -> list[Score]:
        raise ApiError(503, "the replica has ended", code="replica_gone", retry_after_s=1)

    async def work() -> list[Any]:
        cohorts = Cohorts()
        return await asyncio.gather(*(join(cohorts, slot, "a", fail) for slot in range(3)), return_exceptions=True)

    assert [str(error) for error in asyncio.run(work())] == ["the replica has ended"] * 3
