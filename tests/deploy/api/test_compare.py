"""NeMo-Gym's comparison: its request and its reading of the answer, restated here, on the fake engine."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from actors.records import JudgeAnswer, Reading, Reason, Score, ScoreRequest
from actors.reward_model import resolve_model
from actors.scorers.online import OnlineScorer, RequestScores
from actors.settings.replica import EngineSettings, JudgeSettings, ModelSettings, RenderSettings
from tests.support.endpoints import QUESTION, application, post, scorer
from tests.support.models import user

HEAD, JUDGE, BOXED = "tiny-attributes", "tiny-genrm-json", "tiny-genrm"


class GymRequest(BaseModel):
    """As NeMo-Gym declares it."""

    conversation_history: list[dict[str, str]]
    response_objs: list[dict[str, Any]]
    principle: str | None = None


class GymResponse(BaseModel):
    """As NeMo-Gym declares it: a null among the rewards is a ValidationError, never a number."""

    rewards: list[float]
    comparison_results: list[dict[str, Any]] | None = None
    metrics: dict[str, float] | None = None


def answered(*texts: str) -> dict[str, Any]:
    """A policy's answer, as vLLM's Responses API gives it and NeMo-Gym passes it on."""
    parts: list[dict[str, Any]] = [
        {"type": "output_text", "text": text, "annotations": [], "logprobs": None} for text in texts
    ]
    return {
        "id": "resp_1", "object": "response", "created_at": 0.0, "model": "policy", "status": "completed", "tools": [],
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "content": None},
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": parts},
        ],
    }  # fmt: skip


def compared(app: Any, *texts: str, status: int = 200, **more: Any) -> Any:
    request = GymRequest(conversation_history=QUESTION, response_objs=[answered(text) for text in texts])
    response = post(app, "/compare", request.model_dump() | more)
    assert response.status_code == status, response.text
    return response.json()


@pytest.fixture(scope="module")
def scorers() -> Iterator[dict[str, OnlineScorer]]:
    made = {HEAD: scorer(HEAD, reasoning="strip"), **{name: scorer(name) for name in (JUDGE, BOXED)}}
    yield made
    for item in made.values():
        item.close()


@pytest.fixture(scope="module")
def app(scorers: dict[str, OnlineScorer]) -> Any:
    return application(list(scorers.values()))


def test_each_response_has_the_reward_of_our_own_format_where_no_grades_are_equal(app: Any) -> None:
    """As those aren't that the fake engine makes up."""
    item = {"messages": QUESTION, "responses": ["7", "9", "11"]}
    for model in (HEAD, JUDGE, BOXED):
        truth = post(app, "/v1/rewards", {"model": model, "conversations": [item]}).json()["data"][0]["responses"]
        body = compared(app, "7", "9", "11", model=model)
        assert GymResponse(**body).rewards == [entry["reward"] for entry in truth]
        assert body["mask"] == [True] * 3
        assert body["reasons"] == [None] * 3


def test_a_judge_of_two_tells_every_comparison(app: Any) -> None:
    body = compared(app, "7", "9", "11", model=JUDGE)
    shown = [(item["response_i"], item["response_j"], item["judge_idx"]) for item in body["comparison_results"]]
    assert shown == [(0, 1, 0), (1, 2, 0), (2, 0, 0)], "each with the next, once"
    for comparison_result in body["comparison_results"]:
        assert comparison_result.keys() == {"response_i", "response_j", "judge_idx", "score_1", "score_2", "ranking"}
        assert all(isinstance(comparison_result[name], float) for name in ("score_1", "score_2"))
    for index, reward in enumerate(body["rewards"]):
        votes = [item["score_1" if item["response_i"] == index else "score_2"] for item in body["comparison_results"]
                 if index in (item["response_i"], item["response_j"])]  # fmt: skip
        assert reward == pytest.approx(sum(votes) / len(votes))
    assert body["metrics"] == {
        "responses": 3.0,
        "scored": 3.0,
        "rejected": 0.0,
        "failed": 0.0,
        "mean_reward": pytest.approx(sum(body["rewards"]) / 3),
        "unreadable": 0.0,
    }


def test_two_are_compared_in_both_orders(app: Any) -> None:
    for model in (JUDGE, BOXED):
        body = compared(app, "7", "9", model=model)
        assert [
            (comparison_result["response_i"], comparison_result["response_j"])
            for comparison_result in body["comparison_results"]
        ] == [(0, 1), (1, 0)]
        assert body["rewards"] == pytest.approx(gyms_rewards(body))


