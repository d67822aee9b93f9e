"""NeMo-Gym's comparison of several responses by a GenRM: `POST /compare` of its `genrm_compare` server.

The rewards of a judge that grades and ranks are Gym's, and so not always those of the other routes: between equal grades the
ranking decides, and two responses are compared in both orders. Gym replaces a judge's text that it can't parse by the scores
3, 3 and the ranking 3.5, and makes a reward of that. Here such a response has none: its `reward` is null, its `mask` false,
and `reasons` says why. Any served model answers this route; `comparison_results` has the verdicts of a judge that is shown
two responses at a time, and is empty for others. Positions count from 0.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from statistics import fmean
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from actors.contracts.judge import Judge, Verdict
from actors.engine.protocol import Generation
from actors.errors import Rejected, Unreadable
from actors.models.genrm import EVEN
from actors.records import JudgeAnswer, Message, Reason, Response, Score, ScoreRequest, Status
from actors.settings.replica import Aggregate, Pairs
from actors.text.reasoning import with_reasoning
from deploy.errors import BadRequest
from deploy.models.service import ServedModel
from deploy.models.work import off_loop
from deploy.wire.bodies import Body, Listed, RequestBody, Serving, Tools, Turns
from deploy.wire.json_route import JsonRoute
from pipelines.data.formats.calls import read_tool
from pipelines.data.formats.content import conversation, refuse_answered, text
from pipelines.data.formats.values import is_blank

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)


class Responded(BaseModel):
    """An answer of OpenAI's Responses API, as a policy gave it. Of what else stands in it no reward depends."""

    model_config = ConfigDict(frozen=True, extra="allow")

    output: Listed[dict[str, Any]]


class CompareRequest(RequestBody):
    """Responses to one conversation."""

    conversation_history: Turns
    response_objs: Listed[Responded] = Field(min_length=1)
    principle: str | None = Field(default=None, description="what they are judged by, for models that go by principles")
    tools: Tools = Field(default=[], description="those that the assistant in `conversation_history` could call")
    model: str | None = Field(default=None, description="needed if there are several")


class Comparison(Body):
    """What a judge said of two responses, the first of which it was shown first. Null is what couldn't be read."""

    response_i: int
    response_j: int
    judge_idx: int
    score_1: float | None
    score_2: float | None
    ranking: float | None


class CompareResponse(Body):
    """In the order of the request."""

    rewards: list[float | None]
    comparison_results: list[Comparison]
    metrics: dict[str, float]
    mask: list[bool]
    reasons: list[str | None]
    mask_sample: list[bool] = Field(description="as in /verify: the opposite of `mask`")
    failure_kind: list[str | None] = Field(description="as in /verify")


@router.post("/compare")
async def compare(body: CompareRequest, service: Serving) -> CompareResponse:
    """Compare responses to one conversation."""
    served = service.find(body.model)
    served.check_count(len(body.response_objs))
    principles = () if is_blank(body.principle) else (body.principle or "",)
    if principles and not served.model.family.takes_principles:
        raise BadRequest(f"{served.name} doesn't go by principles", "principle")
    texts = await off_loop(lambda: [_text(response) for response in body.response_objs])
    # Responses without a readable text are left out of the comparison, and put back at their positions as rejected.
    shown = {
        position: Response(_name(position), content)
        for position, content in enumerate(texts)
        if not isinstance(content, Reason)
    }
    context, tools = await off_loop(lambda: _context(body))
    request = ScoreRequest(context, tuple(shown.values()), principles, tools=tools)
    by_name = await score_as_gym(served, request) if shown else {}
    scores = [
        Score.rejected(content) if isinstance(content, Reason) else by_name[_name(position)]
        for position, content in enumerate(texts)
    ]
    return CompareResponse(
        rewards=[score.reward for score in scores],
        comparison_results=sorted(
            _comparisons(served, {_name(position): score for position, score in enumerate(scores)}),
            key=lambda comparison: (comparison.judge_idx, comparison.response_i, comparison.response_j),
        ),
        metrics=_metrics(scores),
        mask=[score.reward is not None for score in scores],
        reasons=[score.reason for score in scores],
        mask_sample=[score.reward is None for score in scores],
        failure_kind=[score.reason and f"assay:{score.reason}" for score in scores],
    )


