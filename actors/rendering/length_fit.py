"""Prompts that are longer than the model takes: rejected, without their oldest turns, or cut at their beginning.

Counting tokens costs the most of all rendering, so what is certainly too long is told by its characters first.
"""

from bisect import bisect_left
from dataclasses import replace

from actors.contracts.family import Question
from actors.errors import Rejected
from actors.records import Reason, Role
from actors.rendering.prompt_writer import PromptWriter
from actors.rendering.request_draft import RequestDraft
from actors.settings.replica import TooLong
from actors.text.stems import CheckCancelled
from actors.text.text_bound import TextBound


class LengthFit:
    """Fits the prompts of one model to its limit, the number of tokens that it takes."""

    def __init__(self, how: TooLong, bound: TextBound, writer: PromptWriter) -> None:
        self.limit = bound.limit
        self.cuts_left = how is TooLong.CUT_LEFT  # too long prompts lose tokens at their beginning, whatever those are
        self._drops_turns = how is TooLong.TRIM_TURNS
        self.bound = bound
        self._writer = writer

    def is_hopeless(self, text: str) -> bool:
        """Whether a prompt's text needn't be tokenized to see that turns must go, or it is rejected."""
        # A prompt that is cut has no turn too many, however long it is.
        return not self.cuts_left and self.bound.is_passed(text)

    def without_turns(self, question: Question, draft: RequestDraft, check_cancelled: CheckCancelled) -> Question:
        """The question without its oldest exchanges after a system turn, as few as need be. The last one is never dropped.

        Turns that were dropped for one response of the request are dropped for all, so the search begins there. Raises
        `Rejected` if the settings keep all turns, or the last exchange alone is too long.
        """
        if not self._drops_turns:
            raise Rejected(Reason.TOO_LONG)
        turns = question.context
        head = 1 if turns and turns[0].role is Role.SYSTEM else 0

        def without(at: int) -> Question:
            return replace(question, context=(*turns[:head], *turns[at:]))

        def fits(at: int) -> bool:
            return self._fits(without(at), check_cancelled)

        # An exchange begins with a user's turn, so a context is only cut before one. Of system, user, assistant, user,
        # assistant, user the cuts are 3 and 5: at 1 nothing would be dropped, and after 5 the question itself.
        # `turns_left` 4 of those six turns, one of them the system's, was the cut at 6 + 1 - 4 = 3.
        first = len(turns) + head - (draft.turns_left or len(turns))
        cuts = [position for position in range(max(first, head + 1), len(turns)) if turns[position].role is Role.USER]
        # Each try renders and tokenizes the prompt anew. So the cut that an earlier response needed is tried first, often as
        # the only one; otherwise a bisection, of log2(cuts) tries, since a later cut only makes a prompt shorter.
        is_first_enough = draft.turns_left is not None and cuts and fits(cuts[0])
        number = 0 if is_first_enough else bisect_left(cuts, True, key=fits)
        if number == len(cuts):
            raise Rejected(Reason.TOO_LONG)
        shorter = without(cuts[number])
        draft.turns_left = len(shorter.context)
        return shorter

    def _fits(self, question: Question, check_cancelled: CheckCancelled) -> bool:
        check_cancelled()
        text = self._writer.text(question)
        return not self.bound.is_passed(text) and len(self._writer.ids(text)) <= self.limit