def test_a_head_compares_nothing(app: Any) -> None:
    body = compared(app, "7", "9", model=HEAD)
    assert body["comparison_results"] == []
    assert "unreadable" not in body["metrics"]


def test_what_cannot_be_judged_is_masked_and_the_others_are_not(app: Any) -> None:
    body = compared(app, "7", " ", "9", "9 <|im_end|>", model=JUDGE)
    assert body["mask"] == [True, False, True, False]
    assert [reward is None for reward in body["rewards"]] == [False, True, False, True]
    assert body["reasons"] == [None, "empty_content", None, "control_token"]
    assert {
        (comparison_result["response_i"], comparison_result["response_j"])
        for comparison_result in body["comparison_results"]
    } == {(0, 2)}
    assert (body["metrics"]["scored"], body["metrics"]["rejected"]) == (2.0, 2.0)
    with pytest.raises(ValidationError):
        GymResponse(**body)


def test_a_judge_of_two_needs_two(app: Any) -> None:
    assert compared(app, "7", model=JUDGE)["reasons"] == ["no_opponent"]
    body = compared(app, " ", " ", model=JUDGE)
    assert (body["rewards"], body["comparison_results"]) == ([None, None], [])
    assert "mean_reward" not in body["metrics"]


def test_a_principle_is_followed_or_refused(app: Any, scorers: dict[str, OnlineScorer]) -> None:
    compared(app, "7", "9", model=HEAD, principle="brevity", status=400)
    compared(app, "7", "9", model=HEAD, principle=" ")
    recording = Recording(scorers[JUDGE])
    compared(recorded(recording), "7", "9", principle="brevity")
    assert recording.asked[0].principles == ("brevity",)


def test_the_text_of_messages_is_judged_after_their_reasoning(scorers: dict[str, OnlineScorer]) -> None:
    recording = Recording(scorers[HEAD])
    objects = [answered("3 + 4 ", "= 7"), {"output": [{"type": "message", "content": "7"}]}]
    response = post(recorded(recording), "/compare", {"conversation_history": QUESTION, "response_objs": objects})
    assert response.json()["mask"] == [True, True]
    (request,) = recording.asked
    assert request.context == (user("What is 3 + 4?"),)
    assert [response.content for response in request.responses] == ["<think>\nhm\n</think>\n\n3 + 4 = 7", "7"]


@pytest.mark.parametrize(
    "output", [[], [{"type": "reasoning"}], [{"type": "message", "content": []}], [{"type": "message", "content": [{}]}]]
)
def test_an_answer_without_a_text_is_rejected(app: Any, output: Any) -> None:
    body = {"model": HEAD, "conversation_history": QUESTION, "response_objs": [{"output": output}]}
    assert post(app, "/compare", body).json()["reasons"] == ["empty_content"]


def test_a_text_that_is_none_is_rejected(app: Any) -> None:
    output = [{"type": "message", "content": [{"type": "output_text", "text": 7}]}]
    body = {"model": HEAD, "conversation_history": QUESTION, "response_objs": [{"output": output}]}
    assert post(app, "/compare", body).json()["reasons"] == ["content_not_text"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"response_objs": []},
        {"response_objs": [{}]},
        {"conversation_history": []},
        {"conversation_history": [{"role": "wizard", "content": "hi"}]},
        {"more": 1},
    ],
)
def test_other_bodies_are_refused(app: Any, wrong: dict[str, Any]) -> None:
    body = {"model": HEAD, "conversation_history": QUESTION, "response_objs": [answered("7")]}
    assert post(app, "/compare", body | wrong).status_code == 400


# What a judge wrote becomes comparisons, whatever it was.


class Recording:
    """A scorer that tells what it was asked, and answers with the scores that it is given, or its own.

    Where two are asked about in the other order as well, it says the same of them, without a text.
    """

    def __init__(self, own: OnlineScorer, *scores: Score) -> None:
        self.model = own.model
        self.asked: list[ScoreRequest] = []
        self._own, self._scores = own, scores

    async def score(self, requests: Sequence[ScoreRequest]) -> list[RequestScores]:
        self.asked += requests
        swapped = tuple(replace(score, trace=()) for score in self._scores[::-1])
        request_scores = [RequestScores("", scores) for scores in (self._scores, swapped)]
        return request_scores[: len(requests)] if self._scores else await self._own.score(requests)


