"""From requests to conversations, as an endpoint of `assay serve` is asked for their rewards."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from actors.contracts.served import Served
from actors.errors import Rejected
from actors.records import Message, Prompt, Reasoning, RenderedRequest, RenderedResponse, Response, Role, ScoreRequest
from actors.rendering.prompt_writer import check_encodable
from actors.settings.replica import RenderSettings
from actors.text.reasoning import without_reasoning
from actors.text.stems import CheckCancelled
from actors.text.tool_calls import as_messages


class ConversationRenderer:
    """Renders requests for one model: a request is a prompt, whose only text is the body of `/v1/rewards` about it."""

    def __init__(self, family: Served, settings: RenderSettings) -> None:
        self._family = family
        self._more = {} if settings.reasoning is None else {"reasoning": settings.reasoning.value}
        self._reasoning = family.reasoning_by(settings) or Reasoning.REJECT

    def render(
        self, requests: Sequence[ScoreRequest], check_cancelled: CheckCancelled = lambda: None
    ) -> list[RenderedRequest]:
        return [self._render(request) for request in requests]

    def _render(self, request: ScoreRequest) -> RenderedRequest:
        request = self._family.without_unread(request)
        reasoned = without_reasoning(request, request.reasoning or self._reasoning).reasoned
        names = [(response.name, position in reasoned) for position, response in enumerate(request.responses)]
        body = body_of(request, self._more)
        try:
            check_encodable(body)
        except Rejected as rejected:
            refused = [RenderedResponse(name, rejected.reason, detail=rejected.detail) for name, _ in names]
            return RenderedRequest(request.prompt_hash, tuple(refused), ())
        responses = tuple(RenderedResponse(name, reasoned=is_reasoned) for name, is_reasoned in names)
        prompt = Prompt((), tuple(range(len(names))), texts=(body,))
        return RenderedRequest(request.prompt_hash, responses, (prompt,))


def body_of(request: ScoreRequest, more: Mapping[str, Any] = MappingProxyType({})) -> str:
    """The body of `/v1/rewards` about a request, as JSON, without the model's name."""
    conversation = {
        "messages": as_messages(request.context),
        "tools": list(map(json.loads, request.tools)),
        "responses": [_as_response(response) for response in request.responses],
        "principles": list(request.principles),
        "fields": dict(request.fields),
    }
    return json.dumps({"conversations": [conversation], **more}, ensure_ascii=False)


def _as_response(response: Response) -> Any:
    (message,) = as_messages((Message(Role.ASSISTANT, response.content, response.calls),))
    return message if response.calls else response.content
