"""What one request may cost: it is counted before any work, and the work ends when nobody waits for it."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from actors.records import RenderedRequest, Response, ScoreRequest
from actors.scorers.online import OnlineScorer
from actors.settings.replica import EngineSettings, JudgeSettings
from actors.text.stems import CheckCancelled
from deploy.settings import LimitSettings
from tests.support.endpoints import QUESTION, application, client, post, scorer

LONG = [{"role": "user", "content": "Why? " * 20_000}]
LIMITS = LimitSettings(max_prompts=100, max_characters=1_000_000, max_characters_under_way=1_500_000, answer_timeout_s=5.0)


@pytest.fixture(scope="module")
def idle() -> Iterator[OnlineScorer]:
    """By principles; nothing that it is asked gets to its renderer."""
    online_scorer = scorer("tiny-principle")
    online_scorer._renderer.render = _never  # type: ignore[method-assign]
    online_scorer._renderer.from_rendered = _never  # type: ignore[method-assign, union-attr]
    yield online_scorer
    online_scorer.close()


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("work was begun")


def refused(app: Any, path: str, body: Any) -> tuple[int, str | None]:
    answer = post(app, path, body)
    return answer.status_code, answer.json()["error"]["code"]


def body_of(responses: int, principles: int = 1, context: Any = QUESTION) -> dict[str, Any]:
    item = {"messages": context, "responses": ["7"] * responses, "principles": ["short"] * principles}
    return {"conversations": [item]}


def test_principles_and_responses_are_counted_before_any_work(idle: OnlineScorer) -> None:
    app = application([idle], LIMITS)
    assert refused(app, "/v1/rewards", body_of(10, 11)) == (413, "too_many_prompts")
    two = {"conversations": body_of(10, 6)["conversations"] * 2}
    assert refused(app, "/v1/rewards", two) == (413, "too_many_prompts")
    many = application([idle], LimitSettings())
    assert refused(many, "/v1/rewards", body_of(1000, 1280)) == (413, "too_many_prompts")


def test_a_context_counts_with_each_response(idle: OnlineScorer) -> None:
    app = application([idle], LIMITS)
    assert refused(app, "/v1/rewards", body_of(11, context=LONG)) == (413, "too_many_characters")
    question = LONG[0]["content"]
    for path, body in (
        ("/rerank", {"query": question, "documents": ["7"] * 11}),
        ("/score", {"queries": question, "documents": ["7"] * 11}),
    ):
        assert refused(app, path, body) == (413, "too_many_characters")
    response = {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "7"}]}]}
    compared = {"conversation_history": LONG, "response_objs": [response] * 11, "principle": "short"}
    assert refused(app, "/compare", compared) == (413, "too_many_characters")


def test_short_turns_count_what_they_take(idle: OnlineScorer) -> None:
    short = [{"role": role, "content": "a"} for role in ("user", "assistant")] * 10_000 + QUESTION
    app = application([idle], LimitSettings())
    assert refused(app, "/v1/rewards", body_of(1024, context=short)) == (413, "too_many_characters")


def test_documents_are_counted_before_they_are_looked_at(idle: OnlineScorer) -> None:
    app = application([idle], LimitSettings(max_items=8))
    for path, body in (
        ("/rerank", {"query": "?", "documents": ["7"] * 9}),
        ("/score", {"queries": "?", "documents": ["7"] * 9}),
    ):
        answer = post(app, path, body)
        assert (answer.status_code, "9 items" in answer.text) == (413, True)


@pytest.fixture(scope="module")
def voting() -> Iterator[OnlineScorer]:
    """A judge of one response at a time that is asked four times; nothing gets to its renderer."""
    online_scorer = scorer("tiny-r3", judge=JudgeSettings(votes=4))
    online_scorer._renderer.render = _never  # type: ignore[method-assign]
    yield online_scorer
    online_scorer.close()


def test_votes_and_texts_count(voting: OnlineScorer) -> None:
    app = application([voting], LIMITS)
    assert refused(app, "/v1/rewards", body_of(26, 0)) == (413, "too_many_prompts")
    conversation = {"messages": [*QUESTION, {"role": "response_1", "content": "7"}], "temperature": 1.0}
    assert refused(app, "/v1/chat/completions", {**conversation, "n": 101}) == (413, "too_many_prompts")
    conversation = {"messages": [*LONG, {"role": "response_1", "content": "7"}], "temperature": 1.0}
    assert refused(app, "/v1/chat/completions", {**conversation, "n": 11}) == (413, "too_many_characters")


def test_there_is_a_bound_to_the_prompts_of_all_requests_together() -> None:
    slow = scorer("tiny-scalar", engine=EngineSettings(engine="fake", engine_args={"latency_s": 30.0}))
    app = application([slow], LimitSettings(max_characters_under_way=20, answer_timeout_s=1.0))

    async def both() -> list[httpx.Response]:
        async with client(app) as http:
            return await asyncio.gather(*(http.post("/v1/rewards", json=body_of(1, 0)) for _ in range(2)))

    try:
        for _ in range(2):  # what the first one holds is free when it has been answered
            busy, waited = sorted(asyncio.run(both()), key=lambda answer: answer.status_code)
            assert (busy.status_code, waited.status_code) == (429, 504)
            assert (busy.json()["error"]["code"], busy.headers["Retry-After"]) == ("overloaded", "1")
    finally:
        slow.close()


def test_rendering_ends_when_nobody_waits_any_more() -> None:
    online_scorer = scorer("tiny-scalar")
    begun, event, ended = threading.Event(), threading.Event(), threading.Event()

    def endless(requests: Sequence[ScoreRequest], check_cancelled: CheckCancelled) -> list[RenderedRequest]:
        begun.set()
        event.wait(60)
        try:
            while True:
                check_cancelled()
        finally:
            ended.set()

    online_scorer._renderer.render = endless  # type: ignore[method-assign, assignment]

    async def leaving() -> None:
        asking = asyncio.create_task(online_scorer.score([ScoreRequest((), (Response("final", "x" * 10_000),))]))
        await asyncio.to_thread(begun.wait, 60)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        event.set()

    try:
        asyncio.run(leaving())
        assert ended.wait(60)
    finally:
        online_scorer.close()
