"""From a conversation to token ids: the chat template, safety against control tokens in content, the length policy.

Token ids are made here and nowhere else. The text is rendered first and tokenized without added special tokens, so a
prompt has exactly the special tokens that the template wrote: never a second BOS.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import Family, Question
from actors.errors import ModelError, Rejected
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
from actors.rendering.control_tokens import Controls
from actors.reward_model import RewardModel
from actors.settings.replica import ControlTokens, RenderSettings, TooLong
from actors.text.delimiters import Delimiters, between
from actors.text.reasoning import Freed, is_open, without_reasoning
from actors.text.stems import GoOn, Stems
from actors.text.text_bound import TextBound

TEMPLATE_DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""Some templates print today's date: then a score would change overnight. This is the day that Llama 3's fall back on."""

MOST_PROMPTS = 65_536
"""Prompts that one row or conversation may come to; with more it is rejected before the first of them is made."""

_CHUNK = 2**25
"""Characters of prompts that are held as text at a time; the tokenizer gets a million of them together (`Stems`)."""
_PROBE = "assay probe text"
_PROBE_CONTEXT = (Message(Role.USER, _PROBE),)


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
        self._control = Controls(self._tokenizer, self._family.control_texts, self._appended)
        self._pad_id = checkpoint.pad_token_id if self._family.skips_padding else None
        self._step_id = self._tokenizer.get_vocab().get(self._family.step_token)
        self._controls_of = lru_cache(maxsize=1000)(self._count_controls_of)
        self._roles = self._family.roles() or self._template_roles()
        by_template = self._family.roles() is None and Role.SYSTEM in self._roles
        self._later_system = not by_template or self._prints_later_system()
        self._several_systems = not by_template or self._prints_several_systems()
        self._longest_text = self._find_longest_text()
        self._bound = TextBound(self._tokenizer, self._limit)
        self._delimiters = Delimiters({*self._family.delimiters, *self._probed_delimiters()})
        probes = [
            question
            for count in self._family.counts
            for question in self._family.questions(self._probe(_PROBE_CONTEXT, count), range(count))
        ]
        for question in probes:
            self._check_probe(question)
        self._stems = Stems(self._tokenizer, self._tokenize, [self._text(self._safe(question)) for question in probes])

    def render(self, requests: Sequence[ScoreRequest], go_on: GoOn = lambda: None) -> list[RenderedRequest]:
        """Render requests in order. A response that can't be judged is there with its reason, and without a prompt.

        `go_on` is called before each prompt is made, and each time that one is shortened, from this thread; it ends the
        work by raising.
        """
        own = requests if self._family.takes_principles else [replace(request, principles=()) for request in requests]
        drafts = [_Draft(request, self._freed(request), self._family.together) for request in own]
        asked = (asked for draft in drafts for asked in self._ask(draft, go_on))
        for _, about in itertools.groupby(self._with_ids(asked, go_on), key=lambda prompt: id(prompt[0].draft)):
            prompts, ids = zip(*about, strict=True)
            self._fit(prompts, ids, go_on)
        return [draft.finished() for draft in drafts]

    def _with_ids(self, asked: "Iterable[tuple[_Asked, str]]", go_on: GoOn) -> "Iterator[tuple[_Asked, list[int]]]":
        """What is asked, with the token ids of its text. Texts are dropped as soon as they are tokenised."""
        held: list[_Asked] = []
        texts: list[str] = []
        length = 0
        for one, text in asked:
            held.append(one)
            texts.append(text)
            length += len(text)
            if length >= _CHUNK:
                yield from zip(held, self._prompts(texts, go_on), strict=True)
                held, texts, length = [], [], 0
        yield from zip(held, self._prompts(texts, go_on), strict=True)

    def _freed(self, request: ScoreRequest) -> Freed:
        return without_reasoning(request, request.reasoning or self._reasoning)

    def tokenize(self, text: str) -> list[int]:
        """The ids of a rendered text, and what the family appends to them."""
        return self._complete(self._tokenize([text])[0])

    def as_it_is(self, prompt: str | Sequence[int], begin: bool = True) -> RenderedRequest:
        """A prompt that somebody else has rendered, for one response: control tokens in it are what they say.

        `begin` puts the token for the beginning of a text before it where the tokenizer would, if it isn't there. What the
        family appends is appended here, too, if it isn't the last.
        """
        try:
            ids = self._ids_as_they_are(prompt, begin)
        except Rejected as rejected:
            return RenderedRequest("", (RenderedResponse("final", rejected.reason),), ())
        if self._appended and ids:
            ids = self._complete(ids)
        at = self._steps(ids)
        reason = Reason.EMPTY_CONTENT if not ids else Reason.TOO_LONG if len(ids) > self._limit else None
        if (self._step_id is not None and not at) or self._is_doubled(ids) or self._ends_with_padding(ids):
            reason = reason or Reason.TEMPLATE_REFUSED
        prompts = () if reason else (Prompt(ids, (0,), at),)
        return RenderedRequest("", (RenderedResponse("final", reason),), prompts)

    def _ids_as_they_are(self, prompt: str | Sequence[int], begin: bool) -> list[int]:
        if len(prompt) > self._limit and (not isinstance(prompt, str) or self._is_long(prompt)):
            raise Rejected(Reason.TOO_LONG)  # before anything is made of it
        ids = self._tokenize([self._encodable(prompt)])[0] if isinstance(prompt, str) else list(prompt)
        if not isinstance(prompt, str) and not all(0 <= token < self._vocabulary for token in ids):
            raise Rejected(Reason.UNKNOWN_TOKEN)
        if begin and isinstance(prompt, str) and self._begins_itself and ids[:1] != [self._tokenizer.bos_token_id]:
            ids = [self._tokenizer.bos_token_id, *ids]
        return ids

    def choosing(self, messages: Sequence[Message], labels: Sequence[str], go_on: GoOn = lambda: None) -> "Choosing":
        """A conversation to which one of some labels is to be the answer, without any reasoning. Raises `Rejected`."""
        go_on()
        context = self._safe(Question(tuple(messages), (), ())).context
        text, opening = self._opened(context)
        if self._is_long(text) or len(ids := self._tokenize([text])[0]) > self._limit:
            raise Rejected(Reason.TOO_LONG)
        go_on()
        blank, _ = self._opened([Message(message.role, _PROBE) for message in context])
        if self._control.count(ids) > self._control.count(self._tokenize([blank])[0]):
            raise Rejected(Reason.CONTROL_TOKEN, "made by the tokenizer's normalisation, or by the template")
        begun = self._tokenize([opening])[0]
        if ids[-len(begun) :] != begun:  # what comes before decides what the opening's tokens are
            opening, begun = text, ids
        labelled = zip(labels, self._tokenize([opening + label for label in labels]), strict=True)
        tokens = tuple(own[-1] if self._adds(own[-1], begun, label) else None for label, own in labelled)
        return Choosing(ids, tokens, is_open(opening))

    def _adds(self, token: int, ids: list[int], text: str) -> bool:
        """Whether a token after others adds just this text. Those before may be others than in the text as a whole."""
        decoded = self._tokenizer.batch_decode([ids, [*ids, token]], clean_up_tokenization_spaces=False)
        return bool(decoded[0] + text == decoded[1])

    def _opened(self, context: Sequence[Message]) -> tuple[str, str]:
        """The text of a conversation up to where the assistant begins, and what of it stands after all that was said."""
        text, at = self._template(context, generation_prompt=True, enable_thinking=False), 0
        for message in context:
            if (found := text.find(said := message.content.strip(), at)) < 0:
                raise Rejected(Reason.TEMPLATE_REFUSED, "the template leaves a message out, or changes it")
            at = found + len(said)
        return self._encodable(text), text[at:]

    def _ask(self, draft: "_Draft", go_on: GoOn) -> "Iterator[tuple[_Asked, str]]":
        """What is asked about a request, each with the text of its prompt.

        What is refused takes its time, too: a text of megabytes may be looked at for each of a thousand responses.
        """
        responses = range(len(draft.request.responses))
        if self._family.question_count(len(responses), len(draft.request.principles)) > MOST_PROMPTS:
            for at in responses:
                draft.reject((at,), Reason.TOO_MANY_PROMPTS)
            return
        among = [at for at in draft.judgeable if not draft.together or self._showable(draft, at, go_on)]
        harmless = _Once(self._harmless)
        for question in self._family.questions(draft.request, among):
            go_on()
            try:
                safe = self._safe(question, harmless)
                text = self._text(safe)
                if self._is_long(text):  # certain without tokenizing what may be gigabytes
                    safe = self._shortened(safe, draft, go_on)
                    text = self._text(safe)
            except Rejected as rejected:
                draft.reject(question.judges, rejected.reason)
            else:
                yield _Asked(draft, question, safe, self._family.opening(text)), text

    def _showable(self, draft: "_Draft", at: int, go_on: GoOn) -> bool:
        """Whether a response can be shown beside others; one that can't mustn't take them with it."""
        go_on()
        try:
            self._encodable(self._harmless(draft.request.responses[at].content))
        except Rejected as rejected:
            draft.reject((at,), rejected.reason)
            return False
        return True

    def _safe(self, question: Question, harmless: Callable[[str], str] | None = None) -> Question:
        """The question, nothing in which speaks for the template. Raises `Rejected` otherwise.

        `harmless` is `_harmless`, or one that remembers what several questions have in common.
        """
        clean = harmless or self._harmless
        for message in question.context:
            if message.role not in self._roles:
                raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, message.role)
        systems = [at for at, message in enumerate(question.context) if message.role is Role.SYSTEM]
        is_later, are_several = max(systems, default=0) > 0, len(systems) > 1
        if (is_later and not self._later_system) or (are_several and not self._several_systems):
            raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, "a system turn after the first turn")
        return replace(
            question,
            context=tuple(Message(message.role, clean(message.content)) for message in question.context),
            responses=tuple(map(clean, question.responses)),
            principle=question.principle and clean(question.principle),
        )

    def _harmless(self, text: str) -> str:
        """Somebody's text without control tokens in it. Raises `Rejected` if it has one and may not be changed.

        A delimiter is never broken up: whoever reads `[ The End of Response 1]` takes it for what it says.
        """
        if self._delimiters.are_in(text):
            raise Rejected(Reason.CONTROL_TOKEN, "a delimiter of the judge's prompt")
        if not self._control.are_in(text):
            return text
        if self._settings.control_tokens is ControlTokens.REJECT:
            raise Rejected(Reason.CONTROL_TOKEN)
        return self._control.neutralised(text)

    def _text(self, question: Question) -> str:
        text, at = self._family.text(question, self._template), 0
        for shown in self._family.shown(question):
            if (found := text.find(shown, at)) < 0:
                raise Rejected(Reason.TEMPLATE_REFUSED, "the template leaves the response out, or changes it")
            at = found + len(shown)
        return self._encodable(text)

    def _encodable(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Rejected(Reason.LONE_SURROGATE) from None
        return text

    def _fit(self, asked: Sequence["_Asked"], prompts: Sequence[list[int]], go_on: GoOn) -> None:
        """Take the prompts that fit; of the others, reject them, or drop the oldest turns until they do.

        Of all of a request the same turns, for each response, by each principle and beside each other one: what they come to
        is compared, so it must be about one conversation.
        """
        fitting: list[tuple[_Asked, list[int], tuple[Message, ...]]] = []
        for one, ids in zip(asked, prompts, strict=True):
            go_on()
            try:
                fitting.append((one, ids, self._fitting(one, ids, go_on)))
            except Rejected as rejected:
                one.draft.reject(one.question.judges, rejected.reason)
        shortest = min((context for *_, context in fitting), key=len, default=())
        for one, ids, _ in fitting:
            go_on()
            try:
                taken = self._cut(one, ids, shortest)
            except Rejected as rejected:
                one.draft.reject(one.question.judges, rejected.reason)
            else:
                one.draft.take(one.question, taken, self._steps(taken), one.opening, len(shortest))

    def _fitting(self, one: "_Asked", ids: Sequence[int], go_on: GoOn) -> tuple[Message, ...]:
        fitting = self._shortened(one.safe, one.draft, go_on) if len(ids) > self._limit else one.safe
        return fitting.context

    def _cut(self, asked: "_Asked", ids: list[int], context: tuple[Message, ...]) -> list[int]:
        """The prompt with these turns alone. Raises `Rejected` for a control token that isn't the template's."""
        safe = replace(asked.safe, context=context)
        if len(context) < len(asked.safe.context):
            ids = self.tokenize(self._text(safe))
        if self._control.count(ids) > self._controls_of(self._family.blank(safe, _PROBE)):
            raise Rejected(Reason.CONTROL_TOKEN, "made by the tokenizer's normalisation, or by the template")
        if self._is_doubled(ids):
            raise Rejected(Reason.TEMPLATE_REFUSED, "the template writes the token where the reward is read, more than once")
        if self._ends_with_padding(ids):
            raise Rejected(Reason.TEMPLATE_REFUSED, "the template ends with padding, after which no reward is read")
        return ids

    def _steps(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Where steps end; empty for a family that judges whole responses."""
        return tuple(at for at, token in enumerate(ids) if token == self._step_id) if self._step_id is not None else ()

    def _shortened(self, question: Question, draft: "_Draft", go_on: GoOn) -> Question:
        """Without the first exchanges after a system turn, as few as need be. The last one is never dropped.

        What another response of the request needed dropped is dropped from all: so with that the search begins, and ends.
        """
        if self._settings.too_long is TooLong.REJECT:
            raise Rejected(Reason.TOO_LONG)
        turns = question.context
        head = 1 if turns and turns[0].role is Role.SYSTEM else 0
        users = [at for at, message in enumerate(turns) if message.role is Role.USER and at > head]

        def without(at: int) -> Question:
            return replace(question, context=(*turns[:head], *turns[at:]))

        first = 0
        if draft.turns_left is not None:
            first = bisect_left(users, len(turns) + head - draft.turns_left)
        if draft.turns_left is None or first == len(users) or not self._fits(without(users[first]), go_on):
            first = bisect_left(users, True, lo=first, key=lambda at: self._fits(without(at), go_on))
        if first == len(users):
            raise Rejected(Reason.TOO_LONG)
        shortened = without(users[first])
        draft.turns_left = len(shortened.context)
        return shortened

    def _fits(self, question: Question, go_on: GoOn) -> bool:
        go_on()
        text = self._text(question)
        return not self._is_long(text) and len(self.tokenize(text)) <= self._limit

    def _is_long(self, text: str) -> bool:
        """Whether a text certainly doesn't fit, whatever its tokens are."""
        return len(text) > self._longest_text or self._bound.is_passed(text)

    def _prompts(self, texts: list[str], go_on: GoOn) -> list[list[int]]:
        """The ids of texts and what the family appends; of one that doesn't fit, no more than show that."""
        most = self._limit + 1
        return [self._complete(ids)[:most] for ids in self._stems.tokenized(texts, go_on)]

    def _complete(self, ids: list[int]) -> list[int]:
        """With what the family appends, unless the template has written it already."""
        return ids if ids[-len(self._appended) :] == self._appended else ids + self._appended

    def _is_doubled(self, ids: Sequence[int]) -> bool:
        """Whether what the family appends stands elsewhere, too: no model was trained to be read after another of it."""
        return any(ids.count(token) > self._appended.count(token) for token in self._appended)

    def _ends_with_padding(self, ids: Sequence[int]) -> bool:
        """Whether the model's authors, who pass over padding, read another token than the last."""
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
            raise ModelError(f"{self._tokenizer.name_or_path} has no chat template, so nobody knows how it is asked")
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
        """The roles whose text the template really prints: one that it ignores would be dropped without a word."""
        question, answer = Message(Role.USER, "question"), Message(Role.ASSISTANT, "answer")
        probes = {
            Role.USER: (Message(Role.USER, _PROBE),),
            Role.ASSISTANT: (question, Message(Role.ASSISTANT, _PROBE), question),
            Role.SYSTEM: (Message(Role.SYSTEM, _PROBE), question),
            Role.TOOL: (question, answer, Message(Role.TOOL, _PROBE)),
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
        return self._prints((question, answer, Message(Role.SYSTEM, _PROBE), question))

    def _prints_several_systems(self) -> bool:
        """Whether it prints each of two system turns: one may take the other's place."""
        probe, other = Message(Role.SYSTEM, _PROBE), Message(Role.SYSTEM, "other")
        return all(self._prints((*systems, Message(Role.USER, "question"))) for systems in ((probe, other), (other, probe)))

    def _probed_delimiters(self) -> set[str]:
        """What stands around everybody's text in the family's own prompts, if it doesn't know that by itself."""
        if not self._family.probes_delimiters:
            return set()
        speakers = enumerate((Role.USER, Role.ASSISTANT, Role.USER), 1)
        turns = tuple(Message(role, f"{_PROBE} of turn {number}") for number, role in speakers)
        found: set[str] = set()
        for count, context in itertools.product(self._family.counts, (turns[-1:], turns)):
            responses = tuple(Response(f"{at}", f"{_PROBE} of response {at}") for at in range(count))
            principles = (self._family.example_principle(_PROBE),) if self._family.needs_principles else ()
            for question in self._family.questions(ScoreRequest(context, responses, principles), range(count)):
                shown = (*(turn.content for turn in context), *question.responses)
                try:
                    found |= between(self._family.text(question, self._template), shown, self._control.texts)
                except Rejected:  # this form can't be asked; `_check_probe` tells of one that must be
                    continue
        return found

    def _probe(self, context: tuple[Message, ...], count: int, text: str = _PROBE) -> ScoreRequest:
        """A request to try the family and its template out with."""
        principles = (self._family.example_principle(text),) if self._family.needs_principles else ()
        return ScoreRequest(context, tuple(Response(f"probe[{at}]", text) for at in range(count)), principles)

    def _prints(self, context: tuple[Message, ...]) -> bool:
        count = self._family.counts[0]
        question, *_ = self._family.questions(self._probe(context, count, "answer"), range(count))
        try:
            return _PROBE in self._family.text(question, self._template)
        except Rejected:
            return False

    def _count_controls_of(self, blank: Question) -> int:
        """How many control tokens the family and the template themselves write for such a question."""
        return self._control.count(self.tokenize(self._text(blank)))

    def _find_longest_text(self) -> float:
        """No prompt that fits has more characters.

        A token covers as many as are in its name, or four times that after Unicode composition. A tokenizer that makes one
        token of endless spaces, or of an endless word that it doesn't know, has no such bound.
        """
        longest = 4 * max(map(len, self._tokenizer.get_vocab()))
        runs = self._tokenize([character * 2 * longest for character in " \na\U0010ffff"])
        return self._limit * longest if all(len(run) > 1 for run in runs) else math.inf

    def _check_probe(self, question: Question) -> None:
        """A plain conversation must begin as the model was trained, and end with the token where the reward is read."""
        begin, name = self._tokenizer.bos_token_id, self._tokenizer.name_or_path
        try:
            probe = self.tokenize(self._text(self._safe(question)))
        except Rejected as rejected:
            about = "" if question.principle is None else f" about the principle {question.principle!r}"
            raise ModelError(f"{name}: a plain question{about} can't be asked: {rejected}") from rejected
        if begin is not None and probe.count(begin) not in (wanted := self._beginnings()):
            raise ModelError(
                f"{name}: a conversation must hold {self._tokenizer.bos_token} {' or '.join(map(str, wanted))} times, and "
                f"the template writes it {probe.count(begin)} times; every score would be another one than its authors read"
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
        if self._family.step_token is not None and len(self._steps(probe)) != 1:
            raise ModelError(
                f"{name}: {self._family.step_token}, which ends a step, must be one token and stand once after a single "
                f"step, but the prompt has it {len(self._steps(probe))} times"
            )

    def _beginnings(self) -> tuple[int, ...]:
        """How many tokens for the beginning a prompt may have.

        One, if the tokenizer itself puts one before a text. If it doesn't, that is the template's matter; never two.
        """
        if self._family.begins is not None:
            return (self._family.begins,)
        return (1,) if self._begins_itself else (0, 1)

    @property
    def _begins_itself(self) -> bool:
        """Whether the tokenizer puts a token for the beginning before a text."""
        begun: bool = self._tokenizer(_PROBE)["input_ids"][:1] == [self._tokenizer.bos_token_id]
        return begun


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


class Choosing(NamedTuple):
    """A conversation up to where the assistant begins, and the token that each label would be there: None, if it isn't one.

    `reasoning` says whether the assistant would begin inside a block of reasoning.
    """

    ids: list[int]
    labels: tuple[int | None, ...]
    reasoning: bool


class _Asked(NamedTuple):
    """A question as it was put, what of it is asked, and what the text of that has written of the answer already."""

    draft: "_Draft"
    question: Question
    safe: Question
    opening: str


class _Once:
    """`_harmless` for the questions about one request, whose texts are the same ones again and again."""

    def __init__(self, harmless: Callable[[str], str]) -> None:
        self._harmless = harmless
        self._known: dict[str, str | Rejected] = {}

    def __call__(self, text: str) -> str:
        found = self._known.get(text)
        if found is None:
            try:
                found = self._harmless(text)
            except Rejected as rejected:
                found = rejected
            self._known[text] = found
        if isinstance(found, Rejected):
            raise Rejected(found.reason)
        return found


class _Draft:
    """A request while it is being rendered."""

    def __init__(self, given: ScoreRequest, freed: Freed, together: bool) -> None:
        """`together`: a response is judged if any showing of it can be asked about; otherwise all of them must be."""
        self.request = freed.request
        self.together = together
        self.turns_left: int | None = None
        """Of the context, for the responses so far that turns had to be dropped for."""
        self._given = given
        self._freed = freed
        self._reasons: dict[int, Reason] = {}
        self._truncated: set[int] = set()
        self._unasked: set[tuple[int, ...]] = set()
        self._prompts: list[Prompt] = []
        for position in freed.refused:
            self.reject((position,), Reason.REASONING)

    @property
    def judgeable(self) -> list[int]:
        """The positions of the responses that aren't refused for their reasoning."""
        return [position for position in range(len(self.request.responses)) if position not in self._freed.refused]

    def reject(self, positions: Sequence[int], reason: Reason) -> None:
        """Of responses that are shown together: by any principle, and in any order."""
        self._unasked.add(tuple(sorted(positions)))
        for position in positions:
            self._reasons.setdefault(position, reason)

    def take(self, question: Question, ids: Sequence[int], at: tuple[int, ...], opening: str, turns: int) -> None:
        self._prompts.append(Prompt(ids, question.judges, at, question.times, opening, question.principle))
        if turns < len(question.context):
            self._truncated.update(question.judges)

    def finished(self) -> RenderedRequest:
        reasons, taken = self._reasons, self._prompts
        if self.together:
            taken = [prompt for prompt in taken if tuple(sorted(prompt.judges)) not in self._unasked]
            asked = {position for prompt in taken for position in prompt.judges}
            unasked = [position for position in range(len(self.request.responses)) if position not in asked]
            reasons = {position: reasons.get(position, Reason.NO_OPPONENT) for position in unasked}
        responses = tuple(
            RenderedResponse(
                response.name,
                reasons.get(position),
                position in self._truncated and position not in reasons,
                position in self._freed.held,
            )
            for position, response in enumerate(self.request.responses)
        )
        # One that only judges what was rejected after all, for another principle perhaps, needn't be asked.
        prompts = tuple(prompt for prompt in taken if any(at not in reasons for at in prompt.judges))
        # Of the prompt as it was given: whatever is done with reasoning, it is the same prompt.
        return RenderedRequest(self._given.prompt_hash, responses, prompts)
