"""Finds the delimiters around texts in a family's prompts by rendering probes, where it doesn't name them itself."""

import itertools
from collections.abc import Collection

from actors.contracts.family import ChatTemplate, Family
from actors.errors import Rejected
from actors.records import Message, Response, Role, ScoreRequest
from actors.rendering.shown_texts import PROBE
from actors.text.delimiters import between


def probed_delimiters(family: Family, template: ChatTemplate, control_texts: Collection[str]) -> set[str]:
    """The delimiters that the template, or the user's rubric, writes around texts; none if the family has only its own."""
    if not family.probes_delimiters:
        return set()
    speakers = enumerate((Role.USER, Role.ASSISTANT, Role.USER), 1)
    turns = tuple(Message(role, f"{PROBE} of turn {number}") for number, role in speakers)
    delimiters: set[str] = set()
    for count, context in itertools.product(family.counts, (turns[-1:], turns)):
        responses = tuple(Response(f"{at}", f"{PROBE} of response {at}") for at in range(count))
        principles = (family.example_principle(PROBE),) if family.needs_principles else ()
        for question in family.questions(ScoreRequest(context, responses, principles), range(count)):
            shown = (*(turn.content for turn in context), *question.responses)
            try:
                delimiters |= between(family.text(question, template), shown, control_texts)
            except Rejected:  # not every form can be rendered; `Renderer._check_probe` raises for those that must be
                continue
    return delimiters
