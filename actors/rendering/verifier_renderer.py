"""From requests to the texts that a verifier compares: what `Renderer` is for models that read tokens."""

from collections.abc import Sequence

from actors.contracts.verifier import Verifier
from actors.errors import Rejected
from actors.records import Reason, Reasoning, RenderedRequest, ScoreRequest
from actors.rendering.prompt_writer import check_encodable
from actors.rendering.request_draft import RequestDraft
from actors.settings.replica import RenderSettings
from actors.text.stems import CheckCancelled


class VerifierRenderer:
    """Renders requests for one verifier. It needs no tokenizer."""

    def __init__(self, verifier: Verifier, settings: RenderSettings) -> None:
        self._verifier = verifier
        self._reasoning = verifier.reasoning_by(settings) or Reasoning.REJECT

    def render(
        self, requests: Sequence[ScoreRequest], check_cancelled: CheckCancelled = lambda: None
    ) -> list[RenderedRequest]:
        return [self._render(request, check_cancelled) for request in requests]

    def _render(self, request: ScoreRequest, check_cancelled: CheckCancelled) -> RenderedRequest:
        draft = RequestDraft(request, self._verifier, self._reasoning, None)
        for question in draft.questions(lambda text: None):
            check_cancelled()
            (position,) = question.response_positions
            try:
                if draft.request.responses[position].calls:
                    raise Rejected(Reason.TOOL_CALL, "code compares texts alone")
                texts = tuple(map(check_encodable, self._verifier.texts(draft.request, position)))
            except Rejected as rejected:
                draft.reject((position,), rejected)
            else:
                draft.add_prompt(question, (), (), "", False, texts=texts)
        return draft.finish()
