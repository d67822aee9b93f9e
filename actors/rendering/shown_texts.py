"""Whether a prompt shows what it asks about: each text where the same prompt shows other words in its place."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import replace

from actors.contracts.family import Family, Question
from actors.errors import Rejected
from actors.records import Reason
from actors.text.reasoning import cut_at_marks

PROBE = "assay probe text"
"""Stands for a user's text where a family and its template are tried out."""
_OTHER_WORDS = f"assay {uuid.uuid4().hex}"
"""Stand in the place of a response; no row holds them."""
_SPACE = re.compile(r"\s*")
_WORDS = re.compile(r"\S(?:.*\S)?", re.DOTALL)
"""All of a text but the white space around it."""


def other_question(family: Family, question: Question) -> Question:
    """The question with other words for all that its prompt must show; equal for questions that differ in these alone."""
    other = family.blank(replace(question, judges=(), times=1), _OTHER_WORDS)
    if not question.responses:  # a policy is shown the conversation alone
        return other
    # A principle is left as it is where it needn't be shown: what comes before a response is to be the same in both.
    shows_principle = any(_OTHER_WORDS in text for text in family.shown(replace(other, responses=question.responses)))
    return replace(
        other,
        context=question.context,
        responses=tuple(map(with_marks_of, question.responses, other.responses)),
        principle=other.principle if shows_principle else question.principle,
    )


def with_marks_of(text: str, blank: str) -> str:
    """A blank text behind the marks of the reasoning that `text` begins with, and the white space around them."""
    *reasoning, answer = cut_at_marks(text)
    if not reasoning:
        return blank
    # With other white space, a template that looks for the marks might write the reasoning anew, or leave it out.
    blanks = (part if at % 2 else _WORDS.sub(PROBE, part) for at, part in enumerate(reasoning))
    return "".join(blanks) + _WORDS.sub(lambda _: blank, answer)


def check_shown(text: str, shown: Sequence[str], other_text: str, other_shown: Sequence[str]) -> None:
    """Raise `Rejected` unless the `shown` texts stand in a prompt where `other_shown` stand in the other one.

    A search in all of the prompt would find a response in the conversation that the template has left out behind it.
    """
    at = begin = 0
    for response, words in zip(shown, other_shown, strict=True):
        place = other_text.find(words, begin)
        # Without the white space at its ends: some templates trim the texts beside it.
        before = other_text[begin:place].strip()
        if text.startswith(before, at := _skip_space(text, at)):
            at = _skip_space(text, at + len(before))
            is_there = text.startswith(response, at)
        else:  # what comes before depends on the response, such as its length: it stands behind the first difference
            pairs = enumerate(zip(before, text[at:], strict=False))
            difference = next((number for number, (left, right) in pairs if left != right), len(before))
            at = text.find(response, at + difference)
            is_there = at >= 0
        if place < 0 or not is_there:
            raise Rejected(Reason.TEMPLATE_REFUSED, "the template leaves the response out, or changes it")
        at, begin = at + len(response), place + len(words)


def _skip_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
