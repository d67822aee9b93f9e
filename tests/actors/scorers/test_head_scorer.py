"""Requests become scores: same order, one for each response, and a number only where there is one."""

import asyncio
import itertools
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.engine.fake_engine import FakeEngine
from actors.engine.protocol import Engine, Places, Pooled
from actors.errors import EngineDead, EngineError, EngineTimeout
from actors.records import Prompt, Reason, RenderedRequest, RenderedResponse, Score, Status
from actors.reward_model import families
from actors.scorers.head_scorer import HeadScorer
from tests.support.engines import SECONDS

Answer = Callable[[Sequence[int]], Coroutine[Any, Any, Sequence[float]]]


class Stub(FakeEngine):
    """An engine with an answer of ours: the outputs for a prompt."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(1, 1000, every_position=True)
        self._answer = answer
        self.calls: list[tuple[Sequence[int], Places]] = []

    async def pool(
        self, ids: Sequence[int], at: Places = None, *, context: str = "", activated: bool = False, uncached: bool = False
    ) -> Pooled:
        self.calls.append((ids, at))
        rows = [tuple(await self._answer(ids[: last + 1])) for last in at or [len(ids) - 1]]
        return Pooled(tuple(rows), 0, len(ids))


Start = Callable[[Answer], Stub]


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes engines, and closes them."""
    made: list[Stub] = []

    def make(answer: Answer) -> Stub:
        made.append(Stub(answer))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def scorer(engine: Engine, family: str = "scalar", one_pass: bool = False) -> HeadScorer:
    return HeadScorer(families()[family], families()[family].card_weights(), engine, one_pass=one_pass)


async def first_token(ids: Sequence[int]) -> Sequence[float]:
    """Answers with a prompt's first token, late ones first."""
    await asyncio.sleep(0.02 / (1 + ids[0]))
    return [float(ids[0])]


def asks(*prompts: Sequence[int]) -> RenderedRequest:
    """A request with a prompt for each response."""
    responses = tuple(RenderedResponse(f"r[{index}]") for index, _ in enumerate(prompts))
    return RenderedRequest("hash", responses, tuple(Prompt(ids, (index,)) for index, ids in enumerate(prompts)))


def raising(error: Exception) -> Answer:
    """Fails for prompts that begin with 13."""

    async def answer(ids: Sequence[int]) -> Sequence[float]:
        if ids[0] == 13:
            raise error
        return [1.0]

    return answer


def test_scores_are_in_the_order_of_the_requests(start: Start) -> None:
    requests = [asks([number], [number + 100, 7]) for number in range(50)]
    scores = scorer(start(first_token)).score_block(requests)
    assert [[score.reward for score in pair] for pair in scores] == [[number, number + 100] for number in range(50)]
    assert all([score.prompt_tokens for score in pair] == [1, 2] for pair in scores)
    assert all(
        score.status is Status.SCORED and score.scores == {"score": score.reward} for pair in scores for score in pair
    )


def test_nothing_to_score_is_nothing(start: Start) -> None:
    assert scorer(start(first_token)).score_block([]) == []
    assert scorer(start(first_token)).score_block([RenderedRequest("hash", (), ())]) == [()]


async def place_in_the_batch(ids: Sequence[int]) -> Sequence[float]:
    """Never the same number twice, as an engine may answer where prompts are computed beside others."""
    return [float(next(_PLACES))]


_PLACES = itertools.count()


@pytest.mark.parametrize("one_pass", [False, True])
def test_equal_prompts_of_a_block_are_asked_once_and_tie_exactly(start: Start, one_pass: bool) -> None:
    engine = start(place_in_the_batch)
    requests = [asks([1, 2], [1, 3], [1, 2]), asks([1, 2])]
    (first, second, third), (again,) = scorer(engine, one_pass=one_pass).score_block(requests)
    assert len(engine.calls) == 2
    assert first == third == again != second
    # What each was judged by counts for each, and went through the model once.
    assert [score.prompt_tokens for score in (first, second, third, again)] == [2] * 4
    assert [score.cached_tokens for score in (first, second, third, again)] == [0, 0, 2, 2]


def test_a_turn_that_two_conversations_share_has_one_number_though_it_is_read_in_a_longer_prompt(start: Start) -> None:
    engine = start(place_in_the_batch)
    turns = [asks([1, 2]), asks([1, 2, 3]), asks([1, 2]), asks([1, 2, 4]), asks([9]), asks([1, 2, 4])]
    scores = [score.reward for (score,) in scorer(engine, one_pass=True).score_block(turns)]
    assert scores[0] == scores[2]
    assert scores[3] == scores[5]
    assert len({*scores}) == 4
    assert engine.calls == [([1, 2, 3], [1, 2]), ([1, 2, 4], [2]), ([9], [0])]


