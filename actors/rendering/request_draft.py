"""A request while it is being rendered: the prompts so far, and why responses have none."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from actors.contracts.family import CRITERIA, Family, Question
from actors.errors import Rejected
from actors.records import Message, Prompt, Reason, Reasoning, RenderedRequest, RenderedResponse, Role, ScoreRequest
from actors.text.reasoning import without_reasoning
from actors.text.tool_calls import call_texts

MOST_PROMPTS = 65_536
"""The largest number of prompts for one row or conversation; with more it is rejected before the first is rendered."""


class RequestDraft:
    """A request while it is being rendered: the prompts so far, and why responses have none.

    If the family judges responses together, one is judged if any prompt that shows it can be used; otherwise all of them
    must be usable.
    """

    def __init__(self, request: ScoreRequest, family: Family, reasoning: Reasoning, system: str | None = None) -> None:
        """`reasoning` is for a request that doesn't say it; `system` is put before a conversation without a system turn."""
        request = family.without_unread(request)  # else rows that differ in that alone would have different prompt hashes
        how = request.reasoning or reasoning
        handled = without_reasoning(request, how)
        self.request = _after_system(handled.request, system)
        self.keeps_reasoning = how is Reasoning.KEEP
        # Turns of the context that the last response kept for which turns had to be dropped; None while there is none.
        self.turns_left: int | None = None
        self._family = family
        self._original = request
        self._reasoned = handled.reasoned
        self._reasons: dict[int, tuple[Reason, str]] = {}
        self._truncated: set[int] = set()
        self._unusable: set[tuple[int, ...]] = set()
        self._prompts: list[Prompt] = []
        for position in handled.refused:
            self.reject((position,), Rejected(Reason.REASONING))

    def questions(self, check: Callable[[str], object]) -> Sequence[Question]:
        """The family's questions. A response whose text `check` refuses by `Rejected` isn't shown beside others."""
        count = len(self.request.responses)
        if self._family.question_count(self.request) > MOST_PROMPTS:
            for position in range(count):
                self.reject((position,), Rejected(Reason.TOO_MANY_PROMPTS))
            return ()
        for position, response in enumerate(self.request.responses):
            try:
                if self._family.together and position not in self._reasons:
                    for text in (response.content, *call_texts(response.calls)):
                        check(text)
            except Rejected as rejected:
                self.reject((position,), rejected)
        return self._family.questions(self.request, [index for index in range(count) if index not in self._reasons])

    def reject(self, positions: Sequence[int], rejected: Rejected) -> None:
        """Reject responses that are shown together: with any principle, and in any order."""
        self._unusable.add(tuple(sorted(positions)))
        for position in positions:
            self._reasons.setdefault(position, (rejected.reason, rejected.detail))

    def add_prompt(
        self,
        question: Question,
        ids: Sequence[int],
        at: tuple[int, ...],
        opening: str,
        is_truncated: bool,
        *,
        texts: tuple[str, ...] = (),
    ) -> None:
        """Add a prompt that is read at the positions `at` of its ids; `is_truncated`: it doesn't show all of the context."""
        criteria = question.fields.get(CRITERIA)
        positions, times = question.response_positions, question.times
        self._prompts.append(Prompt(ids, positions, at, times, opening, question.principle, criteria=criteria, texts=texts))
        if is_truncated:
            self._truncated.update(question.response_positions)

    def finish(self) -> RenderedRequest:
        reasons, kept = self._reasons, self._prompts
        if self._family.together:
            # One order of a pair alone would favour whoever it shows first, so a pair goes as soon as one of its prompts
            # couldn't be used. A response is only rejected if no pair (or list) with it is left.
            kept = [prompt for prompt in kept if tuple(sorted(prompt.response_positions)) not in self._unusable]
            shown_positions = {position for prompt in kept for position in prompt.response_positions}
            unjudged = [position for position in range(len(self.request.responses)) if position not in shown_positions]
            reasons = {position: reasons.get(position, (Reason.NO_OPPONENT, "")) for position in unjudged}
        responses = []
        for position, response in enumerate(self.request.responses):
            reason, detail = reasons.get(position, (None, ""))
            is_truncated = position in self._truncated and reason is None
            responses.append(RenderedResponse(response.name, reason, is_truncated, position in self._reasoned, detail))
        # A prompt all of whose responses were rejected by another one (with another principle, say) isn't generated for.
        prompts = tuple(prompt for prompt in kept if any(position not in reasons for position in prompt.response_positions))
        # The hash is that of the context before reasoning was removed: the settings for it don't make it another prompt.
        return RenderedRequest(self._original.prompt_hash, tuple(responses), prompts)


def _after_system(request: ScoreRequest, system: str | None) -> ScoreRequest:
    context = request.context
    if system is None or (context and context[0].role is Role.SYSTEM):
        return request
    return replace(request, context=(Message(Role.SYSTEM, system), *context))