def gyms_rewards(body: Any) -> list[float]:
    """As NeMo-Gym's `aggregate_scores` makes them of the comparisons, without bonuses."""
    grades: dict[int, list[float]] = {}
    for comparison_result in body["comparison_results"]:
        tie_break = (
            3.5 - comparison_result["ranking"] if comparison_result["score_1"] == comparison_result["score_2"] else 0.0
        )
        grades.setdefault(comparison_result["response_i"], []).append(comparison_result["score_1"] + tie_break)
        grades.setdefault(comparison_result["response_j"], []).append(comparison_result["score_2"] - tie_break)
    return [sum(grades[grade]) / len(grades[grade]) for grade in sorted(grades)]


def recorded(*recordings: Any) -> Any:
    return application(recordings)


def said(
    text: str, vote: float | None, *shown: int, reason: Reason | None = None, principle: str | None = None
) -> JudgeAnswer:
    return JudgeAnswer(tuple(f"response[{index}]" for index in shown), principle, text, "stop", vote, reason)


def told(own: OnlineScorer, *scores: Score) -> Any:
    return compared(recorded(Recording(own, *scores)), *map(str, range(len(scores))))


def scored(reward: float, *trace: JudgeAnswer) -> Score:
    return replace(Score.scored(Reading(reward, {}), 9), trace=trace)


def verdict(one: float, other: float, ranking: float) -> str:
    return "hm</think>" + json.dumps({"score_1": one, "score_2": other, "ranking": ranking})


def test_a_ranking_is_what_the_judge_wrote(scorers: dict[str, OnlineScorer]) -> None:
    text, back = verdict(5, 2, 1), verdict(3, 4, 5)
    body = told(
        scorers[JUDGE],
        scored(4.5, said(text, 5.0, 0, 1), said(back, 4.0, 1, 0)),
        scored(2.5, said(text, 2.0, 0, 1), said(back, 3.0, 1, 0)),
    )
    rows = [tuple(comparison_result.values()) for comparison_result in body["comparison_results"]]
    assert rows == [(0, 1, 0, 5.0, 2.0, 1.0), (1, 0, 0, 3.0, 4.0, 5.0)]
    boxed = (
        "[The Begin of Individual Scores]\n\\boxed{4, 3}\n[The End of Individual Scores]\n"
        "[The Begin of Ranking Score]\n\\boxed{2}\n[The End of Ranking Score]"
    )
    body = told(scorers[BOXED], scored(4.0, said(boxed, 4.0, 0, 1)), scored(3.0, said(boxed, 3.0, 0, 1)))
    assert [tuple(comparison_result.values()) for comparison_result in body["comparison_results"]] == [
        (0, 1, 0, 4.0, 3.0, 2.0)
    ]


def test_between_equal_grades_the_ranking_decides(scorers: dict[str, OnlineScorer]) -> None:
    text = verdict(3, 3, 2)
    body = told(scorers[JUDGE], scored(3.0, said(text, 3.0, 0, 1)), scored(3.0, said(text, 3.0, 0, 1)))
    assert body["rewards"] == [4.5, 1.5] == gyms_rewards(body)
    assert body["metrics"]["mean_reward"] == 3.0
    around = [said(verdict(3, 3, 2), 3.0, 0, 1), said(verdict(4, 2, 1), 4.0, 1, 2), said(verdict(3, 3, 6), 3.0, 2, 0)]
    body = told(
        scorers[JUDGE],
        scored(3.0, around[0], around[2]),
        scored(3.5, around[0], around[1]),
        scored(2.5, replace(around[1], vote=2.0), around[2]),
    )
    assert body["rewards"] == [5.0, 2.75, 1.25] == gyms_rewards(body)


def test_weights_of_ones_own_are_left_to_break_ties() -> None:
    model = ModelSettings(model=JUDGE, weights={"score": 1.0, "margin": 0.1})
    online_scorer = OnlineScorer(resolve_model(model, RenderSettings()), RenderSettings(), EngineSettings(engine="fake"))
    try:
        recording, text = Recording(online_scorer), said(verdict(3, 3, 2), 3.15, 0, 1)
        body = compared(recorded(recording), "7", "9")
        assert len(recording.asked) == 1
        assert [
            (comparison_result["response_i"], comparison_result["response_j"])
            for comparison_result in body["comparison_results"]
        ] == [(0, 1)]
        assert told(online_scorer, scored(3.15, text), scored(2.85, replace(text, vote=2.85)))["rewards"] == [3.15, 2.85]
    finally:
        online_scorer.close()


