"""NeMo-Gym's comparison of several responses by a GenRM: `POST /compare` of its `genrm_compare` server.

Gym makes 3, 3 and 3.5 of a text that it can't read, and a reward of that. Here such a response has none: its `reward` is
null, its `mask` false, and its reason stands beside. Any model that is served can be asked so; `comparison_results` has what
a judge said of two responses at a time, and is empty for others. Positions count from 0.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from actors.contracts.judge import Judge
from actors.engine.protocol import Generation
from actors.errors import Rejected, Unreadable
from actors.models.genrm_boxed import EVEN
from actors.records import JudgeAnswer, Message, Reason, Response, Score, ScoreRequest, Status
from actors.text.reasoning import with_reasoning
from deploy.errors import BadRequest
from deploy.models.service import ServedModel
from deploy.models.work import off_loop
from deploy.wire.bodies import Body, Listed, RequestBody, Serving, Turns
from deploy.wire.json_route import JsonRoute
from pipelines.formats.content import conversation, is_blank, refuse_answered, text

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


@router.post("/compare")
async def compare(body: CompareRequest, service: Serving) -> CompareResponse:
    """Compare responses to one conversation."""
    served = service.find(body.model)
    served.check_count(len(body.response_objs))
    principles = () if is_blank(body.principle) else (body.principle or "",)
    if principles and not served.model.family.takes_principles:
        raise BadRequest(f"{served.name} doesn't go by principles", "principle")
    texts = await off_loop(lambda: [_text(one) for one in body.response_objs])
    shown = {at: Response(_name(at), one) for at, one in enumerate(texts) if not isinstance(one, Reason)}
    context = await off_loop(lambda: _context(body.conversation_history))
    request = ScoreRequest(context, tuple(shown.values()), principles)
    judged = (await served.score([request]))[0].scores if shown else ()
    by_position = dict(zip(shown, judged, strict=True))
    scores = [Score.rejected(one) if isinstance(one, Reason) else by_position[at] for at, one in enumerate(texts)]
    return CompareResponse(
        rewards=[score.reward for score in scores],
        comparison_results=sorted(
            _comparisons(served, {_name(at): score for at, score in enumerate(scores)}),
            key=lambda one: (one.judge_idx, one.response_i, one.response_j),
        ),
        metrics=_metrics(scores),
        mask=[score.reward is not None for score in scores],
        reasons=[score.reason for score in scores],
    )


def _name(at: int) -> str:
    return f"response[{at}]"


def _context(turns: Turns) -> tuple[Message, ...]:
    try:
        return refuse_answered(conversation([turn.model_dump() for turn in turns]))
    except Rejected as rejected:
        told = f"the conversation can't be judged: {rejected.reason}"
        raise BadRequest(told, "conversation_history", rejected.reason) from None


def _text(responded: Responded) -> str | Reason:
    """All parts of its messages, end to end, after the reasoning that stands in items of its own, between marks.

    Gym drops the reasoning, which is what `--reasoning strip` does. An answer that calls a tool is judged nowhere.
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
    """The reasoning itself, or else its summary; empty where a model shows none of it."""
    texts = ("".join(_texts(item.get(name))) for name in ("content", "summary"))
    return next(filter(str.strip, texts), "")


def _texts(parts: object) -> Iterator[str]:
    texts = (part.get("text") for part in (parts if isinstance(parts, list) else []) if isinstance(part, dict))
    return (string for string in texts if isinstance(string, str))


def _part(part: object) -> object:
    return part.get("text") if isinstance(part, dict) else part


def _comparisons(served: ServedModel, scores: Mapping[str, Score]) -> Iterator[Comparison]:
    """One for each vote. The traces of two responses have the same texts about both, in the same order."""
    positions = {name: at for at, name in enumerate(scores)}
    for pair in dict.fromkeys(said.shown for score in scores.values() for said in score.trace if len(said.shown) == 2):
        first, second = (_votes(served, scores[name], pair) for name in pair)
        for vote in range(max(len(first), len(second))):
            one, other = (votes[vote] if votes else None for votes in (first, second))
            yield Comparison(
                response_i=positions[pair[0]],
                response_j=positions[pair[1]],
                judge_idx=vote,
                score_1=one and one.vote,
                score_2=other and other.vote,
                ranking=_ranking(served, one or other),
            )


def _votes(served: ServedModel, score: Score, pair: tuple[str, ...]) -> list[JudgeAnswer]:
    """The last attempt of each vote about two responses in this order; a response that was rejected has none."""
    about = [said for said in score.trace if said.shown == pair]
    return [vote for _, own in groupby(about, key=lambda said: said.principle) for vote in _last_attempts(served, own)]


def _last_attempts(served: ServedModel, attempts: Iterable[JudgeAnswer]) -> Iterator[JudgeAnswer]:
    """As the judge was asked: again until a text could be read, as often as the settings say."""
    tried = 0
    for said in attempts:
        tried += 1
        if said.reason is None or said.finish_reason is None or tried > served.model.judge.reask:
            yield said
            tried = 0


def _ranking(served: ServedModel, said: JudgeAnswer | None) -> float | None:
    """From 1, the first is much better, to 6, where the judge ranks."""
    judge = served.model.family
    if said is None or said.reason is not None or not isinstance(judge, Judge) or "margin" not in judge.own_outputs():
        return None
    try:
        verdict = judge.verdict(Generation(said.text, (), said.finish_reason, (), 0, 0), len(said.shown))
    except Unreadable:  # in a rehearsal, whose verdicts are made up
        return None
    return EVEN - verdict.scores[0]["margin"]


def _metrics(scores: list[Score]) -> dict[str, float]:
    """Numbers alone: what can't be had, as the mean of no rewards, isn't there."""
    rewards = [score.reward for score in scores if score.reward is not None]
    found = {"responses": len(scores), **{status.value: sum(one.status is status for one in scores) for status in Status}}
    metrics = {name: float(count) for name, count in found.items()}
    if rewards:
        metrics["mean_reward"] = sum(rewards) / len(rewards)
    if said := [one for score in scores for one in score.trace]:
        metrics["unreadable"] = sum(one.reason is not None for one in said) / len(said)
    return metrics
