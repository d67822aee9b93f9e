"""NeMo-Gym's comparison of several responses by a GenRM: `POST /compare` of its `genrm_compare` server.

The rewards of a judge that grades and ranks are Gym's, and so not always those of the other routes: between equal grades the
ranking decides, and two responses are compared in both orders. Gym replaces a judge's text that it can't parse by the scores
3, 3 and the ranking 3.5, and makes a reward of that. Here such a response has none: its `reward` is null, its `mask` false,
and `reasons` says why. Any served model answers this route. Of Gym's answer the optional `comparison_results` and `metrics`
are left out; `trace` of `/v1/rewards` has the texts of a judge.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from actors.contracts.judge import Judge
from actors.engine.protocol import Generation
from actors.errors import Rejected, Unreadable
from actors.records import JudgeAnswer, Reason, Role, Score, ScoreRequest
from actors.settings.replica import Aggregate, Pairs
from deploy.errors import BadRequest
from deploy.models.cohorts import Member
from deploy.models.service import ServedModel
from deploy.models.work import off_loop
from deploy.wire.bodies import Body, Listed, RequestBody, Serving, Tools, Turns
from deploy.wire.json_route import JsonRoute
from pipelines.data.formats import SHAPES
from pipelines.data.formats.values import is_blank

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)

_READ = SHAPES["gym-rollout"].read


class Responded(BaseModel):
    """An answer of OpenAI's Responses API, as a policy gave it. Of what else stands in it no reward depends."""

    model_config = ConfigDict(frozen=True, extra="allow")

    output: Listed[dict[str, Any]]


class CompareRequest(RequestBody):
    """Responses to one conversation, which ends before them."""

    conversation_history: Turns
    response_objs: Listed[Responded] = Field(min_length=1)
    principle: str | None = Field(default=None, description="what they are judged by, for models that go by principles")
    tools: Tools = Field(default=[], description="those that the assistant in `conversation_history` could call")
    model: str | None = Field(default=None, description="needed if there are several")


class CompareResponse(Body):
    """An entry of each list for each response, in the order of the request.

    `mask` is true where there is a reward; `mask_sample` and `failure_kind` say the opposite in the words of `/verify`.
    """

    rewards: list[float | None]
    mask: list[bool]
    reasons: list[str | None]
    mask_sample: list[bool] = Field(description="as in /verify: the opposite of `mask`")
    failure_kind: list[str | None] = Field(description="as in /verify")


@router.post("/compare")
async def compare(body: CompareRequest, service: Serving) -> CompareResponse:
    """Compare responses to one conversation.

    A response that can't be read is left out of the comparison, and has its reason; the others are judged without it.
    """
    served = service.find(body.model)
    served.check_count(len(body.response_objs))
    principles = () if body.principle is None or is_blank(body.principle) else (body.principle,)
    if principles and not served.model.family.takes_principles:
        raise BadRequest(f"{served.name} doesn't go by principles", "principle")
    members = await off_loop(lambda: _read(body, principles))
    scores = await judge_together(served, members)
    return CompareResponse(
        rewards=[score.reward for score in scores],
        mask=[score.reward is not None for score in scores],
        reasons=[score.reason for score in scores],
        mask_sample=[score.reward is None for score in scores],
        failure_kind=[score.reason and f"assay:{score.reason}" for score in scores],
    )


def _read(body: CompareRequest, principles: tuple[str, ...]) -> list[Member]:
    # The conversation once, with an answer in place of all: read with each of 1,000 responses it could take minutes. These
    # then follow a question in place of it.
    prompt = {"input": [turn.fields for turn in body.conversation_history], "tools": body.tools}
    common = read_rollout(prompt, {"output": [{"role": Role.ASSISTANT.value, "content": "-"}]}, principles)
    if isinstance(common, Reason):
        return [common] * len(body.response_objs)
    # A message of an answer is the assistant's, also where nothing says so.
    outputs = (
        [{"role": Role.ASSISTANT.value, **item} if item.get("type") == "message" else item for item in response.output]
        for response in body.response_objs
    )
    members = [read_rollout({"input": "-"}, {"output": output}, principles) for output in outputs]
    return [
        member
        if isinstance(member, Reason)
        else replace(common, context=common.context + member.context[1:], responses=member.responses)
        for member in members
    ]