def test_what_one_order_leaves_open_has_no_reward(scorers: dict[str, OnlineScorer]) -> None:
    class Half(Recording):
        async def score(self, requests: Sequence[ScoreRequest]) -> list[RequestScores]:
            first, second = await super().score(requests)
            return [first, replace(second, scores=(Score.failed(Reason.NO_VERDICT, 9),) * 2)]

    text = verdict(5, 2, 1)
    body = compared(recorded(Half(scorers[JUDGE], scored(5.0, said(text, 5.0, 0, 1)), scored(2.0))), "7", "9")
    assert (body["rewards"], body["reasons"]) == ([None, None], ["no_verdict"] * 2)
    assert [
        (comparison_result["response_i"], comparison_result["response_j"])
        for comparison_result in body["comparison_results"]
    ] == [(0, 1)]


def test_what_cannot_be_read_is_null_and_counted_once_it_is_given_up(scorers: dict[str, OnlineScorer]) -> None:
    """Three votes: one read at once, one at the second attempt, and one at none of three."""
    no = Reason.NO_VERDICT
    texts = [(verdict(5, 2, 1), None), ("?", no), (verdict(4, 2, 2), None), ("?", no), ("?", no), ("?", no)]
    traces = [
        [
            said(text, None if reason else vote, 0, 1, reason=reason)
            for (text, reason), vote in zip(texts, votes, strict=True)
        ]
        for votes in ((5.0, 0.0, 4.0, 0.0, 0.0, 0.0), (2.0, 0.0, 2.0, 0.0, 0.0, 0.0))
    ]
    assert scorers[JUDGE].model.judge.reask == 2
    body = told(scorers[JUDGE], scored(4.5, *traces[0]), replace(Score.failed(no, 9), trace=tuple(traces[1])))
    rows = [tuple(comparison_result.values()) for comparison_result in body["comparison_results"]]
    assert rows == [(0, 1, 0, 5.0, 2.0, 1.0), (0, 1, 1, 4.0, 2.0, 2.0), (0, 1, 2, None, None, None)]
    assert (body["rewards"], body["mask"], body["reasons"]) == ([4.5, None], [True, False], [None, "no_verdict"])
    assert body["metrics"]["unreadable"] == pytest.approx(4 / 6)


def test_votes_by_several_principles_are_counted_on(scorers: dict[str, OnlineScorer]) -> None:
    texts = [said(verdict(5, 2, 1), 5.0, 0, 1, principle=principle) for principle in ("a", "b")]
    body = told(scorers[JUDGE], scored(5.0, *texts), scored(2.0, *(replace(text, vote=2.0) for text in texts)))
    assert [comparison_result["judge_idx"] for comparison_result in body["comparison_results"]] == [0, 1]


def test_a_response_that_was_rejected_after_all_has_no_score_beside_one_that_was_not(
    scorers: dict[str, OnlineScorer],
) -> None:
    text = said(verdict(5, 2, 1), 5.0, 0, 1)
    body = told(scorers[JUDGE], scored(5.0, text), Score.rejected(Reason.TOO_LONG))
    assert [tuple(comparison_result.values()) for comparison_result in body["comparison_results"]] == [
        (0, 1, 0, 5.0, None, 1.0)
    ]


def test_a_response_that_is_left_without_an_opponent_is_no_error_of_ours() -> None:
    """The first and the last are too long for each other; where the first wins, nobody is left for the last."""
    online_scorer = scorer(JUDGE, judge=JudgeSettings(pairs="active"), max_model_len=100)
    result = set()
    try:
        for number in range(10):
            texts = [f"{number} " + "seven " * 12, "9", "eight " * 12]
            conversation = {"messages": QUESTION, "responses": texts}
            answer = post(application([online_scorer]), "/v1/rewards", {"model": JUDGE, "conversations": [conversation]})
            assert answer.status_code == 200, answer.text
            responses = answer.json()["data"][0]["responses"]
            result.add(tuple(response["reason"] for response in responses))
    finally:
        online_scorer.close()
    assert result == {(None, None, None), (None, None, "no_opponent")}
