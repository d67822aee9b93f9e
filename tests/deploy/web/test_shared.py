"""However many ask, the cluster is looked at once a second."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from deploy.models.service import Service
from deploy.settings import LimitSettings
from deploy.web.app import create_app
from deploy.web.auth import Keys
from deploy.web.shared import Shared
from tests.support.endpoints import client


def test_probes_are_answered_by_one_look_at_the_cluster() -> None:
    looks = 0

    async def ready() -> str | None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        return "not ready yet: model-0"

    async def metrics() -> str:
        return ""

    app = create_app(Service([], LimitSettings()), Keys([]), ready, metrics)

    async def many() -> list[Any]:
        async with client(app) as http:
            return await asyncio.gather(*(http.get("/ready") for _ in range(200)))

    assert {answer.status_code for answer in asyncio.run(many())} == {503}
    assert looks < 20, "one a second"


class Clock:
    """A time that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def answering(answers: list[int | Exception]) -> Callable[[], Awaitable[int]]:
    async def ask() -> int:
        await asyncio.sleep(0)
        result = answers.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    return ask


def test_an_answer_holds_for_its_time_and_an_error_for_none() -> None:
    clock = Clock()

    async def check() -> None:
        shared = Shared(answering([1, 2, OSError("gone"), 3]), 1.0, clock)
        assert await asyncio.gather(*(shared() for _ in range(5))) == [1] * 5
        clock.now = 0.9
        assert await shared() == 1
        clock.now = 1.0
        assert await shared() == 2
        clock.now = 2.5
        failed = await asyncio.gather(shared(), shared(), return_exceptions=True)
        assert [type(item) for item in failed] == [OSError, OSError]
        assert await shared() == 3

    asyncio.run(check())


def test_one_who_leaves_takes_nobodys_answer_along() -> None:
    async def check() -> None:
        shared = Shared(answering([1]), 1.0)
        first, second = asyncio.create_task(shared()), asyncio.create_task(shared())
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 1
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(check())
