"""From a conversation to token ids: the chat template, safety against control tokens in content, the length policy.

Token ids are made here and nowhere else. The text is rendered first and tokenized without added special tokens, so a
prompt has exactly the special tokens that the template wrote: never a second BOS.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import Family, Question
from actors.errors import ModelError, Rejected, SettingsError
from actors.records import (
    Message,
    Prompt,
    Reason,
    Reasoning,
    RenderedRequest,
    RenderedResponse,
    Response,
    Role,
    ScoreRequest,
)
from actors.rendering.control_tokens import ControlTokenFilter
from actors.rendering.probed_delimiters import probed_delimiters
from actors.rendering.request_draft import RequestDraft
from actors.rendering.shown_texts import PROBE, ShownTemplate, check_shown, other_question, with_marks_of
from actors.reward_model import RewardModel
from actors.settings.replica import ControlTokens, RenderSettings, TooLong
from actors.text.delimiters import Delimiters
from actors.text.reasoning import HandledReasoning, cut_at_marks, without_reasoning
from actors.text.stems import GoOn, Stems
from actors.text.text_bound import TextBound

TEMPLATE_DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""Some templates print today's date: then a score would change overnight. This is the day that Llama 3's fall back on."""

MOST_PROMPTS = 65_536
"""The largest number of prompts for one row or conversation; with more it is rejected before the first is rendered."""

_CHUNK = 2**25
"""Characters of rendered prompts in memory at a time; `Stems` gives the tokenizer about a million of them in one call."""
_LONG_TOKEN = 8
"""Characters: hardly a text has as many to a token."""
_PROBE_CONTEXT = (Message(Role.USER, PROBE),)


