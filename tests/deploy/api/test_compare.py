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
from deploy.api import compare
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
    comparison_results: list[dict[str, Any]] | None = None  # these two aren't sent
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


def test_what_cannot_be_judged_is_masked_and_the_others_are_not(app: Any) -> None:
    body = compared(app, "7", " ", "9", "9 <|im_end|>", model=JUDGE)
    assert body["mask"] == [True, False, True, False]
    assert [reward is None for reward in body["rewards"]] == [False, True, False, True]
    assert body["reasons"] == [None, "empty_content", None, "control_token"]
    with pytest.raises(ValidationError):
        GymResponse(**body)


def test_a_judge_of_two_needs_two(app: Any) -> None:
    assert compared(app, "7", model=JUDGE)["reasons"] == ["no_opponent"]
    body = compared(app, " ", " ", model=JUDGE)
    assert body["rewards"] == [None, None]


def test_a_principle_is_followed_or_refused(app: Any, scorers: dict[str, OnlineScorer]) -> None:
    compared(app, "7", "9", model=HEAD, principle="brevity", status=400)
    compared(app, "7", "9", model=HEAD, principle=" ")
    recording = Recording(scorers[JUDGE])
    compared(recorded(recording), "7", "9", principle="brevity")
    assert recording.requests[0].principles == ("brevity",)


def test_the_text_of_messages_is_judged_after_their_reasoning(scorers: dict[str, OnlineScorer]) -> None:
    recording = Recording(scorers[HEAD])
    objects = [answered("3 + 4 ", "= 7"), {"output": [{"type": "message", "content": "7"}]}]
    response = post(recorded(recording), "/compare", {"conversation_history": QUESTION, "response_objs": objects})
    assert response.json()["mask"] == [True, True]
    (request,) = recording.requests
    assert request.context == (user("What is 3 + 4?"),)
    assert [response.content for response in request.responses] == ["<think>\nhm\n</think>\n\n3 + 4 = 7", "7"]


def test_a_conversation_is_read_once_for_all_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    def counting(row: Any) -> Any:
        turns.append(len(row["responses_create_params"]["input"]))
        return reader(row)

    reader = compare._READ
    monkeypatch.setattr(compare, "_READ", counting)
    conversation = [{"role": role, "content": "3 + 4?"} for role in (*("user", "assistant") * 20, "user")]
    body = compare.CompareRequest.model_validate(
        {"conversation_history": conversation, "response_objs": [answered(str(number)) for number in range(50)]}
    )
    members = compare._read(body, ())
    assert sum(turns) == 41 + 50
    requests = [member for member in members if isinstance(member, ScoreRequest)]
    assert [request.responses[0].content[-2:].strip() for request in requests] == [str(number) for number in range(50)]
    assert all(request.context is requests[0].context for request in requests)
    assert len(requests[0].context) == 41


def test_what_is_judged_alone_may_follow_other_turns(app: Any) -> None:
    doubt = {"type": "message", "role": "user", "content": "Are you sure?"}
    objects = [answered("7"), {"output": [*answered("9")["output"], doubt, *answered("7")["output"]]}]
    body = {"conversation_history": QUESTION, "response_objs": objects}
    for model, reasons in ((HEAD, [None, None]), (JUDGE, ["no_opponent"] * 2)):
        assert post(app, "/compare", {**body, "model": model}).json()["reasons"] == reasons


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ([], "no_messages"),
        ([{"type": "reasoning"}], "empty_content"),
        ([{"type": "message", "role": "assistant", "content": []}], "empty_content"),
        ([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": 7}]}], "content_not_text"),
    ],
)
def test_an_answer_without_a_text_is_rejected(app: Any, output: Any, reason: str) -> None:
    body = {"model": HEAD, "conversation_history": QUESTION, "response_objs": [{"output": output}]}
    assert post(app, "/compare", body).json()["reasons"] == [reason]


@pytest.mark.parametrize(
    "wrong",
    [
        {"response_objs": []},
        {"response_objs": [{}]},
        {"conversation_history": []},
        {"more": 1},
    ],
)
def test_other_bodies_are_refused(app: Any, wrong: dict[str, Any]) -> None:
    body = {"model": HEAD, "conversation_history": QUESTION, "response_objs": [answered("7")]}
    assert post(app, "/compare", body | wrong).status_code == 400


# What a judge wrote becomes rewards, whatever it was.


