"""slime's remote reward model: `--rm-type remote_rm --rm-url http://HOST:PORT/rm`.

Its client (`slime/rollout/rm_hub/__init__.py`) posts a sample's prompt, response and label, and takes the whole body of the
answer for the reward: so that is a bare number, or an error, after which it asks again, ten times, and then raises.
"""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from actors.contracts.family import REFERENCE
from actors.errors import Rejected
from actors.records import Reason, ScoreRequest
from deploy.api.get_reward import FromTemplate, parse_text, request_of
from deploy.errors import no_score_error, reward_of
from deploy.models.work import off_loop
from deploy.wire.bodies import ChatMessage, Listed, RequestBody, Serving, read_score_request
from deploy.wire.json_route import JsonRoute
from pipelines.data.formats.own_columns import field_text
from pipelines.data.formats.values import is_blank

router = APIRouter(tags=["peers' formats"], route_class=JsonRoute)


class RmRequest(RequestBody):
    """As slime sends it."""

    prompt: str | Listed[ChatMessage] = Field(description="messages, or text in the policy's chat template")
    response: str
    label: Any = Field(default=None, description="the right answer, for models that compare with one")


@router.post("/rm")
async def rm(
    body: RmRequest,
    service: Serving,
    from_template: FromTemplate = None,
    model: Annotated[str | None, Query(description="needed if there are several")] = None,
) -> float:
    """The reward of a response, as a bare number.

    An error for what has none: slime would train on any number in its place.
    """
    served = service.find(model)
    request = await off_loop(lambda: _request(body, from_template, REFERENCE in served.model.family.field_names))
    if isinstance(request, Reason):
        raise no_score_error(request, "response")
    (result,) = await served.score([request])
    return reward_of(result.scores[0], "response")


def _request(body: RmRequest, template: str | None, takes_reference: bool) -> ScoreRequest | Reason:
    """The request for a sample, or the reason why it can't be scored. Raises `ApiError`."""
    try:
        if isinstance(body.prompt, str):
            # The prompt ends with the generation prompt: only with the response is it a whole text of the template.
            request = request_of(parse_text("prompt", body.prompt + body.response, body.prompt, template))
        else:
            request = read_score_request([*body.prompt, ChatMessage(role="assistant", content=body.response)])
        # slime sends the data set's label to any reward model: one that needs no reference isn't refused for it.
        if isinstance(request, Reason) or is_blank(body.label) or not takes_reference:
            return request
        return replace(request, fields={REFERENCE: field_text(REFERENCE, body.label, "label")})
    except Rejected as rejected:
        return rejected.reason