def test_steps_of_equal_texts_tie_exactly(start: Start) -> None:
    async def two_outputs(ids: Sequence[int]) -> Sequence[float]:
        return [0.0, *await place_in_the_batch(ids)]

    engine = start(two_outputs)
    prompts = (Prompt([1, 2, 3], (0,), at=(1, 2)), Prompt([1, 2, 3], (1,), at=(1, 2)))
    row = RenderedRequest("hash", (RenderedResponse("A"), RenderedResponse("B")), prompts)
    ((score, equal),) = scorer(engine, "math-process").score_block([row])
    assert score == equal
    assert engine.calls == [([1, 2, 3], [1, 2])]


def test_the_reward_is_weighted_and_the_outputs_are_named(start: Start) -> None:
    async def answer(ids: Sequence[int]) -> Sequence[float]:
        return [9.0, 9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 0.5]

    ((score,),) = scorer(start(answer), "attributes").score_block([asks([1])])
    assert score.reward == pytest.approx(0.3 * 1 + 0.74 * 2 + 0.46 * 3 + 0.47 * 4 - 0.33 * 0.5)
    assert score.scores == dict(zip(families()["attributes"].outputs(), [1.0, 2.0, 3.0, 4.0, 0.5], strict=True))


def test_rejected_responses_stay_beside_scored_ones(start: Start) -> None:
    responses = (RenderedResponse("A", Reason.TOO_LONG), RenderedResponse("B", truncated=True), RenderedResponse("C"))
    rendered_request = RenderedRequest("hash", responses, (Prompt([2], (2,)), Prompt([1], (1,))))
    (scores,) = scorer(start(first_token)).score_block([rendered_request])
    assert scores[0] == Score.rejected(Reason.TOO_LONG)
    assert [score.reward for score in scores[1:]] == [1.0, 2.0]
    assert [score.truncated for score in scores] == [False, True, False]


def test_what_is_no_number_is_no_reward(start: Start) -> None:
    """Also of an output with the weight 0."""
    for at, bad in itertools.product(range(9), [math.nan, math.inf, -math.inf]):

        async def answer(ids: Sequence[int], at: int = at, bad: float = bad) -> Sequence[float]:
            return [bad if label == at else 1.0 for label in range(9)]

        head_scorer = HeadScorer(families()["attributes"], {"helpfulness": 1.0}, start(answer))
        ((score,),) = head_scorer.score_block([asks([1, 2])])
        if at < 4:  # nobody reads these
            assert score.status is Status.SCORED
        else:
            assert score == Score.failed(Reason.NOT_FINITE, 2)
            assert (score.reward, score.scores) == (None, {})


@pytest.mark.parametrize("one_pass", [False, True])
@pytest.mark.parametrize(
    ("error", "reason"),
    [(EngineError("refused"), Reason.ENGINE_REFUSED), (EngineTimeout("late"), Reason.ENGINE_TIMEOUT)],
)
def test_what_the_engine_doesnt_answer_fails_alone(start: Start, one_pass: bool, error: Exception, reason: Reason) -> None:
    """Prompts that are equal, or share a forward pass, share its failure."""
    engine = start(raising(error))
    requests = [asks([1], [13], [13, 1, 1]), asks([2], [13])]
    first, second = scorer(engine, one_pass=one_pass).score_block(requests)
    assert first[1:] == (Score.failed(reason, 1), Score.failed(reason, 3))
    assert second[1] == Score.failed(reason, 1)
    assert first[0].reward == second[0].reward == 1.0
    assert len(engine.calls) == (3 if one_pass else 4)


@pytest.mark.parametrize("error", [EngineDead("it is gone"), ZeroDivisionError("a bug")])
def test_a_dead_engine_or_a_bug_ends_the_block_and_cancels_the_other_requests(start: Start, error: Exception) -> None:
    barrier = asyncio.Barrier(7)
    cancelled: list[int] = []

    async def answer(ids: Sequence[int]) -> Sequence[float]:
        await barrier.wait()
        if ids[0] == 13:
            raise error
        try:
            await asyncio.sleep(math.inf)
        except asyncio.CancelledError:
            cancelled.append(ids[0])
            raise
        raise AssertionError

    engine = start(answer)
    with pytest.raises(type(error), match=str(error)):
        scorer(engine).score_block([asks([1], [2]), asks([3], [13], [4]), asks([5], [6])])
    engine.submit(asyncio.sleep(0)).result(SECONDS)
    assert sorted(cancelled) == [1, 2, 3, 4, 5, 6]