class Renderer:
    """Renders requests for one model. Holds the tokenizer, so it is made once per process."""

    def __init__(self, model: RewardModel, settings: RenderSettings) -> None:
        checkpoint = Checkpoint.find(model.model, model.revision)
        self._family: Family = model.family
        self._tokenizer = _tokenizer(checkpoint, self._family)
        self._appended = list(self._family.appended(checkpoint))
        self._settings = settings
        self._reasoning = self._family.reasoning_by(settings) or Reasoning.REJECT
        self._limit = model.max_model_len
        self._vocabulary = _vocabulary(checkpoint, self._tokenizer)
        vocabulary = self._tokenizer.get_vocab()  # of 262,144 tokens 0.2 s each time
        self._second_bos = [self._tokenizer.bos_token_id] if settings.second_bos and self._tokenizer_adds_bos else []
        self._control = ControlTokenFilter(self._tokenizer, vocabulary, self._family.control_texts, self._appended)
        self._pad_id = checkpoint.pad_token_id if self._family.skips_padding else None
        self._step_id = vocabulary.get(self._family.step_token)
        self._controls_of = lru_cache(maxsize=1000)(self._count_controls_of)
        self._other_text = lru_cache(maxsize=2)(partial(self._family.text, template=self._template))
        self._shown_template = ShownTemplate(self._template)
        self._roles = self._family.roles() or self._template_roles()
        # A family that writes its own text says itself what it does with system turns; only a template must be tried out.
        by_template = self._family.roles() is None and Role.SYSTEM in self._roles
        self._later_system = not by_template or self._prints_later_system()
        self._several_systems = not by_template or self._prints_several_systems()
        # Two bounds on characters, so that a text of megabytes is refused without the tokenizer.
        self._longest_text = self._find_longest_text(vocabulary)
        self._bound = TextBound(self._tokenizer, self._limit)
        probed = probed_delimiters(self._family, self._template, self._control.texts)
        self._delimiters = Delimiters({*self._family.delimiters, *probed})
        probes = [
            question
            for count in self._family.counts
            for question in self._family.questions(self._probe_request(_PROBE_CONTEXT, count), range(count))
        ]
        for question in probes:
            self._check_probe(question)
        probe_texts = [self._render_text(self._make_safe(question)) for question in probes]
        self._stems = Stems(self._tokenizer, self._tokenize, probe_texts)
        self._check_system_turn()

    def render(self, requests: Sequence[ScoreRequest], go_on: GoOn = lambda: None) -> list[RenderedRequest]:
        """Render requests in order. A response that can't be judged is returned with its reason, and without a prompt.

        `go_on` is called in this thread before each prompt is rendered and each time that one is shortened; it cancels the
        work by raising.
        """
        if not self._family.takes_principles:  # else rows that differ in them alone would have different prompt hashes
            requests = [replace(request, principles=()) for request in requests]
        drafts = [RequestDraft(request, self._handle_reasoning(request), self._family.together) for request in requests]
        # Generators from here on: a row may have 65,536 prompts. The prompts of one draft stay neighbours, so that they are
        # fitted to the length limit together, and `Stems` finds their common beginning.
        drafts_and_texts = (pair for draft in drafts for pair in self._plan_prompts(draft, go_on))
        drafts_and_ids = self._tokenize_prompts(drafts_and_texts, go_on)
        for _, of_draft in itertools.groupby(drafts_and_ids, key=lambda pair: id(pair[0].draft)):
            prompts, ids = zip(*of_draft, strict=True)
            self._add_fitting(prompts, ids, go_on)
        return [draft.finish() for draft in drafts]

    def _tokenize_prompts(
        self, rendered: "Iterable[tuple[_DraftPrompt, str]]", go_on: GoOn
    ) -> "Iterator[tuple[_DraftPrompt, list[int]]]":
        """Each prompt with the token ids of its text. A chunk's texts are dropped as soon as they are tokenized."""
        waiting: list[_DraftPrompt] = []
        texts: list[str] = []
        length = 0
        for prompt, text in rendered:
            waiting.append(prompt)
            texts.append(text)
            length += len(text)
            if length >= _CHUNK:
                yield from zip(waiting, self._tokenize_all(texts, go_on), strict=True)
                waiting, texts, length = [], [], 0
        yield from zip(waiting, self._tokenize_all(texts, go_on), strict=True)

    def _handle_reasoning(self, request: ScoreRequest) -> HandledReasoning:
        """The request as it is judged: its reasoning treated, and after the settings' system turn if it has none."""
        handled, system = without_reasoning(request, self._reasoning_of(request)), self._settings.system
        context = handled.request.context
        if system is None or (context and context[0].role is Role.SYSTEM):
            return handled
        return replace(handled, request=replace(handled.request, context=(Message(Role.SYSTEM, system), *context)))

    def _reasoning_of(self, request: ScoreRequest) -> Reasoning:
        return request.reasoning or self._reasoning

    def tokenize(self, text: str) -> list[int]:
        """The ids of a rendered text, and what stands around them."""
        return self._with_outer_ids(self._tokenize([text])[0])

    def from_rendered(self, prompt: str | Sequence[int], begin: bool = True) -> RenderedRequest:
        """A prompt that a client has rendered, for one response: control tokens in it count as control tokens.

        `begin` prepends BOS where the tokenizer would and the text doesn't begin with it. The tokens that the family appends
        are appended here, too, unless they end the prompt already.
        """
        try:
            ids = self._prompt_ids(prompt, begin)
        except Rejected as rejected:
            return RenderedRequest("", (RenderedResponse("final", rejected.reason),), ())
        if self._appended and ids:
            ids = self._append_family_ids(ids)
        # What `_check_probe` makes sure of for our own prompts: one place to read, and the same as its authors read. With no
        # step's end, the token of the reward twice, or padding at the end, the engine would read another one.
        at = self._step_positions(ids)
        reason = Reason.EMPTY_CONTENT if not ids else Reason.TOO_LONG if len(ids) > self._limit else None
        if (self._step_id is not None and not at) or self._is_doubled(ids) or self._ends_with_padding(ids):
            reason = reason or Reason.TEMPLATE_REFUSED
        prompts = () if reason else (Prompt(ids, (0,), at),)
        return RenderedRequest("", (RenderedResponse("final", reason),), prompts)

    def _prompt_ids(self, prompt: str | Sequence[int], begin: bool) -> list[int]:
        if len(prompt) > self._limit and (not isinstance(prompt, str) or self._is_surely_too_long(prompt)):
            raise Rejected(Reason.TOO_LONG)  # before the tokenizer, or a copy of the list, takes time and memory
        ids = self._tokenize([self._check_encodable(prompt)])[0] if isinstance(prompt, str) else list(prompt)
        if not isinstance(prompt, str) and not all(0 <= token < self._vocabulary for token in ids):
            raise Rejected(Reason.UNKNOWN_TOKEN)
        if begin and isinstance(prompt, str) and self._tokenizer_adds_bos and ids[:1] != [self._tokenizer.bos_token_id]:
            ids = [self._tokenizer.bos_token_id, *ids]
        return ids

    def token_texts(self, ids: Collection[int]) -> dict[int, str]:
        """The text of each token where it follows another one; of a part of a character, U+FFFD."""
        # Behind a token: many tokenizers leave out the space with which a token begins, where a text begins with it.
        before = self._tokenize([PROBE])[0][-1:]
        bare, *texts = self._tokenizer.batch_decode(
            [before, *([*before, token] for token in ids)], clean_up_tokenization_spaces=False
        )
        return {token: text.removeprefix(bare) for token, text in zip(ids, texts, strict=True)}

    def _plan_prompts(self, draft: RequestDraft, go_on: GoOn) -> "Iterator[tuple[_DraftPrompt, str]]":
        """The prompts of a request, each with its text. Questions that can't be rendered reject their responses.

        `go_on` is called for refused questions as well: each may scan megabytes of context, for a thousand responses.
        """
        responses = range(len(draft.request.responses))
        if self._family.question_count(len(responses), len(draft.request.principles)) > MOST_PROMPTS:
            for at in responses:
                draft.reject((at,), Reason.TOO_MANY_PROMPTS)
            return
        clean = clean_answer = _CleanTextCache(self._clean_text)
        if self._reasoning_of(draft.request) is Reasoning.KEEP:
            clean_answer = _CleanTextCache(self._clean_answer)

        def check_answer(text: str) -> None:
            go_on()
            self._check_encodable(clean_answer(text))

        showable = draft.find_showable(check_answer)
        last: _SharedContext | None = None
        for question in self._family.questions(draft.request, showable):
            go_on()
            try:
                if last is None or question.context != last.context:
                    last = _SharedContext(question.context, self._safe_context(question.context, clean, clean_answer))
                safe = self._make_safe(question, clean, clean_answer, last.safe)
                answers = "".join(safe.responses)  # all of the prompt that is looked at, if the context is too long
                text = self._check_encodable(answers) if last.is_too_long else self._render_text(safe)
                if not last.is_too_long and len(showable) > 1:
                    last.is_too_long = self._begins_too_long(text, safe)
                # Too long by its characters: tokenizing it may be gigabytes of ids.
                if last.is_too_long or (not self._cuts_left and self._is_surely_too_long(text)):
                    safe = self._drop_turns(safe, draft, go_on)
                    text = self._render_text(safe)
            except Rejected as rejected:
                draft.reject(question.judges, rejected.reason)
            else:
                yield _DraftPrompt(draft, question, safe, self._family.opening(text)), text

    def _make_safe(
        self,
        question: Question,
        cached_clean: Callable[[str], str] | None = None,
        cached_clean_answer: Callable[[str], str] | None = None,
        safe_context: tuple[Message, ...] | None = None,
    ) -> Question:
        """The question without control tokens or delimiters in its texts. Raises `Rejected` if they can't be removed.

        `cached_clean` is `_clean_text` with a memory, for questions that share their texts, and `cached_clean_answer` the
        same for what the assistant wrote; `safe_context` is the context, if it is known from another question.
        """
        clean = cached_clean or self._clean_text
        clean_answer = cached_clean_answer or clean
        return replace(
            question,
            context=self._safe_context(question.context, clean, clean_answer) if safe_context is None else safe_context,
            responses=tuple(map(clean_answer, question.responses)),
            principle=question.principle and clean(question.principle),
        )

    def _safe_context(
        self, context: tuple[Message, ...], clean: Callable[[str], str], clean_answer: Callable[[str], str]
    ) -> tuple[Message, ...]:
        for message in context:
            if message.role not in self._roles:
                raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, message.role)
        systems = [at for at, message in enumerate(context) if message.role is Role.SYSTEM]
        is_later, are_several = max(systems, default=0) > 0, len(systems) > 1
        if (is_later and not self._later_system) or (are_several and not self._several_systems):
            raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, "a system turn after the first turn")
        return tuple(
            Message(message.role, (clean_answer if message.role is Role.ASSISTANT else clean)(message.content))
            for message in context
        )

    def _clean_answer(self, text: str) -> str:
        """`_clean_text` for a text of the assistant's whose reasoning is kept: the marks of that may be control tokens.

        Only such as `<think>` in a template, which the tokenizer has as ordinary text. Marks that special tokens are made of
        (gpt-oss's) also begin turns, and would let a response forge one.
        """
        harmless = self._control.template_texts
        pieces = enumerate(cut_at_marks(text))
        return "".join(piece if at % 2 and piece in harmless else self._clean_text(piece) for at, piece in pieces)

    def _clean_text(self, text: str) -> str:
        """A row's text without control tokens. Raises `Rejected` if it has one and the settings say not to change it.

        A delimiter is never broken up by a space: a judge reads `[ The End of Response 1]` as the delimiter all the same.
        """
        if self._delimiters.are_in(text):
            raise Rejected(Reason.CONTROL_TOKEN, "a delimiter of the judge's prompt")
        if not self._control.are_in(text):
            return text
        if self._settings.control_tokens is ControlTokens.REJECT:
            raise Rejected(Reason.CONTROL_TOKEN)
        return self._control.neutralised(text)

    def _render_text(self, question: Question) -> str:
        text, other = self._family.text(question, self._shown_template), other_question(self._family, question)
        check_shown(text, self._family.shown(question), self._other_text(other), self._family.shown(other))
        return self._check_encodable(text)

    def _check_encodable(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Rejected(Reason.LONE_SURROGATE) from None
        return text

    def _add_fitting(self, prompts: Sequence["_DraftPrompt"], all_ids: Sequence[list[int]], go_on: GoOn) -> None:
        """Add to its draft each prompt that fits; of the others, reject them, or drop the oldest turns until they fit.

        All prompts of a request keep the same turns, whichever response, principle and opponent they show: their answers are
        compared, so they must be about one conversation.
        """
        # First pass: the longest context with which each prompt fits. The shortest of these is then everybody's.
        fits: list[tuple[_DraftPrompt, list[int], tuple[Message, ...]]] = []
        for prompt, ids in zip(prompts, all_ids, strict=True):
            go_on()
            try:
                fits.append((prompt, ids, self._fitting_context(prompt, ids, go_on)))
            except Rejected as rejected:
                prompt.draft.reject(prompt.question.judges, rejected.reason)
        # If response 0 fits with 9 turns, and response 1, which is longer, with 5, both are judged with 5: a preference for
        # the response that was shown with more of the conversation would say nothing.
        shortest = min((context for *_, context in fits), key=len, default=())
        for prompt, ids, _ in fits:
            go_on()
            try:
                cut_ids = self._cut_to(prompt, ids, shortest)
            except Rejected as rejected:
                prompt.draft.reject(prompt.question.judges, rejected.reason)
            else:
                positions = self._step_positions(cut_ids)
                is_truncated = len(cut_ids) < len(ids) or len(shortest) < len(prompt.question.context)
                prompt.draft.add_prompt(prompt.question, cut_ids, positions, prompt.opening, is_truncated)

    def _fitting_context(self, prompt: "_DraftPrompt", ids: Sequence[int], go_on: GoOn) -> tuple[Message, ...]:
        """The turns with which a prompt has at most `limit` tokens. Raises `Rejected`."""
        is_long = len(ids) > self._limit and not self._cuts_left
        return (self._drop_turns(prompt.safe, prompt.draft, go_on) if is_long else prompt.safe).context

    def _cut_to(self, prompt: "_DraftPrompt", ids: list[int], context: tuple[Message, ...]) -> list[int]:
        """The prompt's ids with these turns alone. Raises `Rejected` for a control token that isn't the template's."""
        safe = replace(prompt.safe, context=context)
        if len(context) < len(prompt.safe.context):
            ids = self.tokenize(self._render_text(safe))
        # `_clean_text` looked for control tokens in the texts as they are written. The tokenizer may still make one when it
        # normalises (of a full-width `<`, say), so their number is compared with that of the same prompt with blank texts.
        if self._control.count(ids) > self._controls_of(self._blank(safe)):
            raise Rejected(Reason.CONTROL_TOKEN, "made by the tokenizer's normalisation, or by the template")
        if self._is_doubled(ids):
            raise Rejected(Reason.TEMPLATE_REFUSED, "the template writes the token where the reward is read, more than once")
        if self._ends_with_padding(ids):
            raise Rejected(Reason.TEMPLATE_REFUSED, "the template ends with padding, after which no reward is read")
        if self._cuts_left and len(ids) > self._limit:  # after the checks: a cut takes control tokens out of the count
            ids = [*self._second_bos, *ids[len(ids) - self._limit + len(self._second_bos) :]]
        return ids

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

    def _step_positions(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Where steps end; empty for a family that judges whole responses."""
        return tuple(at for at, token in enumerate(ids) if token == self._step_id) if self._step_id is not None else ()

    def _drop_turns(self, question: Question, draft: RequestDraft, go_on: GoOn) -> Question:
        """The question without its oldest exchanges after a system turn, as few as need be. The last one is never dropped.

        Turns that were dropped for one response of the request are dropped for all, so the search begins there.
        """
        if self._settings.too_long is TooLong.REJECT:
            raise Rejected(Reason.TOO_LONG)
        turns = question.context
        head = 1 if turns and turns[0].role is Role.SYSTEM else 0
        # An exchange begins with a user's turn, so a context is only cut before one. Of system, user, assistant, user,
        # assistant, user the cuts are 3 and 5: at 1 nothing would be dropped, and after 5 the question itself.
        cuts = [position for position, message in enumerate(turns) if message.role is Role.USER and position > head]

        def without(at: int) -> Question:
            return replace(question, context=(*turns[:head], *turns[at:]))

        # Each try renders and tokenizes the prompt anew. So the cut that an earlier response needed is tried first, often as
        # the only one; otherwise a bisection, of log2(cuts) tries, since a later cut only makes a prompt shorter.
        # `turns_left` 4 of those six turns, one of them the system's, was the cut at 6 + 1 - 4 = 3.
        first = 0
        if draft.turns_left is not None:
            first = bisect_left(cuts, len(turns) + head - draft.turns_left)
        if draft.turns_left is None or first == len(cuts) or not self._fits(without(cuts[first]), go_on):
            first = bisect_left(cuts, True, lo=first, key=lambda at: self._fits(without(at), go_on))
        if first == len(cuts):
            raise Rejected(Reason.TOO_LONG)
        shorter = without(cuts[first])
        draft.turns_left = len(shorter.context)
        return shorter

    def _fits(self, question: Question, go_on: GoOn) -> bool:
        go_on()
        text = self._render_text(question)
        return not self._is_surely_too_long(text) and len(self.tokenize(text)) <= self._limit

    def _is_surely_too_long(self, text: str) -> bool:
        """Whether a text certainly has more tokens than the limit, told by its characters alone."""
        return len(text) > self._longest_text or self._bound.is_passed(text)

    def _begins_too_long(self, text: str, question: Question) -> bool:
        """Whether a prompt is too long before its responses, so that others on the same context are, too.

        Looked at only where it is likely: at eight characters a token for as many tokens as fit.
        """
        most = _LONG_TOKEN * self._limit
        if self._cuts_left or len(text) <= most:
            return False
        probe = replace(question, responses=tuple(PROBE for _ in question.responses))
        beginning = self._stems.shared(text, self._family.text(probe, self._template), most)
        return len(self._tokenize([beginning])[0]) > self._limit

    def _tokenize_all(self, texts: list[str], go_on: GoOn) -> list[list[int]]:
        """The ids of texts with what stands around them, cut off at one more than the limit unless their end counts."""
        # One more is enough to show that a prompt doesn't fit; the ids of a megabyte would only take memory.
        most = None if self._cuts_left else self._limit + 1
        return [self._with_outer_ids(ids)[:most] for ids in self._stems.tokenized(texts, go_on)]

    def _with_outer_ids(self, ids: list[int]) -> list[int]:
        """The ids of a rendered text with what stands around them: a second BOS, and what the family appends."""
        return self._second_bos + self._append_family_ids(ids)

    def _append_family_ids(self, ids: list[int]) -> list[int]:
        """The ids with those that the family appends, unless the template has written them already."""
        # Nothing appended: `ids[-0:]` is the whole prompt, which isn't [], so that [] is added to it.
        return ids if ids[-len(self._appended) :] == self._appended else ids + self._appended

    def _is_doubled(self, ids: Sequence[int]) -> bool:
        """Whether a token that the family appends occurs elsewhere, too: no head was trained on a prompt with two."""
        return any(ids.count(token) > self._appended.count(token) for token in self._appended)

    def _ends_with_padding(self, ids: Sequence[int]) -> bool:
        """Whether the last token is padding: transformers' class would read the reward before it, the engine at it."""
        return self._pad_id is not None and ids[-1:] == [self._pad_id]

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = self._tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)[
            "input_ids"
        ]
        return ids

    def _template(self, messages: Sequence[Message], *, generation_prompt: bool = False, **variables: Any) -> str:
        """See `ChatTemplate`. The `variables` are some templates' own; others pass over them."""
        if not self._tokenizer.chat_template:
            raise ModelError(
                f"{self._tokenizer.name_or_path} has no chat template, so no prompt can be rendered; the checkpoint needs "
                "one, as chat_template.jinja or in tokenizer_config.json"
            )
        try:
            text: str = self._tokenizer.apply_chat_template(
                [{"role": message.role.value, "content": message.content} for message in messages],
                tokenize=False,
                add_generation_prompt=generation_prompt,
                strftime_now=TEMPLATE_DATE.strftime,
                **variables,
            )
        except Exception as error:  # a template may raise anything: its own raise_exception, a TypeError inside Jinja
            raise Rejected(Reason.TEMPLATE_REFUSED, str(error)) from error
        return text

    def _template_roles(self) -> frozenset[Role]:
        """The roles whose text the template prints. A turn of another role would be dropped silently."""
        question, answer = Message(Role.USER, "question"), Message(Role.ASSISTANT, "answer")
        probes = {
            Role.USER: (Message(Role.USER, PROBE),),
            Role.ASSISTANT: (question, Message(Role.ASSISTANT, PROBE), question),
            Role.SYSTEM: (Message(Role.SYSTEM, PROBE), question),
            Role.TOOL: (question, answer, Message(Role.TOOL, PROBE)),
        }
        roles = frozenset(role for role, context in probes.items() if self._prints(context))
        if missing := {Role.USER, Role.ASSISTANT} - roles:
            raise ModelError(
                f"the chat template of {self._tokenizer.name_or_path} doesn't print what {' and '.join(sorted(missing))} "
                "say, so no conversation can be judged with it; the checkpoint needs one for plain conversations"
            )
        return roles

    def _prints_later_system(self) -> bool:
        """Whether the template prints a system turn that isn't the first turn."""
        question, answer = Message(Role.USER, "question"), Message(Role.ASSISTANT, "answer")
        return self._prints((question, answer, Message(Role.SYSTEM, PROBE), question))

    def _prints_several_systems(self) -> bool:
        """Whether the template prints both of two system turns: with some, one replaces the other."""
        probe, other = Message(Role.SYSTEM, PROBE), Message(Role.SYSTEM, "other")
        return all(self._prints((*systems, Message(Role.USER, "question"))) for systems in ((probe, other), (other, probe)))

    def _probe_request(self, context: tuple[Message, ...], count: int, text: str = PROBE) -> ScoreRequest:
        """A request to try the family and its template out with."""
        principles = (self._family.example_principle(text),) if self._family.needs_principles else ()
        return ScoreRequest(context, tuple(Response(f"probe[{at}]", text) for at in range(count)), principles)

    def _prints(self, context: tuple[Message, ...]) -> bool:
        count = self._family.counts[0]
        question, *_ = self._family.questions(self._probe_request(context, count, "answer"), range(count))
        try:
            return PROBE in self._family.text(question, self._template)
        except Rejected:
            return False

    def _count_controls_of(self, blank: Question) -> int:
        """How many control tokens the family and the template themselves write for such a question."""
        return self._control.count(self.tokenize(self._render_text(blank)))

    def _find_longest_text(self, vocabulary: Collection[str]) -> float:
        """The most characters of a prompt that fits; infinite if the tokenizer has no such bound.

        A token covers as many characters as its name has, or four times that before Unicode composition. There is no bound
        if the tokenizer makes one token of endless spaces, or of an endless word that it doesn't know.
        """
        longest = 4 * max(map(len, vocabulary))
        runs = self._tokenize([character * 2 * longest for character in " \na\U0010ffff"])
        return self._limit * longest if all(len(run) > 1 for run in runs) else math.inf

    def _check_probe(self, question: Question) -> None:
        """Check a plain conversation: BOS as the model was trained, and the token where the reward is read at the end.

        Raises `ModelError`: with another BOS, or another last token, every score would be off and none would look wrong.
        """
        begin, name = self._tokenizer.bos_token_id, self._tokenizer.name_or_path
        try:
            text = self._render_text(self._make_safe(question))
        except Rejected as rejected:
            about = "" if question.principle is None else f" about the principle {question.principle!r}"
            raise ModelError(f"{name}: a plain question{about} can't be asked: {rejected}") from rejected
        probe = self.tokenize(text)
        # In a row, before the first turn's text: BOS may begin every turn, as SmolLM2's `<|im_start|>` does, or end it.
        runs = itertools.groupby(self._tokenize([text.partition(PROBE)[0]])[0])
        written = next((len(list(run)) for token, run in runs if token == begin), 0)
        if written not in (allowed := self._allowed_bos_counts()):
            raise ModelError(
                f"{name}: a conversation must begin with {self._tokenizer.bos_token} {' or '.join(map(str, allowed))} "
                f"times, and the template writes it {written} times; every score would be another one than its authors read"
            )
        if self._is_doubled(probe):
            raise ModelError(
                f"{name}: {self._tokenizer.convert_ids_to_tokens(self._appended)}, where the reward is read, must stand "
                "once in a prompt, at its end, but the template writes it elsewhere, too; take it out of the template"
            )
        if self._ends_with_padding(probe):
            raise ModelError(
                f"{name}: the template ends with token {self._pad_id}, "
                f"{self._tokenizer.convert_ids_to_tokens(self._pad_id)!r}, which is pad_token_id, too (the last ids are "
                f"{probe[-4:]}): transformers passes over it and reads the reward at the token before, the engine at the "
                "last. If the model was trained to be read at the last one, give another pad_token_id in config.json; if "
                "before it, take the token out of the end of the template"
            )
        token = self._family.last_token()
        if token is not None and probe[-1:] != [self._tokenizer.get_vocab().get(token)]:
            raise ModelError(
                f"{name}: {token}, where the reward is read, must be one token and the prompt's last, but the tokenizer "
                f"makes {self._tokenizer.convert_ids_to_tokens(self.tokenize(token))} of it"
            )
        if self._family.step_token is not None and len(self._step_positions(probe)) != 1:
            raise ModelError(
                f"{name}: {self._family.step_token}, which ends a step, must be one token and stand once after a single "
                f"step, but the prompt has it {len(self._step_positions(probe))} times"
            )

    def _check_system_turn(self) -> None:
        """Raise `SettingsError` for a system turn of the settings that prompts don't show, or can't have."""
        if self._settings.system is None:
            return
        name = self._tokenizer.name_or_path
        if Role.SYSTEM not in self._roles or not self._prints((Message(Role.SYSTEM, PROBE), Message(Role.USER, "question"))):
            raise SettingsError(f"--system: the prompts of {name} have no system turn, or always the same one; leave it out")
        try:
            self._check_encodable(self._clean_text(self._settings.system))
        except Rejected as rejected:
            raise SettingsError(f"--system: {name} takes no such text: {rejected}") from rejected

    def _allowed_bos_counts(self) -> tuple[int, ...]:
        """How many BOS tokens the text of a prompt may begin with, unless the family says it.

        One, if the tokenizer itself prepends BOS to a text. If it doesn't, the template may write one or none.
        """
        if self._family.begins is not None:
            return (self._family.begins,)
        return (1,) if self._tokenizer_adds_bos else (0, 1)

    @property
    def _cuts_left(self) -> bool:
        """Whether prompts that are too long lose tokens at their beginning."""
        return self._settings.too_long is TooLong.CUT_LEFT

    @property
    def _tokenizer_adds_bos(self) -> bool:
        """Whether the tokenizer prepends BOS to a text."""
        adds_bos: bool = self._tokenizer(PROBE)["input_ids"][:1] == [self._tokenizer.bos_token_id]
        return adds_bos


def special_tokens(model: RewardModel) -> Mapping[int, str]:
    """The special tokens of a model's tokenizer, which a decoded text is usually without: the text of each id."""
    tokenizer = _tokenizer(Checkpoint.find(model.model, model.revision), model.family)
    added = {number: token.content for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))


