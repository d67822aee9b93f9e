"""OpenRLHF's remote reward model: `--reward.remote_url http://HOST:PORT/get_reward`.

Its client sends what its policy has read and written, in the policy's chat template with special tokens, and often one text
at a time. The texts become messages again, and are then rendered as the reward model's authors did.

Where some of a batch have no reward, `null` stands for them, and `statuses` and `reasons` say why; OpenRLHF passes over keys
that it doesn't know. It would make a tensor of the rewards, though, and a tensor holds no null. So where none has a reward,
and that is each one that fails alone, the answer is HTTP 422: its client tries again, logs that, and has no reward either.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from actors.errors import Rejected
from actors.records import Message, Reason, Response, Score, ScoreRequest
from deploy.errors import ApiError, BadRequest
from deploy.models.policy_templates import TEMPLATES, ParsedPrompt, split_by_any
from deploy.models.work import off_loop
from deploy.wire.bodies import Listed, RequestBody, Serving
from deploy.wire.json_route import JsonRoute
from pipelines.formats.content import text

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)

_NAMES = ", ".join(TEMPLATES)


class RemoteRequest(RequestBody):
    """As OpenRLHF sends it."""

    query: Listed[str]
    """Prompt and response."""
    prompts: Listed[str | None] | None = None
    labels: Any = None
    """Reference answers, which no reward model here asks for."""


@router.post("/get_reward")
async def get_reward(
    body: RemoteRequest,
    service: Serving,
    from_template: Annotated[
        str | None, Query(description=f"the policy's: {_NAMES}; if not given, the one that fits")
    ] = None,
    model: Annotated[str | None, Query(description="needed if there are several")] = None,
) -> dict[str, Any]:
    """Rewards of texts in the policy's chat template."""
    served = service.find(model)
    served.check_count(len(body.query))
    prompts = [None] * len(body.query) if body.prompts is None else body.prompts
    if len(prompts) != len(body.query):
        raise BadRequest(f"{len(body.query)} queries, and {len(prompts)} prompts: give one for each, or none", "prompts")
    asked_for = list(zip(body.query, prompts, strict=True))
    requests = await off_loop(
        lambda: [_request(_talk(at, query, prompt, from_template)) for at, (query, prompt) in enumerate(asked_for)]
    )
    asked = [one for one in requests if isinstance(one, ScoreRequest)]
    judged = iter(await served.score(asked) if asked else [])
    scores = [Score.rejected(one) if isinstance(one, Reason) else next(judged).scores[0] for one in requests]
    rewards = [score.reward for score in scores]
    reasons = [score.reason for score in scores]
    if rewards and all(reward is None for reward in rewards):
        told = ", ".join(sorted({str(reason) for reason in reasons}))
        raise ApiError(422, f"no query has a reward: {told}", code=reasons[0], param="query")
    return {
        "rewards": rewards,
        "scores": rewards,
        "extra_logs": _logs(scores),
        "statuses": [score.status for score in scores],
        "reasons": reasons,
    }


def _talk(at: int, query: str, prompt: str | None, name: str | None) -> ParsedPrompt:
    if name is not None and name not in TEMPLATES:
        raise BadRequest(f"there is no template of that name; there are {_NAMES}", "from_template")
    talk = split_by_any(query, prompt) if name is None else TEMPLATES[name].split(query, prompt)
    if talk is None:
        looked = f"is not in the template {name}" if name else "is in none of the templates that are known"
        raise BadRequest(
            f"query[{at}] {looked}, from its beginning to a response; there are {_NAMES}. Special tokens must be left in, "
            "and where a response may hold some of its own, `prompts` must say where it begins",
            "query",
            "unknown_template",
        )
    return talk


def _request(talk: ParsedPrompt) -> ScoreRequest | Reason:
    """What is asked, or why nothing can be."""
    try:
        context = tuple(Message(turn.role, text(turn.content)) for turn in talk.context)
        response = Response("final", text(talk.response))
    except Rejected as rejected:
        return rejected.reason
    return ScoreRequest(context, (response,)) if context else Reason.NO_MESSAGES


def _logs(scores: list[Score]) -> dict[str, list[float]]:
    """The outputs that all have. Numbers alone, since OpenRLHF makes tensors of them: none if any has none."""
    if not scores or any(score.reward is None for score in scores):
        return {}
    common = [name for name in scores[0].scores if all(name in score.scores for score in scores)]
    return {name: [score.scores[name] for score in scores] for name in common}
