"""A request while it is being rendered: the prompts so far, and why responses have none."""

from collections.abc import Callable, Sequence

from actors.contracts.family import Question
from actors.errors import Rejected
from actors.records import Prompt, Reason, RenderedRequest, RenderedResponse, ScoreRequest
from actors.text.reasoning import HandledReasoning


class RequestDraft:
    """A request while it is being rendered: the prompts so far, and why responses have none."""

    def __init__(self, request: ScoreRequest, handled: HandledReasoning, together: bool) -> None:
        """`together`: a response is judged if any prompt that shows it can be used; otherwise all of them must be usable."""
        self.request = handled.request
        self.together = together
        self.turns_left: int | None = None
        """Turns of the context that the last response kept for which turns had to be dropped; None while there is none."""
        self._original = request
        self._handled = handled
        self._reasons: dict[int, Reason] = {}
        self._truncated: set[int] = set()
        self._unusable: set[tuple[int, ...]] = set()
        self._prompts: list[Prompt] = []
        for position in handled.refused:
            self.reject((position,), Reason.REASONING)

    def find_showable(self, check: Callable[[str], object]) -> list[int]:
        """The positions of the responses that can be shown: one whose text `check` refuses isn't shown beside others."""
        for position, response in enumerate(self.request.responses):
            try:
                if self.together and position not in self._reasons:
                    check(response.content)
            except Rejected as rejected:
                self.reject((position,), rejected.reason)
        return [position for position in range(len(self.request.responses)) if position not in self._reasons]

    def reject(self, positions: Sequence[int], reason: Reason) -> None:
        """Reject responses that are shown together: with any principle, and in any order."""
        self._unusable.add(tuple(sorted(positions)))
        for position in positions:
            self._reasons.setdefault(position, reason)

    def add_prompt(
        self, question: Question, ids: Sequence[int], at: tuple[int, ...], opening: str, is_truncated: bool
    ) -> None:
        """Add a prompt that is read at the positions `at` of its ids; `is_truncated`: it doesn't show all of the context."""
        self._prompts.append(Prompt(ids, question.judges, at, question.times, opening, question.principle))
        if is_truncated:
            self._truncated.update(question.judges)

    def finish(self) -> RenderedRequest:
        """Settle which responses are judged, by which prompts."""
        reasons, kept = self._reasons, self._prompts
        if self.together:
            # One order of a pair alone would favour whoever it shows first, so a pair goes as soon as one of its prompts
            # couldn't be used. A response is only rejected if no pair (or list) with it is left.
            kept = [prompt for prompt in kept if tuple(sorted(prompt.judges)) not in self._unusable]
            shown_positions = {position for prompt in kept for position in prompt.judges}
            unjudged = [position for position in range(len(self.request.responses)) if position not in shown_positions]
            reasons = {position: reasons.get(position, Reason.NO_OPPONENT) for position in unjudged}
        responses = tuple(
            RenderedResponse(
                response.name,
                reasons.get(position),
                position in self._truncated and position not in reasons,
                position in self._handled.reasoned,
            )
            for position, response in enumerate(self.request.responses)
        )
        # A prompt all of whose responses were rejected by another one (with another principle, say) isn't generated for.
        prompts = tuple(prompt for prompt in kept if any(position not in reasons for position in prompt.judges))
        # The hash is that of the context before reasoning was removed: the settings for it don't make it another prompt.
        return RenderedRequest(self._original.prompt_hash, responses, prompts)