def _vocabulary(checkpoint: Checkpoint, tokenizer: Any) -> int:
    """How many token ids the model has an embedding for: there may be more than the tokenizer has tokens."""
    config = checkpoint.config
    text = config.get("text_config") or {}
    return int(config.get("vocab_size") or text.get("vocab_size") or len(tokenizer))


def _tokenizer(checkpoint: Checkpoint, family: Family) -> Any:
    """The checkpoint's tokenizer. Raises `ModelError` if it can't be loaded.

    As tokenizer.json has it, where there is one: by the model type alone, transformers 5 puts rules of its own in it.
    """
    if (checkpoint.folder / "tokenizer.json").exists():
        from transformers import PreTrainedTokenizerFast as Tokenizer  # a second of import, which --help does without
    else:
        family.register()
        from transformers import AutoTokenizer as Tokenizer  # four, for it imports torch
    try:
        return Tokenizer.from_pretrained(str(checkpoint.folder), trust_remote_code=False)
    except Exception as error:  # transformers raises what its parsers raise
        raise ModelError(
            f"the tokenizer in {checkpoint.folder} can't be loaded, and no code of a checkpoint's own is run: {error}"
        ) from error


class _DraftPrompt(NamedTuple):
    """A prompt before its length is settled: the family's question, and `safe`, the question as it is rendered.

    `safe` has no control tokens, and fewer turns if the text was too long. `opening` is the beginning of the answer that the
    prompt has written already.
    """

    draft: RequestDraft
    question: Question
    safe: Question
    opening: str


@dataclass
class _SharedContext:
    """The context of questions about one request, once as it is rendered, and whether it is too long for any response."""

    context: tuple[Message, ...]
    safe: tuple[Message, ...]
    is_too_long: bool = False


class _CleanTextCache:
    """`_clean_text` with a memory, for the questions about one request: a context comes back for each response and pair."""

    def __init__(self, clean_text: Callable[[str], str]) -> None:
        self._clean_text = clean_text
        self._results: dict[str, str | Rejected] = {}

    def __call__(self, text: str) -> str:
        result = self._results.get(text)
        if result is None:
            try:
                result = self._clean_text(text)
            except Rejected as rejected:
                result = rejected
            self._results[text] = result
        if isinstance(result, Rejected):
            raise Rejected(result.reason)
        return result
