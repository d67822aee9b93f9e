"""OpenRLHF's remote reward model: `--reward.remote_url http://HOST:PORT/get_reward`.

Its client sends prompt and response as one text in the policy's chat template, with special tokens, and often one text at a
time. The texts are parsed back into messages, and then rendered in the reward model's own template.

In a batch, `null` stands for a missing reward, and `statuses` and `reasons` say why; OpenRLHF ignores keys that it doesn't
know. But it makes a tensor of the rewards, which can't hold null. So if no text of a request has a reward, as with each one
that fails alone, the answer is HTTP 422: its client retries, logs that, and has no reward either.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from actors.errors import Rejected
from actors.records import Message, Reason, Response, Score, ScoreRequest
from deploy.errors import ApiError, BadRequest
from deploy.models.work import off_loop
from deploy.wire.bodies import Listed, RequestBody, Serving
from deploy.wire.json_route import JsonRoute
from pipelines.data.formats.chat_templates import TEMPLATES, ParsedPrompt, split_by_any
from pipelines.data.formats.media import text_of_turn

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)

_NAMES = ", ".join(TEMPLATES)
FromTemplate = Annotated[str | None, Query(description=f"the policy's: {_NAMES}; if not given, the one that fits")]


class RemoteRequest(RequestBody):
    """As OpenRLHF sends it."""

    query: Listed[str]  # prompt and response
    prompts: Listed[str | None] | None = None
    labels: Any = None  # reference answers, which no reward model here uses


@router.post("/get_reward")
async def get_reward(
    body: RemoteRequest,
    service: Serving,
    from_template: FromTemplate = None,
    model: Annotated[str | None, Query(description="needed if there are several")] = None,
) -> dict[str, Any]:
    """Rewards of texts in the policy's chat template.

    Null for what can't be judged, with its status and reason; HTTP 422 if no text has a reward.
    """
    served = service.find(model)
    served.check_count(len(body.query))
    prompts = [None] * len(body.query) if body.prompts is None else body.prompts
    if len(prompts) != len(body.query):
        raise BadRequest(f"{len(body.query)} queries, and {len(prompts)} prompts: give one for each, or none", "prompts")
    texts = list(zip(body.query, prompts, strict=True))
    # A text that is in no template is refused with the whole request: it is a mistake of the setup, not of a response.
    parsed = await off_loop(
        lambda: [request_of(parse_text(f"query[{number}]", *text, from_template)) for number, text in enumerate(texts)]
    )
    requests = [request for request in parsed if isinstance(request, ScoreRequest)]
    results = iter(await served.score(requests) if requests else [])
    scores = [Score.rejected(request) if isinstance(request, Reason) else next(results).scores[0] for request in parsed]
    rewards = [score.reward for score in scores]
    reasons = [score.reason for score in scores]
    if rewards and all(reward is None for reward in rewards):
        distinct = ", ".join(sorted({str(reason) for reason in reasons}))
        raise ApiError(422, f"no query has a reward: {distinct}", code=reasons[0], param="query")
    return {
        "rewards": rewards,
        "scores": rewards,  # by which OpenRLHF filters prompts; the rewards train
        "extra_logs": _logs(scores),
        "statuses": [score.status for score in scores],
        "reasons": reasons,
    }


def parse_text(place: str, query: str, prompt: str | None, name: str | None) -> ParsedPrompt:
    """The messages of a text, in the template of this name or in the only one that fits.

    Raises `ApiError`, which names the text by its `place` in the request, such as `query[3]`.
    """
    if name is not None and name not in TEMPLATES:
        raise BadRequest(f"there is no template of that name; there are {_NAMES}", "from_template")
    parsed = split_by_any(query, prompt) if name is None else TEMPLATES[name].split(query, prompt)
    if parsed is None:
        problem = f"is not in the template {name}" if name else "is in none of the templates that are known"
        raise BadRequest(
            f"{place} {problem}, from its beginning to a response; there are {_NAMES}. Special tokens must be left in, "
            "and where a response may hold some of its own, `prompts` must say where it begins",
            place.partition("[")[0],
            "unknown_template",
        )
    return parsed


def request_of(parsed: ParsedPrompt) -> ScoreRequest | Reason:
    """The request for a parsed text, or the reason why it can't be scored.

    Its contents are checked as those of a row are: special tokens that are left in them reject it later, and the place of a
    picture or a sound here.
    """
    try:
        context = tuple(Message(turn.role, text_of_turn(turn.content)) for turn in parsed.context)
        response = Response("final", text_of_turn(parsed.response))
    except Rejected as rejected:
        return rejected.reason
    return ScoreRequest(context, (response,)) if context else Reason.NO_MESSAGES


def _logs(scores: list[Score]) -> dict[str, list[float]]:
    """The outputs that all scores have, by name. Empty if any score is missing: OpenRLHF makes tensors, without gaps."""
    if not scores or any(score.reward is None for score in scores):
        return {}
    # A tensor for each name, of all queries: an output that one response lacks, such as that of a third step, is left out.
    common = [name for name in scores[0].scores if all(name in score.scores for score in scores)]
    return {name: [score.scores[name] for score in scores] for name in common}
