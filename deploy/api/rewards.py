"""`/v1/rewards`, our own format: many conversations, candidates and principles in one request, with typed reasons."""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from actors.contracts.family import REFERENCE
from actors.errors import Rejected
from actors.records import JudgeAnswer, Reason, Reasoning, Response, Score, ScoreRequest
from actors.scorers.online import RequestScores
from deploy.errors import BadRequest
from deploy.metrics.counters import tokens_of
from deploy.models.work import off_loop
from deploy.wire.bodies import Body, ChatMessage, Listed, RequestBody, Serving, Tools, Turns, as_answer, read_score_request
from deploy.wire.json_route import JsonRoute
from pipelines.data.formats.calls import read_tool
from pipelines.data.formats.content import conversation, refuse_answered, text
from pipelines.data.formats.own_columns import field_text
from pipelines.data.formats.rows import response_of
from pipelines.data.formats.values import is_blank

router = APIRouter(tags=["rewards"], route_class=JsonRoute)


class Conversation(RequestBody):
    """What is judged: the last turn of `messages`; or, with `responses`, each of these as an answer to all `messages`."""

    messages: Turns
    responses: Listed[str | ChatMessage] | None = Field(
        default=None,
        min_length=1,
        description="candidates, as text or, with tool calls, as messages; `messages` is then the context",
    )
    tools: Tools = Field(default=[], description="OpenAI's: those that the assistant could call")
    principles: Listed[str] = Field(default=[], description="what they are judged by, for models that go by principles")
    reference: Any = Field(default=None, description="the right answer, a text or JSON, for models that compare with one")
    fields: dict[str, Any] = Field(
        default={},
        description="what else the model reads, by name, as /v1/models lists it: texts, or JSON such as `criteria`",
    )


class RewardsRequest(RequestBody):
    """Conversations to be judged, each by itself.

    Responses are compared with those of their own conversation alone.
    """

    model: str | None = Field(default=None, description="needed if there are several")
    conversations: Listed[Conversation] = Field(min_length=1)
    trace: bool = Field(default=False, description="with what a judge wrote")
    reasoning: Reasoning | None = Field(
        default=None,
        description="responses that begin with reasoning: reject them, strip it and judge the final answer, or keep it; as "
        "the endpoint is set up if not given",
    )


class Reward(Body):
    """The outcome of one response. `reward` is a number if, and only if, `status` is `scored`.

    `steps` and `votes` are null for a model that has none, `trace` unless it was requested.
    """

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
    trace: list[JudgeAnswer] | None = None


class Rewards(Body):
    """Of one conversation, in the order of its responses.

    `prompt_hash` is null if the conversation itself can't be judged.
    """

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
    system_fingerprint: str = Field(description="of what decides the numbers: the model's card has the same")
    data: list[Rewards]
    usage: dict[str, int]


@router.post("/v1/rewards")
async def rewards(body: RewardsRequest, service: Serving) -> RewardsResponse:
    """Judge conversations. One that can't be judged says why; the others have their rewards."""
    served = service.find(body.model)
    # Before anything is parsed. A conversation without `responses` has one: its last turn.
    served.check_count(sum(len(item.responses or [0]) for item in body.conversations))
    parsed = await off_loop(lambda: list(map(_parse, body.conversations)))
    # Only what can be judged is sent to a replica; the others get their places back below.
    requests = [replace(each.request, reasoning=body.reasoning) for each in parsed if each.request is not None]
    results = iter(await served.score(requests))
    complete = [each.with_refused(next(results) if each.request is not None else None) for each in parsed]
    data = [
        _rewards(position, each.names, result, trace=body.trace)
        for position, (each, result) in enumerate(zip(parsed, complete, strict=True))
    ]
    prompt, completion = tokens_of([score for result in complete for score in result.scores])
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return RewardsResponse(
        id=f"rewards-{uuid.uuid4().hex}", created=int(time.time()), model=served.name,
        system_fingerprint=served.fingerprint, data=data, usage=usage,
    )  # fmt: skip


@dataclass(frozen=True)
class _ParsedConversation:
    """Names of a conversation's responses, the reasons of those that can't be judged, and the request for the others."""

    names: list[str]
    refused: Mapping[str, Reason]
    request: ScoreRequest | None

    def with_refused(self, result: RequestScores | None) -> RequestScores:
        """A score for every response, in order; `result` has those of the request, None without one."""
        scores = iter(result.scores if result else ())
        complete = tuple(Score.rejected(self.refused[name]) if name in self.refused else next(scores) for name in self.names)
        return RequestScores(result.prompt_hash if result else "", complete)


def _parse(item: Conversation) -> _ParsedConversation:
    if item.responses is None:
        return _parse_last_turn(item)
    names = [f"response[{position}]" for position in range(len(item.responses))]
    try:
        # An answered context would have its last turn judged by nobody, and the candidates after it.
        context = refuse_answered(conversation([turn.fields for turn in item.messages]))
        principles, fields = tuple(map(text, item.principles)), _fields(item)
        tools = tuple(map(read_tool, item.tools))
    except Rejected as rejected:
        return _ParsedConversation(names, dict.fromkeys(names, rejected.reason), None)
    refused: dict[str, Reason] = {}
    responses: list[Response] = []
    for name, response in zip(names, item.responses, strict=True):
        try:
            responses.append(response_of(name, text(response) if isinstance(response, str) else as_answer(response)))
        except Rejected as rejected:
            refused[name] = rejected.reason
    request = ScoreRequest(context, tuple(responses), principles, fields=fields, tools=tools) if responses else None
    return _ParsedConversation(names, refused, request)


def _fields(item: Conversation) -> dict[str, str]:
    """The fields of a conversation, of which blank ones are left out, as in a row. Raises `Rejected` or `ApiError`."""
    fields = [*item.fields.items(), *([] if item.reference is None else [(REFERENCE, item.reference)])]
    if len(dict(fields)) < len(fields):
        raise BadRequest("`reference` is given twice: by itself and in `fields`", "fields")
    return {name: field_text(name, value, name) for name, value in fields if not is_blank(value)}


def _parse_last_turn(item: Conversation) -> _ParsedConversation:
    try:
        request = read_score_request(item.messages, tuple(map(text, item.principles)), item.tools)
        request = replace(request, fields=_fields(item))
    except Rejected as rejected:
        return _ParsedConversation(["final"], {"final": rejected.reason}, None)
    return _ParsedConversation([response.name for response in request.responses], {}, request)


def _rewards(index: int, names: list[str], result: RequestScores, *, trace: bool) -> Rewards:
    scores = result.scores
    # Of equal rewards, the response that came first ranks first: the position is the second part of the key.
    ranked = sorted((-score.reward, position) for position, score in enumerate(scores) if score.reward is not None)
    return Rewards(
        index=index,
        prompt_hash=result.prompt_hash or None,
        responses=[_reward(name, score, trace=trace) for name, score in zip(names, scores, strict=True)],
        ranking=[position for _, position in ranked],
    )


def _reward(name: str, score: Score, *, trace: bool) -> Reward:
    return Reward(
        name=name, reward=score.reward, scores=dict(score.scores), status=score.status, reason=score.reason,
        truncated=score.truncated, prompt_tokens=score.prompt_tokens, completion_tokens=score.completion_tokens,
        steps=list(score.steps) or None, votes=list(score.votes) or None, trace=list(score.trace) if trace else None,
    )  # fmt: skip