class Recording:
    """A scorer that tells what it was asked, and answers with the scores that it is given, or its own.

    Where two are asked about in the other order as well, it says the same of them, without a text.
    """

    def __init__(self, online_scorer: OnlineScorer, *scores: Score) -> None:
        self.model = online_scorer.model
        self.requests: list[ScoreRequest] = []
        self._scorer, self._scores = online_scorer, scores

    async def score(self, requests: Sequence[ScoreRequest]) -> list[RequestScores]:
        self.requests += requests
        swapped = tuple(replace(score, trace=()) for score in self._scores[::-1])
        request_scores = [RequestScores("", scores) for scores in (self._scores, swapped)]
        return request_scores[: len(requests)] if self._scores else await self._scorer.score(requests)


def recorded(*recordings: Any) -> Any:
    return application(recordings)


def judge_answer(
    text: str, vote: float | None, *shown: int, reason: Reason | None = None, principle: str | None = None
) -> JudgeAnswer:
    return JudgeAnswer(tuple(f"response[{index}]" for index in shown), principle, text, "stop", vote, reason)


def compare_scores(online_scorer: OnlineScorer, *scores: Score) -> Any:
    return compared(recorded(Recording(online_scorer, *scores)), *map(str, range(len(scores))))


def scored(reward: float, *trace: JudgeAnswer) -> Score:
    return replace(Score.scored(Reading(reward, {}), 9), trace=trace)


def verdict(grade: float, other: float, ranking: float) -> str:
    return "hm</think>" + json.dumps({"score_1": grade, "score_2": other, "ranking": ranking})


def test_between_equal_grades_the_ranking_decides(scorers: dict[str, OnlineScorer]) -> None:
    """As NeMo-Gym's `aggregate_scores`: 3.5 less the ranking is added to the first of two, and taken from the second."""
    text = verdict(3, 3, 2)
    body = compare_scores(
        scorers[JUDGE], scored(3.0, judge_answer(text, 3.0, 0, 1)), scored(3.0, judge_answer(text, 3.0, 0, 1))
    )
    assert body["rewards"] == [4.5, 1.5]
    boxed = (
        "[The Begin of Individual Scores]\n\\boxed{4, 4}\n[The End of Individual Scores]\n"
        "[The Begin of Ranking Score]\n\\boxed{2}\n[The End of Ranking Score]"
    )
    body = compare_scores(
        scorers[BOXED], scored(4.0, judge_answer(boxed, 4.0, 0, 1)), scored(4.0, judge_answer(boxed, 4.0, 0, 1))
    )
    assert body["rewards"] == [5.5, 2.5]
    around = [
        judge_answer(verdict(3, 3, 2), 3.0, 0, 1),
        judge_answer(verdict(4, 2, 1), 4.0, 1, 2),
        judge_answer(verdict(3, 3, 6), 3.0, 2, 0),
    ]
    body = compare_scores(
        scorers[JUDGE],
        scored(3.0, around[0], around[2]),
        scored(3.5, around[0], around[1]),
        scored(2.5, replace(around[1], vote=2.0), around[2]),
    )
    assert body["rewards"] == [5.0, 2.75, 1.25]


def test_both_orders_of_two_count_alike(scorers: dict[str, OnlineScorer]) -> None:
    recording = Recording(scorers[JUDGE])
    compared(recorded(recording), "7", "9")
    first, second = recording.requests
    assert [response.name for response in second.responses] == [response.name for response in first.responses][::-1]


def test_weights_of_ones_own_are_left_to_break_ties() -> None:
    model = ModelSettings(model=JUDGE, weights={"score": 1.0, "margin": 0.1})
    online_scorer = OnlineScorer(resolve_model(model, RenderSettings()), RenderSettings(), EngineSettings(engine="fake"))
    try:
        recording, text = Recording(online_scorer), judge_answer(verdict(3, 3, 2), 3.15, 0, 1)
        compared(recorded(recording), "7", "9")
        assert len(recording.requests) == 1
        assert compare_scores(online_scorer, scored(3.15, text), scored(2.85, replace(text, vote=2.85)))["rewards"] == [
            3.15,
            2.85,
        ]
    finally:
        online_scorer.close()


def test_what_one_order_leaves_open_has_no_reward(scorers: dict[str, OnlineScorer]) -> None:
    class Half(Recording):
        async def score(self, requests: Sequence[ScoreRequest]) -> list[RequestScores]:
            first, second = await super().score(requests)
            return [first, replace(second, scores=(Score.failed(Reason.NO_VERDICT, 9),) * 2)]

    text = verdict(5, 2, 1)
    body = compared(recorded(Half(scorers[JUDGE], scored(5.0, judge_answer(text, 5.0, 0, 1)), scored(2.0))), "7", "9")
    assert (body["rewards"], body["reasons"]) == ([None, None], ["no_verdict"] * 2)


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