def _name(at: int) -> str:
    return f"response[{at}]"


def _context(body: CompareRequest) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The turns before the responses, and the tools."""
    try:
        context = refuse_answered(conversation([turn.fields for turn in body.conversation_history]))
        return context, tuple(map(read_tool, body.tools))
    except Rejected as rejected:
        message = f"the conversation can't be judged: {rejected.reason}"
        raise BadRequest(message, "conversation_history", rejected.reason) from None


def _text(responded: Responded) -> str | Reason:
    """The response's text: its reasoning items between marks, then all text parts of its messages; or why it has none.

    Gym drops the reasoning, as `reasoning: strip` does. A response that calls a tool is rejected, as in all other formats.
    """
    if any("_call" in str(item.get("type")) for item in responded.output):  # function_call, web_search_call, ...
        return Reason.TOOL_CALL
    messages = [item.get("content") for item in responded.output if item.get("type") == "message"]
    parts = [part for content in messages for part in (content if isinstance(content, list) else [content])]
    try:
        content = text([_part(part) for part in parts if not isinstance(part, dict) or part.get("type") == "output_text"])
        reasoning = "\n\n".join(_reasoning(item) for item in responded.output if item.get("type") == "reasoning")
        return with_reasoning(content, {"reasoning": reasoning})
    except Rejected as rejected:
        return rejected.reason


def _reasoning(item: Mapping[str, Any]) -> str:
    """The text of a reasoning item, or else its summary; empty if a model shows neither."""
    texts = ("".join(_texts(item.get(name))) for name in ("content", "summary"))
    return next(filter(str.strip, texts), "")


def _texts(parts: object) -> Iterator[str]:
    texts = (part.get("text") for part in (parts if isinstance(parts, list) else []) if isinstance(part, dict))
    return (string for string in texts if isinstance(string, str))


def _part(part: object) -> object:
    return part.get("text") if isinstance(part, dict) else part


async def score_as_gym(served: ServedModel, request: ScoreRequest) -> dict[str, Score]:
    """The score of each response, by its name, with Gym's reward."""
    if not _is_as_gyms(served):
        (result,) = await served.score([request])
        return {response.name: score for response, score in zip(request.responses, result.scores, strict=True)}
    judge = served.model.family
    assert isinstance(judge, Judge)
    orders = [request.responses]
    # Gym's circle is each response with the next: of two that is one pair in both orders, which `Judge` asks in one.
    if len(request.responses) == 2 and judge.asks.pairs is Pairs.CIRCULAR and judge.votes == 1:
        orders.append(request.responses[::-1])
    results = await served.score([replace(request, responses=responses) for responses in orders])
    by_name: dict[str, list[Score]] = defaultdict(list)
    for responses, result in zip(orders, results, strict=True):
        for response, score in zip(responses, result.scores, strict=True):
            by_name[response.name].append(score)
    return {name: _break_ties(served, name, _merge(scores)) for name, scores in by_name.items()}


def _is_as_gyms(served: ServedModel) -> bool:
    """Whether a judge grades and ranks two responses, and a reward is its mean grade: no settings say otherwise."""
    judge = served.model.family
    return (
        isinstance(judge, Judge)
        and "margin" in judge.text_outputs()
        and judge.asks.aggregate in (None, Aggregate.MEAN)
        and served.model.weights == judge.card_weights()
    )


def _merge(scores: Sequence[Score]) -> Score:
    """The score of a response by all orders, each of which counts alike; without a reward if it lacks one in any."""
    trace = tuple(chain.from_iterable(score.trace for score in scores))
    rewards = [score.reward for score in scores if score.reward is not None]
    if len(rewards) < len(scores):
        return replace(next(score for score in scores if score.reward is None), trace=trace)
    return replace(scores[0], reward=fmean(rewards), trace=trace)


def _break_ties(served: ServedModel, name: str, score: Score) -> Score:
    """The score with Gym's reward: to equal grades in a comparison, the margin by the ranking is added."""
    margins: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for answer in score.trace:
        if answer.reason is None:
            margins[answer.shown, answer.principle].append(_tie_break(served, answer, name))
    if score.reward is None or not margins:
        return score
    # All prompts count alike, as they do in the mean of the grades (`Judge.readings`), which this is added to.
    return replace(score, reward=score.reward + fmean(map(fmean, margins.values())))


