"""What may not be in a row's text, since it would speak for the template: control tokens, delimiters of a judge's prompt.

A text is looked at twice: as it is written (`TextSafety.clean`), and as the ids of its prompt (`TextSafety.check_ids`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache

from actors.contracts.family import Family, Question
from actors.errors import Rejected
from actors.records import Message, Reason, Role, ToolCall
from actors.rendering.control_tokens import ControlTokenFilter
from actors.rendering.prompt_writer import PromptWriter
from actors.rendering.shown_texts import PROBE, ShownTurns, with_marks_of
from actors.settings.replica import ControlTokens
from actors.text.delimiters import Delimiters
from actors.text.reasoning import cut_at_marks
from actors.text.tool_calls import changed_json


class TextSafety:
    """Finds in rows' texts what only the template, or the judge's prompt, may write."""

    def __init__(
        self,
        family: Family,
        control: ControlTokenFilter,
        delimiters: Delimiters,
        how: ControlTokens,
        writer: PromptWriter,
    ) -> None:
        self._family = family
        self._control = control
        self._delimiters = delimiters
        self._how = how
        # Questions with blank texts: as many as there are numbers of turns, roles and marks of reasoning.
        self._controls_of = lru_cache(maxsize=1000)(lambda blank: control.count(writer.ids(writer.text(blank))))

    def clean(self, text: str) -> str:
        """A row's text without control tokens. Raises `Rejected` if it has one and the settings say not to change it.

        A delimiter is never broken up by a space: a judge reads `[ The End of Response 1]` as the delimiter all the same.
        """
        if self._delimiters.are_in(text):
            raise Rejected(Reason.CONTROL_TOKEN, "a delimiter of the judge's prompt")
        if not self._control.are_in(text):
            return text
        if self._how is ControlTokens.REJECT:
            raise Rejected(Reason.CONTROL_TOKEN)
        return self._control.neutralised(text)

    def clean_answer(self, text: str) -> str:
        """`clean` for a text of the assistant's whose reasoning is kept: the marks of that may be control tokens.

        Only such as `<think>` in a template, which the tokenizer has as ordinary text. Marks that special tokens are made of
        (gpt-oss's) also begin turns, and would let a response forge one.
        """
        harmless = self._control.template_texts
        pieces = enumerate(cut_at_marks(text))
        return "".join(piece if position % 2 and piece in harmless else self.clean(piece) for position, piece in pieces)

    def check_ids(self, ids: Sequence[int], question: Question) -> None:
        """Raise `Rejected` if a question's prompt has more control tokens than the family and the template write.

        `clean` looks for them in the texts as they are written. The tokenizer may still make one when it normalises (of a
        full-width `<`, say), so their number is compared with that of the same prompt with blank texts.
        """
        if self._control.count(ids) > self._controls_of(self._blank(question)):
            raise Rejected(Reason.CONTROL_TOKEN, "made by the tokenizer's normalisation, or by the template")

    def _blank(self, question: Question) -> Question:
        """The question with blank texts, behind the same marks of reasoning where an answer has kept them."""
        blank = self._family.blank(question, PROBE)
        context = tuple(
            replace(blank_turn, content=with_marks_of(turn.content, blank_turn.content))
            if turn.role is Role.ASSISTANT
            else blank_turn
            for turn, blank_turn in zip(question.context, blank.context, strict=True)
        )
        return replace(blank, context=context, responses=tuple(map(with_marks_of, question.responses, blank.responses)))


class SafeTexts:
    """The questions about one request as they may be shown.

    Each text is looked at once, and so is a context: both come back for each response, pair and principle, and a thousand
    responses to a context of a megabyte would be a gigabyte of text to search.
    """

    def __init__(self, safety: TextSafety, turns: ShownTurns, keeps_reasoning: bool = False) -> None:
        self._turns = turns
        self._clean = cache(safety.clean)
        self.answer = cache(safety.clean_answer if keeps_reasoning else safety.clean)
        """What the assistant wrote. Raises `Rejected`."""
        self.context = cache(self._safe_context)
        """The turns of a conversation. Raises `Rejected`."""

    def question(self, question: Question) -> Question:
        """The question without control tokens or delimiters in its texts. Raises `Rejected` if they can't be removed."""
        self._turns.check_calls(question)
        return replace(
            question,
            context=self.context(question.context),
            responses=tuple(map(self.answer, question.responses)),
            fields={name: self._clean(text) for name, text in question.fields.items()},
            calls=tuple(map(self._safe_calls, question.calls)),
            tools=tuple(map(self._safe_json, question.tools)),
        )

    def _safe_context(self, context: tuple[Message, ...]) -> tuple[Message, ...]:
        self._turns.check(context)
        return tuple(
            Message(
                turn.role,
                (self.answer if turn.role is Role.ASSISTANT else self._clean)(turn.content),
                self._safe_calls(turn.calls),
                turn.call_id and self._clean(turn.call_id),
            )
            for turn in context
        )

    def _safe_calls(self, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(self._clean(call.name), self._safe_json(call.arguments), call.id and self._clean(call.id))
            for call in calls
        )

    def _safe_json(self, text: str) -> str:
        """A JSON text that is safe as it is, and in what it means: a template prints the one or the other."""
        return self._clean(changed_json(text, self._clean))
