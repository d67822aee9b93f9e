"""From a conversation to token ids: the chat template, safety against control tokens in content, the length policy.

Token ids are made here and nowhere else. The text is rendered first and tokenized without added special tokens, so a
prompt has exactly the special tokens that the template wrote: never a second BOS.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from actors.checkpoint import Checkpoint
from actors.control_tokens import Controls
from actors.errors import ModelError, Rejected
from actors.family import Family, Question
from actors.models import RewardModel
from actors.parsing import END_THINK, THINK
from actors.records import Message, Prompt, Reason, RenderedRequest, RenderedResponse, Response, Role, ScoreRequest
from actors.settings import ControlTokens, RenderSettings, TooLong

TEMPLATE_DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""Some templates print today's date: then a score would change overnight. This is the day that Llama 3's fall back on."""

_PROBE = "assay probe text"
_PROBE_CONTEXT = (Message(Role.USER, _PROBE),)


class Renderer:
    """Renders requests for one model. Holds the tokenizer, so it is made once per process."""

    def __init__(self, model: RewardModel, settings: RenderSettings) -> None:
        checkpoint = Checkpoint.find(model.model, model.revision)
        self._family: Family = model.family
        self._family.register()
        self._tokenizer = _tokenizer(checkpoint)
        self._appended = list(self._family.appended(checkpoint))
        self._settings = settings
        self._limit = model.max_model_len
        self._control = Controls(self._tokenizer, self._family.control_texts, self._appended)
        self._step_id = self._tokenizer.get_vocab().get(self._family.step_token)
        self._controls_of = lru_cache(maxsize=1000)(self._count_controls_of)
        self._roles = self._family.roles() or self._template_roles()
        self._longest_text = self._find_longest_text()
        for count in self._family.counts:
            for question in self._family.questions(self._probe(_PROBE_CONTEXT, count), range(count)):
                self._check_probe(question)

    def render(self, requests: Sequence[ScoreRequest]) -> list[RenderedRequest]:
        """Render requests in order. A response that can't be judged is there with its reason, and without a prompt."""
        own = requests if self._family.takes_principles else [replace(request, principles=()) for request in requests]
        drafts = [_Draft(request, self._family.together) for request in own]
        asked = [asked for draft in drafts for asked in self._ask(draft)]
        prompts = zip(asked, self._prompts([one.text for one in asked]), strict=True)
        for _, about in itertools.groupby(prompts, key=lambda prompt: prompt[0].group):
            self._fit(*zip(*about, strict=True))
        return [draft.finished() for draft in drafts]

    def tokenize(self, text: str) -> list[int]:
        """The ids of a rendered text, and what the family appends to them."""
        return self._prompts([text])[0]

    def as_it_is(self, prompt: str | Sequence[int], begin: bool = True) -> RenderedRequest:
        """A prompt that somebody else has rendered, for one response: control tokens in it are what they say.

        `begin` puts the token for the beginning of a text before it where the tokenizer would, if it isn't there.
        """
        ids = self._tokenize([self._encodable(prompt)])[0] if isinstance(prompt, str) else list(prompt)
        if begin and isinstance(prompt, str) and self._begins_itself and ids[:1] != [self._tokenizer.bos_token_id]:
            ids = [self._tokenizer.bos_token_id, *ids]
        at = self._steps(ids)
        reason = Reason.EMPTY_CONTENT if not ids else Reason.TOO_LONG if len(ids) > self._limit else None
        if self._step_id is not None and not at:
            reason = reason or Reason.TEMPLATE_REFUSED
        prompts = () if reason else (Prompt(ids, (0,), at),)
        return RenderedRequest("", (RenderedResponse("final", reason),), prompts)

    def choosing(self, messages: Sequence[Message], labels: Sequence[str]) -> "Choosing":
        """A conversation to which one of some labels is to be the answer, without any reasoning. Raises `Rejected`."""
        context = self._safe(Question(tuple(messages), (), ())).context
        text, opening = self._opened(context)
        if len(text) > self._longest_text or len(ids := self._tokenize([text])[0]) > self._limit:
            raise Rejected(Reason.TOO_LONG)
        blank, _ = self._opened([Message(message.role, _PROBE) for message in context])
        if self._control.count(ids) > self._control.count(self._tokenize([blank])[0]):
            raise Rejected(Reason.CONTROL_TOKEN, "made by the tokenizer's normalisation, or by the template")
        begun = self._tokenize([opening])[0]
        if ids[-len(begun) :] != begun:  # what comes before decides what the opening's tokens are
            opening, begun = text, ids
        labelled = zip(labels, self._tokenize([opening + label for label in labels]), strict=True)
        tokens = tuple(own[-1] if self._adds(own[-1], begun, label) else None for label, own in labelled)
        return Choosing(ids, tokens, opening.rfind(THINK) > opening.rfind(END_THINK))

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

    def _ask(self, draft: "_Draft") -> Iterator["_Asked"]:
        among = [at for at in range(len(draft.request.responses)) if not draft.together or self._showable(draft, at)]
        for question in self._family.questions(draft.request, among):
            try:
                safe = self._safe(question)
                text = self._text(safe)
                if len(text) > self._longest_text:  # certain without tokenizing what may be gigabytes
                    safe = self._shortened(safe)
                    text = self._text(safe)
            except Rejected as rejected:
                draft.reject(question.judges, rejected.reason)
            else:
                yield _Asked(draft, question, safe, text)

    def _showable(self, draft: "_Draft", at: int) -> bool:
        """Whether a response can be shown beside others; one that can't mustn't take them with it."""
        try:
            self._encodable(self._harmless(draft.request.responses[at].content))
        except Rejected as rejected:
            draft.reject((at,), rejected.reason)
            return False
        return True

    def _safe(self, question: Question) -> Question:
        """The question, nothing in which speaks for the template. Raises `Rejected` otherwise."""
        for message in question.context:
            if message.role not in self._roles:
                raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, message.role)
        return replace(
            question,
            context=tuple(Message(message.role, self._harmless(message.content)) for message in question.context),
            responses=tuple(map(self._harmless, question.responses)),
            principle=question.principle and self._harmless(question.principle),
        )

    def _harmless(self, text: str) -> str:
        """Somebody's text without control tokens in it. Raises `Rejected` if it has one and may not be changed."""
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

    def _fit(self, asked: Sequence["_Asked"], prompts: Sequence[list[int]]) -> None:
        """Take the prompts that fit; of the others, reject them, or drop the oldest turns until they do.

        Of all of a group the same turns, by several principles or beside several others: what they come to must be about
        one conversation.
        """
        fitting: list[tuple[_Asked, list[int], tuple[Message, ...]]] = []
        for one, ids in zip(asked, prompts, strict=True):
            try:
                fitting.append((one, ids, self._fitting(one.safe, ids)))
            except Rejected as rejected:
                one.draft.reject(one.question.judges, rejected.reason)
        shortest = min((context for *_, context in fitting), key=len, default=())
        for one, ids, _ in fitting:
            try:
                taken = self._cut(one, ids, shortest)
            except Rejected as rejected:
                one.draft.reject(one.question.judges, rejected.reason)
            else:
                opening = self._family.opening(one.text)
                one.draft.take(one.question, taken, self._steps(taken), opening, len(shortest))

    def _fitting(self, safe: Question, ids: Sequence[int]) -> tuple[Message, ...]:
        return self._shortened(safe).context if len(ids) > self._limit else safe.context

    def _cut(self, asked: "_Asked", ids: list[int], context: tuple[Message, ...]) -> list[int]:
        """The prompt with these turns alone. Raises `Rejected` for a control token that isn't the template's."""
        safe = replace(asked.safe, context=context)
        if len(context) < len(asked.safe.context):
            ids = self.tokenize(self._text(safe))
        if self._control.count(ids) > self._controls_of(self._family.blank(safe, _PROBE)):
            raise Rejected(Reason.CONTROL_TOKEN, "made by the tokenizer's normalisation, or by the template")
        return ids

    def _steps(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Where steps end; empty for a family that judges whole responses."""
        return tuple(at for at, token in enumerate(ids) if token == self._step_id) if self._step_id is not None else ()

    def _shortened(self, question: Question) -> Question:
        """Without the first exchanges after a system turn, as few as need be. The last one is never dropped."""
        if self._settings.too_long is TooLong.REJECT:
            raise Rejected(Reason.TOO_LONG)
        turns = question.context
        head = 1 if turns and turns[0].role is Role.SYSTEM else 0
        users = [at for at, message in enumerate(turns) if message.role is Role.USER and at > head]

        def without(at: int) -> Question:
            return replace(question, context=(*turns[:head], *turns[at:]))

        first = bisect_left(users, True, key=lambda at: self._fits(without(at)))
        if first == len(users):
            raise Rejected(Reason.TOO_LONG)
        return without(users[first])

    def _fits(self, question: Question) -> bool:
        text = self._text(question)
        return len(text) <= self._longest_text and len(self.tokenize(text)) <= self._limit

    def _prompts(self, texts: list[str]) -> list[list[int]]:
        return [ids + self._appended for ids in self._tokenize(texts)] if self._appended else self._tokenize(texts)

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


def _tokenizer(checkpoint: Checkpoint) -> Any:
    """The checkpoint's tokenizer. Raises `ModelError` if it can't be loaded.

    As tokenizer.json has it, where there is one: by the model type alone, transformers 5 puts rules of its own in it.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # seconds of import, which --help does without

    kind = PreTrainedTokenizerFast if (checkpoint.folder / "tokenizer.json").exists() else AutoTokenizer
    try:
        return kind.from_pretrained(str(checkpoint.folder), trust_remote_code=False)
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
    """A question as it was put, what of it is asked, and the text of that."""

    draft: "_Draft"
    question: Question
    safe: Question
    text: str

    @property
    def group(self) -> tuple[int, tuple[int, ...]]:
        """Equal for those whose answers are about one conversation: all of a request, or all about one response."""
        return id(self.draft), () if self.draft.together else self.question.judges


class _Draft:
    """A request while it is being rendered."""

    def __init__(self, request: ScoreRequest, together: bool) -> None:
        """`together`: a response is judged if any showing of it can be asked about; otherwise all of them must be."""
        self.request = request
        self.together = together
        self._reasons: dict[int, Reason] = {}
        self._truncated: set[int] = set()
        self._unasked: set[tuple[int, ...]] = set()
        self._prompts: list[Prompt] = []

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
            RenderedResponse(response.name, reasons.get(position), position in self._truncated and position not in reasons)
            for position, response in enumerate(self.request.responses)
        )
        # One that only judges what was rejected after all, for another principle perhaps, needn't be asked.
        prompts = tuple(prompt for prompt in taken if any(at not in reasons for at in prompt.judges))
        return RenderedRequest(self.request.prompt_hash, responses, prompts)
