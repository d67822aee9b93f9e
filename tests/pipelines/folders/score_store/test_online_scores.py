"""A store around an endpoint's scorer: what it asks for, and what becomes of clients that leave."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.records import Reason, RenderedRequest, Score
from actors.scorers.head_scorer import Scores
from pipelines.data.storage import folder
from pipelines.folders.score_store import online_scores, stored_scores
from pipelines.folders.score_store.entries import StoredUnit
from pipelines.folders.score_store.online_scores import OnlineStoredScores
from pipelines.folders.score_store.segments import segment_names
from pipelines.folders.score_store.stored_scores import StoredScores
from tests.support.engines import until
from tests.support.stores import CountingScorer, request

IDENTITY = "0" * 32


class Asynchronous:
    """The counting scorer on an event loop; while `is_closed`, what is asked waits."""

    def __init__(self, *, is_closed: bool = False) -> None:
        self.counting = CountingScorer()
        self.gate = asyncio.Event()
        if not is_closed:
            self.gate.set()

    async def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        scores = self.counting(requests)
        await self.gate.wait()
        return scores


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder(str(tmp_path)).make()
    return tmp_path


def store(place: Path, scorer: Asynchronous) -> OnlineStoredScores:
    return OnlineStoredScores(folder(str(place)), IDENTITY, scorer, print, compares=False)


class Claimed(OnlineStoredScores):
    """Counts in `claimed` the requests that have been divided into what they score and what they wait for."""

    def __init__(self, place: Path, scorer: Asynchronous) -> None:
        self.claimed = asyncio.Semaphore(0)
        super().__init__(folder(str(place)), IDENTITY, scorer, print, compares=False)

    def claim(self, units: Mapping[bytes, StoredUnit]) -> Any:
        try:
            return super().claim(units)
        finally:
            self.claimed.release()


def flags(scores: Sequence[Scores]) -> list[bool]:
    return [score.from_store for of_request in scores for score in of_request]


def test_what_a_run_scored_isnt_asked_for_and_the_other_way_round(place: Path) -> None:
    batch = CountingScorer()
    run = StoredScores(folder(str(place)), IDENTITY, batch, print, compares=False)
    scored = run([request([1], [2])])

    async def serve() -> None:
        scorer = Asynchronous()
        online = store(place, scorer)
        assert await online([request([1], [2])]) == scored
        assert await online([request([2], [3])]) == CountingScorer()([request([2], [3])])
        assert scorer.counting.prompts == [(3,)]
        assert len(segment_names(folder(str(place)))) == 1, "a small request isn't a segment of its own"
        online.close()

    asyncio.run(serve())
    later = CountingScorer()
    again = StoredScores(folder(str(place)), IDENTITY, later, print, compares=False)
    assert flags(again([request([3], [1])])) == [True, True]
    assert later.prompts == []


def test_a_client_that_leaves_doesnt_take_others_along(place: Path) -> None:
    async def serve() -> None:
        scorer = Asynchronous(is_closed=True)
        online = Claimed(place, scorer)
        first = asyncio.create_task(online([request([1])]))
        await online.claimed.acquire()
        second = asyncio.create_task(online([request([1])]))
        leaves = asyncio.create_task(online([request([1])]))
        for _ in range(2):
            await online.claimed.acquire()
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        first.cancel()
        scorer.gate.set()
        assert await second == CountingScorer()([request([1])])
        assert scorer.counting.prompts == [(1,), (1,)], "asked for again by whoever still waits"
        assert not online._in_progress
        online.close()

    asyncio.run(serve())


def test_who_waits_for_anothers_scores_isnt_bound_by_its_deadline(place: Path) -> None:
    class LateOnce(Asynchronous):
        async def __call__(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
            scores = await super().__call__(requests)
            is_first = len(self.counting.prompts) == 1
            return [(Score.failed(Reason.ENGINE_TIMEOUT, 1),) for _ in scores] if is_first else scores

    async def serve() -> None:
        scorer = LateOnce(is_closed=True)
        online = Claimed(place, scorer)
        first = asyncio.create_task(online([request([1])]))
        await online.claimed.acquire()
        second = asyncio.create_task(online([request([1])]))
        await online.claimed.acquire()
        scorer.gate.set()
        assert [score.reason for (score,) in await first] == [Reason.ENGINE_TIMEOUT]
        assert await second == CountingScorer()([request([1])])
        online.close()

    asyncio.run(serve())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online_scores, "_TICK_S", 0.01)
    monkeypatch.setattr(stored_scores, "_LOOK_S", 0.0)
    monkeypatch.setattr(stored_scores, "_LOOK_SHARE", 0)
    monkeypatch.setattr(stored_scores, "_WRITE_S", 0.0)


@pytest.mark.usefixtures("quick")
def test_replicas_learn_from_each_other_and_a_killed_one_leaves_what_it_wrote(place: Path) -> None:
    async def serve() -> None:
        scorers = [Asynchronous(), Asynchronous()]
        writer, reader = (store(place, scorer) for scorer in scorers)
        await writer([request([1])])
        until(lambda: len(segment_names(folder(str(place)))) == 1)
        until(lambda: len(reader._index) == 1)
        assert flags(await reader([request([1])])) == [True]
        assert scorers[1].counting.prompts == []
        reader.close()
        # The writer isn't closed, as one that is killed.
        late = Asynchronous()
        assert flags(await store(place, late)([request([1])])) == [True]

    asyncio.run(serve())
