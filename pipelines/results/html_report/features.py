"""What can be counted in a response without reading it: length, marks of form, refusals, script, language.

All of it is cheap and rough: a refusal is told by a few English phrases at the beginning.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from actors.records import Message
from pipelines.results.html_report.languages import language_of

LATIN = "Latin"
_LOOKED_AT = 100_000
"""Characters in which marks are counted; the length is that of the whole text."""
_FOR_SCRIPT, _FOR_REFUSAL = 1_000, 300
_MARKDOWN = re.compile(r"^#{1,6} |\*\*[^*\n]+\*\*|^\|.*\|[ \t]*$|^> ", re.MULTILINE)
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+\S", re.MULTILINE)
_CODE = re.compile(r"^[ \t]*(?:```|~~~)|`[^`\n]+`", re.MULTILINE)
_REFUSAL = re.compile(
    r"\b(?:I(?: can(?:['’]t|not|\snot)| won['’]t|(?:['’]m| am) (?:sorry|unable|not able))|as an AI)\b", re.IGNORECASE
)


class Features(NamedTuple):
    """Of a response: lengths and counts; `refusal` and `other_script` are 0 or 1, `script` is that of most letters.

    `language` is an ISO 639 code, or "unclear".
    """

    characters: int
    markdown: int
    list_items: int
    code: int
    refusal: int
    turns: int
    other_script: int
    script: str
    language: str


MEASURES = Features._fields[:-2]
"""Those that are numbers."""


def features(context: Sequence[Message], text: str) -> Features:
    """The features of a response after the turns of a context."""
    head, script = text[:_LOOKED_AT], script_of(text)
    return Features(
        characters=len(text),
        markdown=len(_MARKDOWN.findall(head)),
        list_items=len(_LIST_ITEM.findall(head)),
        code=len(_CODE.findall(head)),
        refusal=int(_REFUSAL.search(text[:_FOR_REFUSAL]) is not None),
        turns=len(context),
        other_script=int(script not in (LATIN, "none")),
        script=script,
        language=language_of(text),
    )


def script_of(text: str) -> str:
    """The script of most letters at the beginning of a text, by the first word of their names; "none" without letters."""
    counts: Counter[str] = Counter()
    for character, count in Counter(text[:_FOR_SCRIPT]).items():
        if character.isalpha():
            counts[unicodedata.name(character, "other").split()[0].split("-")[0]] += count
    return counts.most_common(1)[0][0].capitalize().replace("Cjk", "CJK") if counts else "none"