def _tie_break(served: ServedModel, answer: JudgeAnswer, name: str) -> float:
    verdict = _verdict(served, answer)
    if verdict is None or len({outputs["score"] for outputs in verdict.scores}) > 1:
        return 0.0
    return verdict.scores[answer.shown.index(name)]["margin"]


def _comparisons(served: ServedModel, scores: Mapping[str, Score]) -> Iterator[Comparison]:
    """A comparison for each vote about each pair of responses, in each order that was shown.

    Both responses of a pair have the judge's text in their traces, in the same order, so votes are matched by position. One
    of them may lack it, when it was rejected; the other's is used then.
    """
    positions = {name: index for index, name in enumerate(scores)}
    pairs = (answer.shown for score in scores.values() for answer in score.trace if len(answer.shown) == 2)
    for pair in dict.fromkeys(pairs):
        first, second = (_votes(served, scores[name], pair) for name in pair)
        for vote in range(max(len(first), len(second))):
            of_first, of_second = (votes[vote] if votes else None for votes in (first, second))
            yield Comparison(
                response_i=positions[pair[0]],
                response_j=positions[pair[1]],
                judge_idx=vote,
                score_1=of_first and of_first.vote,
                score_2=of_second and of_second.vote,
                ranking=_ranking(served, of_first or of_second),
            )


def _votes(served: ServedModel, score: Score, pair: tuple[str, ...]) -> list[JudgeAnswer]:
    """The last attempt of each vote about two responses in this order; none for a response that was rejected."""
    about = [answer for answer in score.trace if answer.shown == pair]
    # By principle, since each starts a new series of votes and attempts.
    return [
        vote
        for _, attempts in groupby(about, key=lambda answer: answer.principle)
        for vote in _last_attempts(served, attempts)
    ]


def _last_attempts(served: ServedModel, attempts: Iterable[JudgeAnswer]) -> Iterator[JudgeAnswer]:
    """The attempt that ended each vote. A trace has all attempts of all votes in a row, without a mark between votes.

    A vote ends as the judge's scorer ends it: with a readable text, with an engine's failure (no finish reason), or after
    1 + `reask` attempts.
    """
    attempts_of_vote = 0
    for attempt in attempts:
        attempts_of_vote += 1
        if attempt.reason is None or attempt.finish_reason is None or attempts_of_vote > served.model.judge.reask:
            yield attempt
            attempts_of_vote = 0


def _ranking(served: ServedModel, answer: JudgeAnswer | None) -> float | None:
    """Gym's ranking, from 1 (the first is much better) to 6 (the second is); None if the judge gives no margin."""
    verdict = None if answer is None else _verdict(served, answer)
    return None if verdict is None else EVEN - verdict.scores[0]["margin"]


def _verdict(served: ServedModel, answer: JudgeAnswer) -> Verdict | None:
    """The verdict in a text about two responses; None if it couldn't be read, or the judge gives no margin."""
    judge = served.model.family
    if answer.reason is not None or not isinstance(judge, Judge) or "margin" not in judge.text_outputs():
        return None
    if len(answer.shown) != 2:
        return None
    try:
        return judge.verdict(Generation(answer.text, (), answer.finish_reason, (), 0, 0), len(answer.shown))
    except Unreadable:  # on the fake engine, whose verdicts don't come from its texts
        return None


def _metrics(scores: list[Score]) -> dict[str, float]:
    """Numbers alone: a metric without a value, such as the mean of no rewards, is left out."""
    rewards = [score.reward for score in scores if score.reward is not None]
    by_status = {status.value: sum(score.status is status for score in scores) for status in Status}
    metrics = {name: float(count) for name, count in {"responses": len(scores), **by_status}.items()}
    if rewards:
        metrics["mean_reward"] = sum(rewards) / len(rewards)
    if answers := [answer for score in scores for answer in score.trace]:
        metrics["unreadable"] = sum(answer.reason is not None for answer in answers) / len(answers)
    return metrics
