"""Writes prompts: the text of a question by the family and its template, its ids, and the ids that stand around them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import Family, Question
from actors.contracts.pooled_head import find_last
from actors.errors import Rejected
from actors.records import Message, Reason
from actors.rendering.model_tokenizer import ModelTokenizer
from actors.rendering.shown_texts import ShownTemplate, check_shown, other_question


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """What stands around the ids of a prompt's text, and the tokens that decide where its reward is read.

    A reward is read at the last id, or at each `step` token; an id too many at the end moves it to an output that no
    training shaped.
    """

    before: list[int]  # a second BOS, for readings of published codes that write one
    appended: list[int]  # the tokens that the family reads the reward at, where the template doesn't write them
    step: int | None  # the token that ends a step, if the family judges steps
    padding: int | None  # the padding token, if the family's class in transformers passes over it
    needed: Sequence[int] = ()  # `Family.needed_ids`
    end: int | None = None  # `ModelTokenizer.end`

    @classmethod
    def of(cls, family: Family, tokenizer: ModelTokenizer, checkpoint: Checkpoint, second_bos: bool) -> "PromptFrame":
        step = None if family.step_token is None else tokenizer.known_ids([family.step_token]).get(family.step_token)
        padding = checkpoint.pad_token_id if family.skips_padding else None
        return cls(
            tokenizer.prepended if second_bos else [],
            list(family.appended(checkpoint)),
            step,
            padding,
            family.needed_ids(checkpoint),
            tokenizer.end,
        )

    def around(self, ids: list[int]) -> list[int]:
        return self.before + self.append_to(ids)

    def append_to(self, ids: list[int]) -> list[int]:
        """The ids with those that the family appends, unless the template has written them already."""
        # Nothing appended: `ids[-0:]` is the whole prompt, which isn't [], so that [] is added to it.
        return ids if ids[-len(self.appended) :] == self.appended else ids + self.appended

    def cut(self, ids: list[int], limit: int) -> list[int]:
        """The last ids of a prompt that is longer than `limit`, behind what stands before every prompt."""
        return [*self.before, *ids[len(ids) - limit + len(self.before) :]]

    def step_ends(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Where steps end; empty for a family that judges whole responses."""
        return tuple(position for position, token in enumerate(ids) if token == self.step) if self.step is not None else ()

    def check(self, ids: Sequence[int]) -> None:
        """Raise `Rejected` for a prompt whose reward the engine would read elsewhere than the model's authors.

        Each of these prompts would give a finite number, read at a token whose output no training ever shaped.
        """
        problem = ""
        if any(ids.count(token) > self.appended.count(token) for token in self.appended):
            problem = (
                "the token where the reward is read must stand once in a prompt, at its end: take it out of the template"
            )
        elif self.padding is not None and ids[-1:] == [self.padding]:
            # TRL 1.16 writes EOS as pad_token_id where the tokenizer has no padding token, as that of Llama 3, whose
            # template ends with EOS: then the token before it was trained, and is what transformers reads.
            problem = (
                "the prompt ends with pad_token_id, over which transformers passes to read the reward before it, and the "
                "engine doesn't: if it was trained with this padding token, as by TRL's defaults, give --chat-template FILE "
                "with the template less that token after the last turn; only if it was trained with another one, give that "
                "as pad_token_id in config.json"
            )
        elif self.end is not None and ids[-1:] != [self.end]:
            problem = (
                f"the prompt doesn't end with token {self.end}, the tokenizer's eos_token, where OpenRLHF's trainer reads "
                "the reward: end it with that token"
            )
        elif self.needed and find_last(ids, self.needed) is None:
            problem = (
                "the prompt lacks tokens that every prompt of this model has: if its template should write them, give "
                "--chat-template FILE with the one that it was trained with"
            )
        if problem:
            raise Rejected(Reason.TEMPLATE_REFUSED, problem)


def check_encodable(text: str) -> str:
    """The text. Raises `Rejected` if it holds half a surrogate pair, which UTF-8, and so a tokenizer, can't take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Rejected(Reason.LONE_SURROGATE) from None
    return text


class PromptWriter:
    """Writes the prompts of one family with one tokenizer."""

    def __init__(self, family: Family, tokenizer: ModelTokenizer, frame: PromptFrame) -> None:
        self._family = family
        self._tokenizer = tokenizer
        self._frame = frame
        self._shown_template = ShownTemplate(tokenizer.template)
        # Two: of the questions about one context only the blank one and that with other words come back.
        self._other_text = lru_cache(maxsize=2)(self.unchecked_text)

    def text(self, question: Question) -> str:
        """The text of a prompt. Raises `Rejected` if it doesn't show what is asked about, or can't be encoded."""
        shown_turns = list[Message]()

        def template(messages: Sequence[Message], *, generation_prompt: bool = False) -> str:
            shown_turns.extend(messages)
            tools = self._template_tools(question)
            return self._shown_template(messages, generation_prompt=generation_prompt, tools=tools)

        text, other = self._family.text(question, template), other_question(self._family, question)
        if sum(len(turn.calls) for turn in shown_turns) < question.call_count and not self._family.writes_calls:
            raise Rejected(Reason.TOOL_CALL, f"the prompts of {self._family.name} show no calls of a response")
        check_shown(text, self._family.shown(question), self._other_text(other), self._family.shown(other))
        return check_encodable(text)

    def unchecked_text(self, question: Question) -> str:
        """The text of a prompt, whatever it shows. Raises `Rejected` if the template refuses."""
        return self._family.text(question, partial(self._tokenizer.template, tools=self._template_tools(question)))

    def _template_tools(self, question: Question) -> tuple[str, ...]:
        # The tools that the template is given: none where the conversation isn't, since the judge can't call them.
        return question.tools if self._family.roles is None else ()

    def ids(self, text: str) -> list[int]:
        return self._frame.around(self._tokenizer.ids([text])[0])
