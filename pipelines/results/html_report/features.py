"""What can be counted in a response without reading it: length, marks of form, refusals, language.

All of it is cheap and rough: a refusal is told by a few English phrases at the beginning.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from actors.records import Message
from pipelines.results.html_report.languages import language_of

# Characters in which marks are counted, so that a response of megabytes costs no more; the length is that of the whole text.
_LOOKED_AT = 100_000
# Characters: a refusal stands at the beginning of a response.
_FOR_REFUSAL = 300
_MARKDOWN = re.compile(r"^#{1,6} |\*\*[^*\n]+\*\*|^\|.*\|[ \t]*$|^> ", re.MULTILINE)
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+\S", re.MULTILINE)
_CODE = re.compile(r"^[ \t]*(?:```|~~~)|`[^`\n]+`", re.MULTILINE)
_REFUSAL = re.compile(
    r"\b(?:I(?: can(?:['’]t|not|\snot)| won['’]t|(?:['’]m| am) (?:sorry|unable|not able))|as an AI)\b", re.IGNORECASE
)


class Features(NamedTuple):
    """Of a response: lengths and counts; `refusal` is 0 or 1, and `language` an ISO 639 code, or "unclear"."""

    characters: int
    markdown: int
    list_items: int
    code: int
    refusal: int
    turns: int
    language: str


MEASURES = Features._fields[:-1]  # those that are numbers: without the language


def features(context: Sequence[Message], text: str) -> Features:
    """The features of a response after the turns of a context."""
    head = text[:_LOOKED_AT]
    return Features(
        characters=len(text),
        markdown=len(_MARKDOWN.findall(head)),
        list_items=len(_LIST_ITEM.findall(head)),
        code=len(_CODE.findall(head)),
        refusal=int(_REFUSAL.search(text[:_FOR_REFUSAL]) is not None),
        turns=len(context),
        language=language_of(text),
    )
