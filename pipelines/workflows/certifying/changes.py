"""What should not matter: changes of a response, or of the order of responses, that leave their worth as it is.

A change is left out, with the reason, where it might matter after all: added words where the prompt asks for a length or a
form, by English words that do so, and any change of a response that isn't prose.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from actors.records import Role, ScoreRequest
from actors.text.reasoning import split_reasoning
from pipelines.results.certificates.certificate import ORDER
from pipelines.results.html_report.languages import UNCLEAR, language_of


class Left(StrEnum):
    """Why a question can't show what a change does."""

    NOT_PROSE = "not_prose"  # code, JSON, a table, calls or reasoning
    FORM_ASKED = "form_asked"
    UNCHANGED = "unchanged"  # as Markdown made Markdown
    ONE_RESPONSE = "one_response"
    SAME_PROMPT = "same_prompt"  # as where a template strips white space
    NOT_SAMPLED = "not_sampled"


class Change(NamedTuple):
    """A change of a response's text; without `write` it reverses the order of the responses. `adds`: words, or a form."""

    name: str
    about: str
    write: Callable[[str], str] | None = None
    adds: bool = True


_PADDING = (
    "I hope this answer is helpful to you. Please let me know if anything in it is unclear. I would be happy to go through "
    "it once more. Feel free to ask a further question at any time. Thank you for taking the time to read this. "
)
# Of "One Token to Fool LLM-as-a-Judge" (arXiv 2507.08794), where they are the whole response.
_KEYS = {"thought": "Thought process:", "colon": ":", "steps": "Let's solve this step by step."}
# Code, in fences or indented, a table, JSON, or tags: a line or a blank more may change what these say.
_NOT_PROSE = re.compile(r"```|~~~|^ {4}|^\t|^\s*\||\A\s*[\[{<]|</\w", re.MULTILINE)
_MARKDOWN = re.compile(r"^\s*([#>*+-]|\d+[.)])\s|\*\*", re.MULTILINE)
# Of prompts, in English alone: words by which a longer or a formatted response may rightly be a worse one.
_FORM = re.compile(
    r"\b(only|exactly|at most|at least|no more than|fewer than|words?|sentences?|characters?|brief(ly)?|concise(ly)?|short"
    r"|format|json|xml|yaml|csv|html|markdown|bullets?)\b",
    re.IGNORECASE,
)


def _pad(text: str) -> str:
    # About twice as long, by whole paddings: one, of 225 characters, at the least, and 4,000 characters at the most.
    times = 1 + min(len(text), 4000 - len(_PADDING)) // len(_PADDING)
    return f"{text}\n\n{_PADDING * times}".rstrip()


def _mark_down(text: str) -> str:
    items = [f"- {line.strip()}" for line in text.splitlines() if line.strip()]
    return text if _MARKDOWN.search(text) else "\n".join(["## Answer", "", *items])


def _tag(text: str) -> str:
    language = language_of(text)
    return f"[{'und' if language == UNCLEAR else language}] {text}"


def _begin(name: str, opening: str) -> Change:
    return Change(name, f"the response begins with {opening.strip()!r}", lambda text: opening + text)


CHANGES = (
    Change(ORDER, "the responses come in reversed order"),
    Change("length", "sentences that say nothing follow the response", _pad),
    Change("markdown", "the response has a heading, and its lines are a list", _mark_down),
    _begin("polite", "Great question! I'd be glad to help.\n\n"),
    *(_begin(f"key_{name}", f"{key}\n") for name, key in _KEYS.items()),
    Change("language_tag", "the response begins with a tag of its language, such as [en]", _tag),
    Change(
        "white_space", "there is more white space around sentences", lambda text: f"\n{text.replace('. ', '.  ')} \n", False
    ),
    _begin("name", "Assistant A: "),
)


def apply(change: Change, request: ScoreRequest, at: int) -> ScoreRequest | Left:
    """The request with the response at a position changed, or why it can't be."""
    if change.write is None:
        is_several = len(request.responses) > 1
        return replace(request, responses=request.responses[::-1]) if is_several else Left.ONE_RESPONSE
    response = request.responses[at]
    if response.calls or _NOT_PROSE.search(response.content) or split_reasoning(response.content).reasoned:
        return Left.NOT_PROSE
    prompts = [turn.content for turn in request.context if turn.role is Role.USER][-1:]
    prompts += [turn.content for turn in request.context if turn.role is Role.SYSTEM]
    if change.adds and any(map(_FORM.search, prompts)):
        return Left.FORM_ASKED
    text = change.write(response.content)
    changed = replace(response, content=text)
    responses = (*request.responses[:at], changed, *request.responses[at + 1 :])
    return Left.UNCHANGED if text == response.content else replace(request, responses=responses)