def read_rollout(
    prompt: Mapping[str, Any],
    response: Mapping[str, Any],
    principles: tuple[str, ...],
    fields: Mapping[str, str] | None = None,
) -> Member:
    """The request for the last turn of a rollout, read as `assay score` reads a file of them, or why it can't be judged.

    `prompt` and `response` are a request of OpenAI's Responses and its answer.
    """
    try:
        rollout = _READ({"responses_create_params": prompt, "response": response})
    except Rejected as rejected:
        return rejected.reason
    if rollout.rejected:
        return rollout.rejected[0].reason
    (request,) = rollout.requests
    return replace(request, principles=principles, fields=fields or {})


async def judge_together(served: ServedModel, members: Sequence[Member]) -> list[Score]:
    """The scores of responses to one prompt, with Gym's rewards, in their order. Raises `ApiError`.

    A member that is a reason is rejected with it, and the others are judged without it.
    """
    answered = {position: member for position, member in enumerate(members) if isinstance(member, ScoreRequest)}
    contexts = [replace(request, responses=()) for request in answered.values()]
    if any(context != contexts[0] for context in contexts):
        if not served.model.family.together:  # each has its reward by itself
            results = iter(await served.score(list(answered.values())))
            return [Score.rejected(member) if isinstance(member, Reason) else next(results).scores[0] for member in members]
        why = "the rollouts of its prompt went on differently before their last turns, so these answer several conversations"
        return [Score.rejected(Reason.NO_OPPONENT, why) for _ in members]
    responses = tuple(replace(request.responses[0], name=_name(position)) for position, request in answered.items())
    by_name = await _score_as_gym(served, replace(contexts[0], responses=responses)) if contexts else {}
    return [
        Score.rejected(member) if isinstance(member, Reason) else by_name[_name(position)]
        for position, member in enumerate(members)
    ]


def _name(position: int) -> str:
    return f"response[{position}]"


async def _score_as_gym(served: ServedModel, request: ScoreRequest) -> dict[str, Score]:
    """The score of each response, by its name, with Gym's reward."""
    judge = served.model.family
    # Gym's is the mean grade of a judge that also ranks. With weights or an aggregate of the user's, theirs is meant.
    if not (
        isinstance(judge, Judge)
        and "margin" in judge.text_outputs()
        and judge.asks.aggregate in (None, Aggregate.MEAN)
        and served.model.weights == judge.card_weights()
    ):
        (result,) = await served.score([request])
        return {response.name: score for response, score in zip(request.responses, result.scores, strict=True)}
    orders = [request.responses]
    # Gym's circle is each response with the next: of two that is one pair in both orders, which `Judge` asks in one.
    if len(request.responses) == 2 and judge.pairs is Pairs.CIRCULAR and judge.votes == 1:
        orders.append(request.responses[::-1])
    results = await served.score([replace(request, responses=responses) for responses in orders])
    by_name: dict[str, list[Score]] = defaultdict(list)
    for responses, result in zip(orders, results, strict=True):
        for response, score in zip(responses, result.scores, strict=True):
            by_name[response.name].append(score)
    return {name: _break_ties(judge, name, _merge(scores)) for name, scores in by_name.items()}


def _merge(scores: Sequence[Score]) -> Score:
    """The score of a response by all orders, each of which counts alike; without a reward if it lacks one in any."""
    trace = tuple(chain.from_iterable(score.trace for score in scores))
    rewards = [score.reward for score in scores if score.reward is not None]
    if len(rewards) < len(scores):
        return replace(next(score for score in scores if score.reward is None), trace=trace)
    return replace(scores[0], reward=fmean(rewards), trace=trace)


def _break_ties(judge: Judge, name: str, score: Score) -> Score:
    """The score with Gym's reward: to equal grades in a comparison, the margin by the ranking is added."""
    margins: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for answer in score.trace:
        if answer.reason is None:
            margins[answer.shown, answer.principle].append(_tie_break(judge, answer, name))
    if score.reward is None or not margins:
        return score
    # All prompts count alike, as they do in the mean of the grades (`Judge.readings`), which this is added to.
    return replace(score, reward=score.reward + fmean(map(fmean, margins.values())))


def _tie_break(judge: Judge, answer: JudgeAnswer, name: str) -> float:
    """Gym's 3.5 less the ranking for the first of a pair, and the opposite for the second, where their grades are equal."""
    if len(answer.shown) != 2:  # one was rejected, and the other graded alone: nothing to rank it by
        return 0.0
    try:
        verdict = judge.verdict(Generation(answer.text, (), answer.finish_reason, (), 0, 0), 2)
    except Unreadable:  # on the fake engine, whose verdicts don't come from its texts
        return 0.0
    if len({outputs["score"] for outputs in verdict.scores}) > 1:
        return 0.0
    return verdict.scores[answer.shown.index(name)]["margin"]
