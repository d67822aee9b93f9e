"""Our own format, the typed truth that all others are views of: many conversations, candidates and principles at a time."""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from actors.errors import Rejected
from actors.records import Reason, Reasoning, Response, Score, ScoreRequest
from actors.scorers.online import RequestScores
from deploy.api.bodies import Body, Listed, RequestBody, Serving, Turns, read_score_request
from deploy.api.json_route import JsonRoute
from deploy.metrics.counters import tokens_of
from deploy.models.work import off_loop
from pipelines.formats.content import conversation, refuse_answered, text

router = APIRouter(tags=["rewards"], route_class=JsonRoute)


class Conversation(RequestBody):
    """What is judged: the last turn of `messages`; or, with `responses`, each of these as an answer to all `messages`."""

    messages: Turns
    responses: Listed[str] | None = Field(
        default=None, min_length=1, description="candidates; `messages` is then the context"
    )
    principles: Listed[str] = Field(default=[], description="what they are judged by, for models that go by principles")


class RewardsRequest(RequestBody):
    """Conversations to be judged, each by itself."""

    model: str | None = Field(default=None, description="needed if there are several")
    conversations: Listed[Conversation] = Field(min_length=1)
    trace: bool = Field(default=False, description="with what a judge wrote")
    reasoning: Reasoning | None = Field(
        default=None,
        description="responses that begin with reasoning: reject them, strip it and judge the final answer, or keep it; as "
        "the endpoint is set up if not given",
    )


class JudgeAnswerBody(Body):
    """What a judge wrote once."""

    shown: list[str]
    principle: str | None
    text: str
    finish_reason: str | None
    vote: float | None
    reason: str | None


class Reward(Body):
    """What became of one response. `reward` is there if, and only if, `status` is `scored`."""

    name: str
    reward: float | None
    scores: dict[str, float]
    status: str
    reason: str | None
    truncated: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    steps: list[float] | None = None
    votes: list[float] | None = None
    trace: list[JudgeAnswerBody] | None = None


class Rewards(Body):
    """Of one conversation, in the order of its responses."""

    index: int
    prompt_hash: str | None
    responses: list[Reward]
    ranking: list[int] = Field(description="positions of the scored responses, the best first")


class RewardsResponse(Body):
    """In the order of the request."""

    id: str
    object: str = "rewards"
    created: int
    model: str
    data: list[Rewards]
    usage: dict[str, int]


@router.post("/v1/rewards")
async def rewards(body: RewardsRequest, service: Serving) -> RewardsResponse:
    """Judge conversations. One that can't be judged says why; the others have their rewards."""
    served = service.find(body.model)
    served.check_count(sum(len(one.responses or [0]) for one in body.conversations))
    put = await off_loop(lambda: list(map(_asked, body.conversations)))
    asked_for = [replace(one.request, reasoning=body.reasoning) for one in put if one.request is not None]
    judged = iter(await served.score(asked_for))
    whole = [one.with_refused(next(judged) if one.request is not None else None) for one in put]
    found = [_rewards(at, one.names, own, trace=body.trace) for at, (one, own) in enumerate(zip(put, whole, strict=True))]
    prompt, completion = tokens_of([score for own in whole for score in own.scores])
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return RewardsResponse(
        id=f"rewards-{uuid.uuid4().hex}", created=int(time.time()), model=served.name, data=found, usage=usage
    )


@dataclass(frozen=True)
class _Asked:
    """The responses of a conversation by name, why some can't be judged, and what is asked about the others."""

    names: list[str]
    refused: Mapping[str, Reason]
    request: ScoreRequest | None

    def with_refused(self, judged: RequestScores | None) -> RequestScores:
        """A score for every response, in order."""
        scores = iter(judged.scores if judged else ())
        whole = tuple(Score.rejected(self.refused[name]) if name in self.refused else next(scores) for name in self.names)
        return RequestScores(judged.prompt_hash if judged else "", whole)


def _asked(own: Conversation) -> _Asked:
    if own.responses is None:
        return _in_messages(own)
    names = [f"response[{at}]" for at in range(len(own.responses))]
    try:
        context = refuse_answered(conversation([turn.model_dump() for turn in own.messages]))
        principles = tuple(map(text, own.principles))
    except Rejected as rejected:
        return _Asked(names, dict.fromkeys(names, rejected.reason), None)
    refused: dict[str, Reason] = {}
    responses: list[Response] = []
    for name, one in zip(names, own.responses, strict=True):
        try:
            responses.append(Response(name, text(one)))
        except Rejected as rejected:
            refused[name] = rejected.reason
    request = ScoreRequest(context, tuple(responses), principles) if responses else None
    return _Asked(names, refused, request)


def _in_messages(own: Conversation) -> _Asked:
    try:
        request = read_score_request(own.messages, tuple(map(text, own.principles)))
    except Rejected as rejected:
        return _Asked(["final"], {"final": rejected.reason}, None)
    return _Asked([response.name for response in request.responses], {}, request)


def _rewards(at: int, names: list[str], judged: RequestScores, *, trace: bool) -> Rewards:
    scores = judged.scores
    ranked = sorted((-score.reward, at) for at, score in enumerate(scores) if score.reward is not None)
    return Rewards(
        index=at,
        prompt_hash=judged.prompt_hash or None,
        responses=[_reward(name, score, trace=trace) for name, score in zip(names, scores, strict=True)],
        ranking=[at for _, at in ranked],
    )


def _reward(name: str, score: Score, *, trace: bool) -> Reward:
    told: dict[str, Any] = {}
    if score.steps:
        told["steps"] = list(score.steps)
    if score.votes:
        told["votes"] = list(score.votes)
    if trace:
        told["trace"] = [
            JudgeAnswerBody(
                shown=list(said.shown), principle=said.principle, text=said.text, finish_reason=said.finish_reason,
                vote=said.vote, reason=said.reason,
            )
            for said in score.trace
        ]  # fmt: skip
    return Reward(
        name=name, reward=score.reward, scores=dict(score.scores), status=score.status, reason=score.reason,
        truncated=score.truncated, prompt_tokens=score.prompt_tokens, completion_tokens=score.completion_tokens, **told,
    )  # fmt: skip
