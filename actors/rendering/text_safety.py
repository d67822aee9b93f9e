"""What may not be in a row's text, since it would speak for the template: control tokens, delimiters of a judge's prompt.

A text is looked at twice: as it is written (`TextSafety.check`), and as the ids of its prompt (`TextSafety.check_ids`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache

from actors.contracts.family import Family, Question
from actors.errors import Rejected
from actors.records import Message, Reason, Role, ToolCall
from actors.rendering.control_tokens import ControlTokenFilter
from actors.rendering.prompt_writer import PromptWriter
from actors.rendering.shown_texts import PROBE, ShownTurns, with_marks_of
from actors.text.delimiters import Delimiters
from actors.text.reasoning import cut_at_marks
from actors.text.tool_calls import strings_of


class TextSafety:
    """Finds in rows' texts what only the template, or the judge's prompt, may write."""

    def __init__(self, family: Family, control: ControlTokenFilter, delimiters: Delimiters, writer: PromptWriter) -> None:
        self._family = family
        self._control = control
        self._delimiters = delimiters
        # Questions with blank texts: as many as there are numbers of turns, roles and marks of reasoning.
        self._controls_of = lru_cache(maxsize=1000)(lambda blank: control.count(writer.ids(writer.text(blank))))

    def check(self, text: str) -> None:
        """Raise `Rejected` for a row's text that holds a control token, or a delimiter of the judge's prompt."""
        if self._delimiters.are_in(text):
            raise Rejected(Reason.CONTROL_TOKEN, "a delimiter of the judge's prompt")
        if self._control.are_in(text):
            raise Rejected(Reason.CONTROL_TOKEN)

    def check_answer(self, text: str) -> None:
        """`check` for a text of the assistant's whose reasoning is kept: the marks of that may be control tokens.

        Only such as `<think>` in a template, which the tokenizer has as ordinary text. Marks that special tokens are made of
        (gpt-oss's) also begin turns, and would let a response forge one.
        """
        harmless = self._control.template_texts
        for position, piece in enumerate(cut_at_marks(text)):
            if not (position % 2 and piece in harmless):
                self.check(piece)

    def check_ids(self, ids: Sequence[int], question: Question) -> None:
        """Raise `Rejected` if a question's prompt has more control tokens than the family and the template write.

        `check` looks for them in the texts as they are written. The tokenizer may still make one when it normalises (of a
        full-width `<`, say), so their number is compared with that of the same prompt with blank texts.
        """
        if self._control.count(ids) > self._controls_of(self._blank(question)):
            raise Rejected(Reason.CONTROL_TOKEN, "made by the tokenizer's normalisation, or by the template")

    def _blank(self, question: Question) -> Question:
        # The question with blank texts, behind the same marks of reasoning where an answer has kept them.
        blank = self._family.blank(question, PROBE)
        context = tuple(
            replace(blank_turn, content=with_marks_of(turn.content, blank_turn.content))
            if turn.role is Role.ASSISTANT
            else blank_turn
            for turn, blank_turn in zip(question.context, blank.context, strict=True)
        )
        return replace(blank, context=context, responses=tuple(map(with_marks_of, question.responses, blank.responses)))


class CheckedTexts:
    """Checks the questions about one request, each text once, and so each context.

    Both come back for each response, pair and principle, and a thousand responses to a context of a megabyte would be a
    gigabyte of text to search.
    """

    def __init__(
        self, turns: ShownTurns, check: Callable[[str], None], check_answer: Callable[[str], None] | None = None
    ) -> None:
        """`check` raises `Rejected` for a text of a row, `check_answer` for one of the assistant's, if that is another."""
        self._turns = turns
        self._check = cache(check)
        self.check_answer = cache(check_answer or check)
        self.check_context = cache(self._check_turns)

    def check(self, question: Question) -> None:
        """Raise `Rejected` for a control token or a delimiter in any of the question's texts, and for what isn't shown."""
        self._turns.check_calls(question)
        self.check_context(question.context)
        for text in question.responses:
            self.check_answer(text)
        for text in question.fields.values():
            self._check(text)
        for calls in question.calls:
            self._check_calls(calls)
        for tool in question.tools:
            self._check_json(tool)

    def _check_turns(self, context: tuple[Message, ...]) -> None:
        self._turns.check(context)
        for turn in context:
            (self.check_answer if turn.role is Role.ASSISTANT else self._check)(turn.content)
            self._check_calls(turn.calls)
            self._check(turn.call_id or "")

    def _check_calls(self, calls: tuple[ToolCall, ...]) -> None:
        for call in calls:
            self._check(call.name)
            self._check_json(call.arguments)
            self._check(call.id or "")

    def _check_json(self, text: str) -> None:
        # A JSON text as it is, and in what it means: a template prints the one or the other.
        self._check(text)
        for string in strings_of(text):
            self._check(string)
