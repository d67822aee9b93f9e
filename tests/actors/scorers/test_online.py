"""A model behind an endpoint: equal texts of a request have one number, however they are asked about."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from actors.engine.protocol import Pooled
from actors.records import ScoreRequest
from actors.scorers.fair_turns import FairTurns
from actors.scorers.online import OnlineScorer, Rendered
from tests.support.endpoints import scorer
from tests.support.models import SCALAR, request, user


@pytest.fixture
def online() -> Iterator[OnlineScorer]:
    """A scorer whose engine never gives the same number twice, as beside other prompts it may."""
    made = scorer(SCALAR)
    engine, numbers = made._engine, itertools.count()
    pool = engine.pool

    async def answer(ids: Sequence[int], *arguments: Any, **options: Any) -> Pooled:
        pooled = await pool(ids, *arguments, **options)
        return replace(pooled, rows=tuple((float(next(numbers)),) for _ in pooled.rows))

    engine.pool = answer  # type: ignore[method-assign]
    yield made
    made.close()


def test_equal_responses_of_a_request_tie_exactly(online: OnlineScorer) -> None:
    (result,) = asyncio.run(online.score([request(user("What is 2 + 3?"), to=("5", "6", "5"))]))
    rewards = [score.reward for score in result.scores]
    assert rewards[0] == rewards[2] != rewards[1]


def test_equal_prompts_have_the_same_raw_outputs(online: OnlineScorer) -> None:
    prompts = [Rendered("What is 2 + 3?"), Rendered("Name a colour."), Rendered("What is 2 + 3?")]
    outputs = asyncio.run(online.read(prompts))
    assert outputs[0].rows == outputs[2].rows != outputs[1].rows
    assert outputs[0].score == outputs[2].score


def test_a_small_request_is_rendered_between_the_prompts_of_a_large_one(online: OnlineScorer) -> None:
    render, ended = online._renderer.render, list[str]()

    def slowly(requests: Any, check_cancelled: Callable[[], None]) -> Any:
        for _ in range(40 if len(requests) > 1 else 1):
            time.sleep(0.02)
            check_cancelled()
        return render(requests, check_cancelled)

    online._renderer.render = slowly  # type: ignore[assignment, method-assign]
    small = request(user("Hi"))

    async def score(name: str, requests: Sequence[ScoreRequest]) -> None:
        await online.score(requests)
        ended.append(name)

    async def both() -> None:
        large = [asyncio.create_task(score("large", [request(user("Hi! " * 1500)), small])) for _ in range(2)]
        await asyncio.sleep(0.05)
        await asyncio.gather(score("small", [small]), *large)

    asyncio.run(both())
    assert ended == ["small", "large", "large"]


def test_no_turn_is_waited_for_on_the_loop(online: OnlineScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread with a long prompt may begin at any moment, also while a short one is looked at."""
    has_begun, may_end = threading.Event(), threading.Event()

    def render_long() -> None:
        with online._turns.taken():
            has_begun.set()
            may_end.wait(5)

    def begin(_: object) -> bool:
        threading.Thread(target=render_long, daemon=True).start()
        return has_begun.wait(5)

    async def work() -> None:
        monkeypatch.setattr("actors.scorers.online._are_short", begin)
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        start = time.monotonic()
        await online.score([request(user("Hi"))])
        assert time.monotonic() - start < 5, "the loop stood still"

    asyncio.run(work())


def test_one_renders_at_a_time_and_all_come_to_their_turn() -> None:
    turns, at_work, most, order = FairTurns(), list[int](), list[int](), list[int]()

    def work(number: int) -> None:
        with turns.taken():
            for _ in range(3):
                at_work.append(number)
                most.append(len(at_work))
                order.append(number)
                time.sleep(0.012)
                at_work.remove(number)
                turns.give_way()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert max(most) == 1
    assert len(order) == 9
    assert len({*order[-3:]}) == 3, "nobody worked three times while others waited"
