"""Whether a prompt shows all turns, and what it asks about where the same prompt shows other words in its place."""

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from actors.contracts.family import ChatTemplate, Family, Question
from actors.errors import Rejected
from actors.records import Message, Reason, Role
from actors.text.reasoning import cut_at_marks

PROBE = "assay probe text"
"""Stands for a user's text where a family and its template are tried out."""
_OTHER_WORDS = f"assay {uuid.uuid4().hex}"
"""Stand in the place of a response; no row holds them."""
_TURN_WORDS = f"assay turn {uuid.uuid4().hex}"
_TURN = re.compile(rf"{_TURN_WORDS} (\d+)\.")
"""Stands in the place of a turn, with its number."""
_SPACE = re.compile(r"\s*")
_WORDS = re.compile(r"\S(?:.*\S)?", re.DOTALL)
"""All of a text but the white space around it."""


class ShownTemplate:
    """A chat template, whose text must show each message as it is but for the white space around it.

    Two things are a template's right: an assistant's turn without its reasoning, and a tool's turn as JSON.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        # Conversations of the same roles have the same text but for their words. A corpus has few such shapes.
        self._other_text = lru_cache(maxsize=32)(template)

    def __call__(self, messages: Sequence[Message], *, generation_prompt: bool = False) -> str:
        """See `ChatTemplate`. Raises `Rejected` also where the text lacks a message."""
        text = self._template(messages, generation_prompt=generation_prompt)
        changed_turns = tuple(replace(turn, content=_other_words(turn, position)) for position, turn in enumerate(messages))
        other_text = self._other_text(changed_turns, generation_prompt=generation_prompt)
        # Some templates put a system turn behind others: in the order in which they are shown.
        places = {int(match[1]): match.start() for match in reversed(list(_TURN.finditer(other_text)))}
        shown = sorted(
            (places.get(position, -1), *_shown_form(turn, other, other_text, places.get(position)))
            for position, (turn, other) in enumerate(zip(messages, changed_turns, strict=True))
            if turn.content.strip()
        )
        check_shown(text, [turn for _, turn, _ in shown], other_text, [words for *_, words in shown])
        return text


def _other_words(turn: Message, at: int) -> str:
    if not turn.content.strip():  # a template may leave it out for that
        return turn.content
    words = f"{_TURN_WORDS} {at}."
    if turn.role is Role.ASSISTANT:
        return with_marks_of(turn.content, words).strip()
    return f'{words}"' if turn.role is Role.TOOL else words  # another text as JSON


def _shown_form(turn: Message, other: Message, other_text: str, place: int | None) -> tuple[str, str]:
    """The form in which a template shows a turn, and the other words in its place. Raises `Rejected` if it doesn't."""
    for text, words in _forms(turn, other):
        match = _TURN.search(words)
        if match is not None and place is not None and other_text.startswith(words, place - match.start()):
            return text, words
    raise Rejected(Reason.TEMPLATE_REFUSED, f"the template leaves the turn of the {turn.role} out, or changes it")


def _forms(turn: Message, other: Message) -> Iterator[tuple[str, str]]:
    yield turn.content.strip(), other.content
    if turn.role is Role.TOOL:
        yield _in_json(turn.content), _in_json(other.content)
    if turn.role is Role.ASSISTANT:
        yield cut_at_marks(turn.content)[-1].strip(), cut_at_marks(other.content)[-1].strip()


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def other_question(family: Family, question: Question) -> Question:
    """The question with other words for all that its prompt must show; equal for questions that differ in these alone."""
    other = family.blank(replace(question, response_positions=(), times=1), _OTHER_WORDS)
    if not question.responses:  # a policy is shown the conversation alone
        return other
    # Fields are left as they are where they needn't be shown: what comes before a response is to be the same in both.
    shows_fields = any(_OTHER_WORDS in text for text in family.shown(replace(other, responses=question.responses)))
    return replace(
        other,
        context=question.context,
        responses=tuple(map(with_marks_of, question.responses, other.responses)),
        fields=other.fields if shows_fields else question.fields,
    )


def with_marks_of(text: str, blank: str) -> str:
    """A blank text behind the marks of the reasoning that `text` begins with, and the white space around them."""
    *reasoning, answer = cut_at_marks(text)
    if not reasoning:
        return blank
    # With other white space, a template that looks for the marks might write the reasoning anew, or leave it out.
    blanks = (part if position % 2 else _WORDS.sub(PROBE, part) for position, part in enumerate(reasoning))
    return "".join(blanks) + _WORDS.sub(lambda _: blank, answer)


def check_shown(text: str, shown: Sequence[str], other_text: str, other_shown: Sequence[str]) -> None:
    """Raise `Rejected` unless the `shown` texts stand in a prompt where `other_shown` stand in the other one.

    A search in all of the prompt would find a response in the conversation that the template has left out behind it.
    """
    position = begin = 0
    for response, words in zip(shown, other_shown, strict=True):
        place = other_text.find(words, begin)
        # Without the white space at its ends: some templates trim the texts beside it.
        before = other_text[begin:place].strip()
        if text.startswith(before, position := _skip_space(text, position)):
            position = _skip_space(text, position + len(before))
            is_there = text.startswith(response, position)
        else:  # what comes before depends on the response, such as its length: it stands behind the first difference
            pairs = enumerate(zip(before, text[position:], strict=False))
            difference = next((number for number, (expected, actual) in pairs if expected != actual), len(before))
            position = text.find(response, position + difference)
            is_there = position >= 0
        if place < 0 or not is_there:
            raise Rejected(Reason.TEMPLATE_REFUSED, "the template leaves the response out, or changes it")
        position, begin = position + len(response), place + len(words)


def _skip_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


@dataclass(frozen=True, slots=True)
class ShownTurns:
    """The turns that the prompts of a model show."""

    roles: frozenset[Role]
    later_system: bool = True
    """Whether a system turn that isn't the first turn is shown."""
    several_systems: bool = True
    """Whether both of two system turns are: with some templates, one replaces the other."""

    def check(self, context: Sequence[Message]) -> None:
        """Raise `Rejected` for a context of which a turn would be left out."""
        for message in context:
            if message.role not in self.roles:
                raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, message.role)
        systems = [position for position, message in enumerate(context) if message.role is Role.SYSTEM]
        is_later, are_several = max(systems, default=0) > 0, len(systems) > 1
        if (is_later and not self.later_system) or (are_several and not self.several_systems):
            raise Rejected(Reason.ROLE_NOT_IN_TEMPLATE, "a system turn after the first turn")
