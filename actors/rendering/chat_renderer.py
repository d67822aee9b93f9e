"""Renders requests for a judge behind an endpoint of chat completions: messages in place of token ids.

The endpoint has the chat template and the tokenizer. So the family is asked for the messages that it would give to the
template, and the endpoint is trusted to print them all. Of what `Renderer` checks, length and the template's control tokens
in a row's text can't be checked here; the delimiters of the judge's prompt can, and are.
"""

import json
from collections.abc import Sequence
from typing import Any

from actors.contracts.family import Question
from actors.contracts.judge import Judge
from actors.errors import Rejected
from actors.records import Message, Reason, Reasoning, RenderedRequest, Role, ScoreRequest
from actors.rendering.prompt_writer import check_encodable
from actors.rendering.request_draft import RequestDraft
from actors.rendering.shown_texts import ShownTurns, check_shown, other_question, shown_by_family
from actors.rendering.template_probe import probed_delimiters
from actors.rendering.text_safety import CheckedTexts
from actors.settings.replica import RenderSettings
from actors.text.delimiters import Delimiters
from actors.text.stems import CheckCancelled
from actors.text.tool_calls import as_messages

_ROLES = frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT})
_CALLS = "a judge behind an endpoint is asked by plain messages, but for a rubric's"
_END = "\n"


class ChatRenderer:
    """Renders requests for one judge. The ids of its prompts are the bytes of the messages as JSON."""

    def __init__(self, judge: Judge, settings: RenderSettings) -> None:
        self._judge = judge
        self._reasoning = judge.reasoning_by(settings) or Reasoning.REJECT
        self._system = settings.system
        self._turns = shown_by_family(judge) or ShownTurns(_ROLES, calls=_CALLS, tools=_CALLS)
        self._delimiters = Delimiters({*judge.delimiters, *probed_delimiters(judge, _Messages(), (_END,))})

    def render(
        self, requests: Sequence[ScoreRequest], check_cancelled: CheckCancelled = lambda: None
    ) -> list[RenderedRequest]:
        return [self._render(request, check_cancelled) for request in requests]

    def _render(self, request: ScoreRequest, check_cancelled: CheckCancelled) -> RenderedRequest:
        draft = RequestDraft(request, self._judge, self._reasoning, self._system)
        checked = CheckedTexts(self._turns, self._check, self._check_answer)
        for question in draft.questions(checked.check_answer):
            check_cancelled()
            try:
                checked.check(question)
                messages = check_encodable(json.dumps(_messages(self._judge, question), ensure_ascii=False))
                draft.add_prompt(question, tuple(messages.encode()), (), "", is_truncated=False)
            except Rejected as rejected:
                draft.reject(question.response_positions, rejected)
        return draft.finish()

    def _check(self, text: str) -> None:
        if self._delimiters.are_in(text):
            raise Rejected(Reason.CONTROL_TOKEN, "a delimiter of the judge's prompt")

    def _check_answer(self, text: str) -> None:
        self._check(text)
        check_encodable(text)  # of each response by itself, since others may be shown beside it


class _Messages:
    # A `ChatTemplate` that records the messages it is given.
    def __init__(self) -> None:
        self.rendered: list[tuple[Message, ...]] = []

    def __call__(self, messages: Sequence[Message], *, generation_prompt: bool = False, **variables: Any) -> str:
        self.rendered.append(tuple(messages))
        return "".join(f"{_END}{message.content}{_END}" for message in messages)


def _messages(judge: Judge, question: Question) -> list[dict[str, Any]]:
    template = _Messages()
    other = other_question(judge, question)
    text, other_text = judge.text(question, template), judge.text(other, _Messages())
    check_shown(text, judge.shown(question), other_text, judge.shown(other))
    (messages,) = template.rendered
    return as_messages(messages)
