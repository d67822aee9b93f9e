"""From conversations to token ids: the flow, in which every other module of this package has one step.

A family asks questions about a request (`RequestDraft`). Of each, the texts are made safe (`text_safety`), the prompt's text
is written and turned into ids (`prompt_writer`, `model_tokenizer`), and the ids are fitted to the model's limit
(`length_fit`). What the template does was found out, and checked, before the first request (`template_probe`).

Token ids are made here and nowhere else. The text is rendered first and tokenized without added special tokens, so a
prompt has exactly the special tokens that the template wrote: never a second BOS.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from actors.contracts.family import Question
from actors.errors import Rejected, SettingsError
from actors.records import Message, Prompt, Reason, Reasoning, RenderedRequest, RenderedResponse, ScoreRequest
from actors.rendering.control_tokens import ControlTokenFilter
from actors.rendering.length_fit import LengthFit
from actors.rendering.model_tokenizer import ModelTokenizer
from actors.rendering.prompt_writer import PromptFrame, PromptWriter, check_encodable
from actors.rendering.request_draft import RequestDraft
from actors.rendering.template_probe import TemplateProbe, probed_delimiters
from actors.rendering.text_safety import CheckedTexts, TextSafety
from actors.reward_model import RewardModel
from actors.settings.replica import RenderSettings
from actors.text.delimiters import Delimiters
from actors.text.stems import CheckCancelled, PrefixSharingTokenizer, batches
from actors.text.text_bound import TextBound

# Characters of rendered prompts in memory at a time; the tokenizer gets about a million of them in one call.
_CHUNK = 2**25


class Renderer:
    """Renders requests for one model. Holds the tokenizer, so it is made once per process."""

    def __init__(self, model: RewardModel, settings: RenderSettings) -> None:
        """Raises `ModelError` for a template that doesn't show what is judged, or where its family reads the reward.

        Raises `SettingsError` for a system turn of the settings that prompts don't show, and for a chat template that the
        family doesn't write them by.
        """
        checkpoint, family = model.checkpoint, model.family
        self._family = family
        self._reasoning = family.reasoning_by(settings) or Reasoning.REJECT
        self._system = settings.system
        self.tokenizer = ModelTokenizer(checkpoint, family)
        self._frame = PromptFrame.of(family, self.tokenizer, checkpoint, settings.second_bos)
        self._writer = writer = PromptWriter(family, self.tokenizer, self._frame)
        probe = TemplateProbe(family, self.tokenizer, self._frame, writer)
        self._turns = probe.shown_turns()
        control = ControlTokenFilter(self.tokenizer, family.control_texts, self._frame.appended)
        delimiters = {*family.delimiters, *probed_delimiters(family, self.tokenizer.template, control.texts)}
        self._safety = TextSafety(family, control, Delimiters(delimiters), writer)
        self._stems = PrefixSharingTokenizer(
            self.tokenizer.pretrained, self.tokenizer.ids, probe.check(self._safety, self._turns)
        )
        if model.chat_template is not None and not self.tokenizer.has_used_template:
            raise SettingsError(f"--chat-template: {family.name} writes its prompts without a chat template; leave it out")
        bound = TextBound(self.tokenizer.pretrained, model.max_model_len)
        self._length = LengthFit(settings.too_long, bound, writer)
        if self._system is not None:
            probe.check_system_turn(self._system, self._safety, self._turns)

    def render(
        self, requests: Sequence[ScoreRequest], check_cancelled: CheckCancelled = lambda: None
    ) -> list[RenderedRequest]:
        """Render requests in order. A response that can't be judged is returned with its reason, and without a prompt.

        `check_cancelled` is called in this thread before each prompt is rendered and each time that one is shortened; it
        cancels the work by raising.
        """
        drafts = [RequestDraft(request, self._family, self._reasoning, self._system) for request in requests]
        # Generators from here on: a row may have 65,536 prompts. The prompts of one draft stay neighbours, so that they are
        # fitted to the length limit together, and `PrefixSharingTokenizer` finds their common beginning.
        prompts_and_texts = (pair for draft in drafts for pair in self._plan_prompts(draft, check_cancelled))
        prompts_and_ids = self._tokenize_prompts(prompts_and_texts, check_cancelled)
        for _, of_draft in itertools.groupby(prompts_and_ids, key=lambda pair: id(pair[0].draft)):
            self._add_fitting(list(of_draft), check_cancelled)
        return [draft.finish() for draft in drafts]

    def from_rendered(self, prompt: str | Sequence[int], begin: bool = True) -> RenderedRequest:
        """A prompt that a client has rendered, for one response: control tokens in it count as control tokens.

        `begin` prepends BOS where the tokenizer would and the text doesn't begin with it. The tokens that the family appends
        are appended here, too, unless they end the prompt already.
        """
        try:
            ids = self._client_ids(prompt, begin)
        except Rejected as rejected:
            return RenderedRequest("", (RenderedResponse("final", rejected.reason),), ())
        positions = self._frame.step_ends(ids)
        return RenderedRequest("", (RenderedResponse("final", None),), (Prompt(ids, (0,), positions),))

    def _client_ids(self, prompt: str | Sequence[int], begin: bool) -> list[int]:
        if isinstance(prompt, str):
            if len(prompt) > self._length.limit and self._length.bound.is_passed(prompt):
                raise Rejected(Reason.TOO_LONG)  # before the tokenizer takes time and memory
            ids = self.tokenizer.ids([check_encodable(self.tokenizer.close_text(prompt))])[0]
            prepended = self.tokenizer.prepended if begin else []
            ids = ids if ids[:1] == prepended else prepended + ids
        else:
            if len(prompt) > self._length.limit:
                raise Rejected(Reason.TOO_LONG)  # before a copy of the list
            ids = list(prompt)
            if not all(0 <= token < self.tokenizer.vocabulary for token in ids):
                raise Rejected(Reason.UNKNOWN_TOKEN)
        if not ids:
            raise Rejected(Reason.EMPTY_CONTENT)
        ids = self._frame.append_to(ids)
        if len(ids) > self._length.limit:
            raise Rejected(Reason.TOO_LONG)
        # What `TemplateProbe` makes sure of for our own prompts: one place to read, the same as the authors read. With no
        # step's end, the token of the reward twice, or padding at the end, the engine would read another one.
        if self._frame.step is not None and not self._frame.step_ends(ids):
            raise Rejected(Reason.TEMPLATE_REFUSED, "no step ends in it")
        self._frame.check(ids)
        return ids

    def _plan_prompts(self, draft: RequestDraft, check_cancelled: CheckCancelled) -> "Iterator[tuple[_DraftPrompt, str]]":
        """The prompts of a request, each with its text. Questions that can't be rendered reject their responses.

        `check_cancelled` is called for refused questions as well: each may scan megabytes of context, for a thousand
        responses.
        """
        checked = CheckedTexts(self._turns, self._safety.check, self._safety.check_answer if draft.keeps_reasoning else None)

        def check_answer(text: str) -> None:
            check_cancelled()
            checked.check_answer(text)
            check_encodable(text)

        questions = draft.questions(check_answer)
        try:
            checked.check_context(draft.request.context)
        except Rejected as rejected:
            for question in questions:
                draft.reject(question.response_positions, rejected)
            return
        for question in questions:
            check_cancelled()
            try:
                checked.check(question)
                shown, text = question, self._writer.text(question)
                if self._length.is_hopeless(text):  # by its characters: tokenizing it may be gigabytes of ids
                    shown = self._length.without_turns(question, draft, check_cancelled)
                    text = self._writer.text(shown)
            except Rejected as rejected:
                draft.reject(question.response_positions, rejected)
            else:
                yield _DraftPrompt(draft, question, shown, self._family.opening(text)), text

    def _tokenize_prompts(
        self, rendered: "Iterable[tuple[_DraftPrompt, str]]", check_cancelled: CheckCancelled
    ) -> "Iterator[tuple[_DraftPrompt, list[int]]]":
        # One more than the limit is enough to show that a prompt doesn't fit; the ids of a megabyte would only take memory.
        # Not so where the end of a prompt is kept.
        most = None if self._length.cuts_left else self._length.limit + 1
        for chunk in batches(rendered, _CHUNK, lambda pair: len(pair[1])):
            ids_of_chunk = self._stems.tokenized([text for _, text in chunk], check_cancelled)
            pairs = [(prompt, self._frame.around(ids)[:most]) for (prompt, _), ids in zip(chunk, ids_of_chunk, strict=True)]
            del chunk, ids_of_chunk  # else they stay while the next chunk is rendered, as much memory once more
            yield from pairs

    def _add_fitting(
        self, prompts_and_ids: "Sequence[tuple[_DraftPrompt, list[int]]]", check_cancelled: CheckCancelled
    ) -> None:
        """Add to its draft each prompt that fits; of the others, reject them, or drop the oldest turns until they fit.

        All prompts of a request keep the same turns, whichever response, principle and opponent they show: their answers are
        compared, so they must be about one conversation.
        """
        # First pass: the longest context with which each prompt fits. The shortest of these is then everybody's.
        fits: list[tuple[_DraftPrompt, list[int], tuple[Message, ...]]] = []
        for prompt, ids in prompts_and_ids:
            check_cancelled()
            shown = prompt.shown
            try:
                if len(ids) > self._length.limit and not self._length.cuts_left:
                    shown = self._length.without_turns(shown, prompt.draft, check_cancelled)
            except Rejected as rejected:
                prompt.draft.reject(prompt.question.response_positions, rejected)
            else:
                fits.append((prompt, ids, shown.context))
        # If response 0 fits with 9 turns, and response 1, which is longer, with 5, both are judged with 5: a preference for
        # the response that was shown with more of the conversation would say nothing.
        shortest = min((context for *_, context in fits), key=len, default=())
        for prompt, ids, _ in fits:
            check_cancelled()
            try:
                fitting = self._shorten_to(prompt, ids, shortest)
            except Rejected as rejected:
                prompt.draft.reject(prompt.question.response_positions, rejected)
            else:
                positions = self._frame.step_ends(fitting)
                is_truncated = len(fitting) < len(ids) or len(shortest) < len(prompt.question.context)
                prompt.draft.add_prompt(prompt.question, fitting, positions, prompt.opening, is_truncated)

    def _shorten_to(self, prompt: "_DraftPrompt", ids: list[int], context: tuple[Message, ...]) -> list[int]:
        """The prompt's ids with these turns alone.

        Raises `Rejected` for ids that only the template may write, and for a text that is too long by itself.
        """
        shown = replace(prompt.shown, context=context)
        longest = self._family.longest_text
        if longest is not None and len(ids) > longest:
            texts = self.tokenizer.ids(list(self._family.shown(shown)))
            if any(len(self.tokenizer.prepended) + len(text) > longest for text in texts):
                raise Rejected(Reason.TOO_LONG, f"{self._family.name} was trained on texts of at most {longest:,} tokens")
        if len(context) < len(prompt.shown.context):
            ids = self._writer.ids(self._writer.text(shown))
        self._safety.check_ids(ids, shown)
        self._frame.check(ids)
        if self._length.cuts_left and len(ids) > self._length.limit:
            ids = self._frame.cut(ids, self._length.limit)  # after the checks: a cut takes control tokens out of the count
        return ids


class _DraftPrompt(NamedTuple):
    """A prompt before its length is settled: the family's question, and `shown`, the question as it is rendered.

    `shown` has fewer turns if the text was too long. `opening` is the beginning of the answer that the prompt has written
    already.
    """

    draft: RequestDraft
    question: Question
    shown: Question
    opening: str