def test_a_caller_that_gives_up_cancels_its_requests(start: Start) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def answer(ids: Sequence[int]) -> Sequence[float]:
        begun.set()
        try:
            await asyncio.sleep(math.inf)
        finally:
            ended.set()
        raise AssertionError

    async def give_up(head_scorer: HeadScorer) -> None:
        scoring = asyncio.create_task(head_scorer.score([asks([1], [2])]))
        await begun.wait()
        scoring.cancel()
        await ended.wait()

    engine = start(answer)
    engine.submit(give_up(scorer(engine))).result(SECONDS)


def test_a_prompt_inside_the_next_is_read_there(start: Start) -> None:
    async def last_token(ids: Sequence[int]) -> Sequence[float]:
        return [float(ids[-1])]

    engine = start(last_token)
    requests = [asks([1, 2]), asks([1, 2, 3, 4], [1, 2, 3, 4, 5]), asks([9, 2]), asks([9])]
    scores = scorer(engine, one_pass=True).score_block(requests)
    assert [[score.reward for score in of_request] for of_request in scores] == [[2], [4, 5], [2], [9]]
    assert [[score.prompt_tokens for score in of_request] for of_request in scores] == [[2], [4, 5], [2], [1]]
    assert engine.calls == [([1, 2, 3, 4, 5], [1, 3, 4]), ([9, 2], [1]), ([9], [0])]
    scorer(engine).score_block(requests)
    assert len(engine.calls) == 3 + 5


def test_no_more_of_a_prompt_is_told_to_be_cached_than_there_is(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(first_token)

    async def cached(ids: Sequence[int], at: Sequence[int], context: str, uncached: bool) -> Pooled:
        return Pooled(tuple((1.0,) for _ in at), 4, 1)

    monkeypatch.setattr(engine, "pool", cached)
    (scores,) = scorer(engine, one_pass=True).score_block([asks([1, 2], [1, 2, 3, 4, 5])])
    assert [score.cached_tokens for score in scores] == [2, 4]


def test_only_the_prompts_own_numbers_must_be_numbers(start: Start) -> None:
    async def broken_at_four(ids: Sequence[int]) -> Sequence[float]:
        return [math.nan if len(ids) == 4 else 1.0]

    (scores,) = scorer(start(broken_at_four), one_pass=True).score_block([asks([1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5])])
    assert [score.reason for score in scores] == [None, Reason.NOT_FINITE, None]
    assert [score.prompt_tokens for score in scores] == [2, 4, 5]


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeEngine]:
    """Numbers that are made of the prompt's ids."""
    engine = FakeEngine(1, 100)
    yield engine
    engine.close()


TOKENS = st.lists(st.integers(0, 50), min_size=1, max_size=5)
RESPONSES = st.lists(st.one_of(TOKENS, st.sampled_from([Reason.TOO_LONG, Reason.CONTROL_TOKEN])), max_size=5)


def rendered(responses: Sequence[list[int] | Reason]) -> RenderedRequest:
    """Each response has a prompt or a reason."""
    made = tuple(
        RenderedResponse(f"r[{index}]", response if isinstance(response, Reason) else None)
        for index, response in enumerate(responses)
    )
    prompts = tuple(
        Prompt(response, (index,)) for index, response in enumerate(responses) if not isinstance(response, Reason)
    )
    return RenderedRequest("hash", made, prompts)


@settings(deadline=None)
@given(st.lists(RESPONSES, max_size=8))
def test_any_mix_of_rejected_and_scored_comes_out_in_place(fake: FakeEngine, mix: list[list[list[int] | Reason]]) -> None:
    scores = scorer(fake).score_block([rendered(responses) for responses in mix])
    for responses, answers in zip(mix, scores, strict=True):
        for response, answer in zip(responses, answers, strict=True):
            if isinstance(response, Reason):
                assert answer == Score.rejected(response)
            else:
                (expected,) = fake.submit(fake.pool(response)).result(SECONDS).values
                assert (answer.status, answer.reward, answer.prompt_tokens) == (Status.SCORED, expected, len(response))
