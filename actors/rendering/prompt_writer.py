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

    before: list[int]
    """A second BOS, for readings of published codes that write one."""
    appended: list[int]
    """The tokens that the family reads the reward at, where the template doesn't write them."""
    step: int | None
    """The token that ends a step, if the family judges steps."""
    padding: int | None
    """The padding token, if the family's class in transformers passes over it."""
    needed: Sequence[int] = ()
    """`Family.needed_ids`."""

    @classmethod
    def of(cls, family: Family, tokenizer: ModelTokenizer, checkpoint: Checkpoint, second_bos: bool) -> "PromptFrame":
        """The frame of a family's prompts for a checkpoint."""
        step = None if family.step_token is None else tokenizer.known_ids([family.step_token]).get(family.step_token)
        padding = checkpoint.pad_token_id if family.skips_padding else None
        return cls(
            tokenizer.prepended if second_bos else [],
            list(family.appended(checkpoint)),
            step,
            padding,
            family.needed_ids(checkpoint),
        )

    def around(self, ids: list[int]) -> list[int]:
        """The ids of a text with what stands around them."""
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

    def is_doubled(self, ids: Sequence[int]) -> bool:
        """Whether a token that the family appends occurs elsewhere, too: no head was trained on a prompt with two."""
        return any(ids.count(token) > self.appended.count(token) for token in self.appended)

    def ends_with_padding(self, ids: Sequence[int]) -> bool:
        """Whether the last token is padding: transformers' class would read the reward before it, the engine at it."""
        return self.padding is not None and ids[-1:] == [self.padding]

    def lacks_needed(self, ids: Sequence[int]) -> bool:
        """Whether ids are missing that every prompt must hold."""
        return bool(self.needed) and find_last(ids, self.needed) is None

    def check(self, ids: Sequence[int]) -> None:
        """Raise `Rejected` for a prompt whose reward the engine would read elsewhere than the model's authors."""
        if self.is_doubled(ids):
            raise Rejected(Reason.TEMPLATE_REFUSED, "the template writes the token where the reward is read, more than once")
        if self.ends_with_padding(ids):
            raise Rejected(Reason.TEMPLATE_REFUSED, "the template ends with padding, after which no reward is read")
        if self.lacks_needed(ids):
            raise Rejected(Reason.TEMPLATE_REFUSED, "the prompt lacks tokens that every prompt of the model has")


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
        """The tools that the template is given: none where the conversation isn't, since the judge can't call them."""
        return question.tools if self._family.roles is None else ()

    def ids(self, text: str) -> list[int]:
        """The ids of a prompt's text, and what stands around them."""
        return self._frame.around(self._tokenizer.ids([text])[0])
