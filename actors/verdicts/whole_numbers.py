"""Whether a number that a pattern takes out of a judge's text is the whole number that the judge wrote there.

The 4 of "4/10", "4-5", "4 1/2", "40 %", "4 or 5", "4,000" and "4.5" is none on a scale from 1 to 5; that of "4/5", "4.",
"**4**", "4 (good)" and "4 - good" is.
"""

import re
import unicodedata
from collections.abc import Collection

from actors.errors import Unreadable
from actors.records import Reason

_LOOKED_AT = 200
"""Characters on either side of a number that are looked at; bounded, so that all matches take linear time."""
_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_SPACE = re.compile(r"\s+")

_TO_TWELVE = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_MORE = {"fifteen": 15, "twenty": 20, "fifty": 50, "hundred": 100, "thousand": 1000}
_WORDS = {word: at for at, word in enumerate(_TO_TWELVE)} | _MORE
_FIGURES = r"\d+(?:[.,]\d+)*"
_NUMBER = rf"(?:(?:an?\s+|one\s+)(?=hundred|thousand))?(?:{_FIGURES}|(?:{'|'.join(_WORDS)})\b)"
_PART = r"(?:half|halves|thirds?|quarters?|fourths?|fifths?|tenths?)\b"
_CLOSED = r"""(?:[*_`"'”’)\]}>$]|</\w+>|\\[,;!)\]]|[^\S\n])*"""
"""What ends emphasis, code, quotation, brackets, formulas and tags, and white space in a line."""
_UNIT = rf"(?:{_CLOSED}(?:(?:points?|punkte?|pts|stars?|marks?)\b\.?|[★⭐分点점]))?{_CLOSED}"
_DASH = "[-‐‒–—―−]"
_LIMIT = r"(?:(?:an?|the|possible|maximum|max\.?|total|of)\s+)*"
_SCALE = re.compile(
    rf"""{_UNIT} (?: \s* \\?(?P<percent>%|percent\b|per\ cent\b|pct\b)
    | (?: \s* (?:[/⁄∕÷]|\}}\s*\{{)
      | [,;:=]? \s* {_DASH}? \s* [(（\[]? \s* (?:
          (?: out\s+of|of|over|von|sur|su|de|av|из|van ) \s+ {_LIMIT}
        | (?:(?:on|in|from|of)\s+)? (?:(?:an?|the)\s+)? (?:scale|range)\b [\s:]* (?:(?:of|from|between)\s+)?
            (?: {_NUMBER} \s* (?:{_DASH}|to|and) )?
        | (?:on|in|from|between) \s+ (?:(?:an?|the)\s+)? {_NUMBER} \s* (?:{_DASH}|to|and)
        | (?:on|in) \s+ (?:an?|the) \s+ (?={_NUMBER}[\s-]points?\b)
        | (?: 满分 | max(?:imum|\.)? (?:\s+(?:of|points?|score)\b)*+ :? )
        | (?<=[(\[]) (?: [/⁄] | {_NUMBER} \s* (?:{_DASH}|to) \s* (?={_FIGURES}\s*[)\]]) )
      )) \s* (?P<top>{_NUMBER})
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""What says of how many a number is, such as /10, "out of ten", "(1-10)" and %."""
_GOES_ON = re.compile(
    rf"""{_CLOSED} (?: (?<!\s)\d | (?<!\s)(?:[.,:'’_·٫٬]|\{{,\}})\d | e[+-]?\d | (?<!\s)(?:[km]|ish)\b
      | \s+\.\d | \\?,\s*\d{{3}}(?!\d) | [^\S\n]+\d+ (?! \s*[:)] | \.(?!\d) | \d )
      | ,\s*{_FIGURES} \s* (?:[^\w\s:]|\n|$) )
    | {_UNIT} (?:(?:{_DASH}>?|[=→]>?|[~∼^]|\.\.+)\s*\d|[+±×]|\\(?:pm|times|cdot)\b|x\s*\d|(?:plus|minus)\b|\s*[(,;/-]?\s* (?:
        (?: (?:revised\s+)?to|through|thru|till|until|bis|times|point|comma|no,?\s+wait,? ) \s+ {_NUMBER}
      | (?: and|& ) \s* (?: (?:an?\s+|(?:one|two|three)[\s-])? {_PART} | \d )
      | (?: an?\s+ )? {_PART}
      | (?: or|maybe|perhaps|possibly|almost|nearly ) \s+ (?:(?:maybe|perhaps|possibly|even|almost|an?)\s+)*
          (?: {_NUMBER} | more|higher|above|less|lower|below|under|over|so|better|worse|at\s )
      | (?: hundred|thousand|million|billion|dozen )\b ))""",
    re.VERBOSE | re.IGNORECASE,
)
"""How a number goes on: in figures, as a range, a sum or a fraction, or as one of two."""
_BEGAN = re.compile(
    rf"""[-‐−+\d]$ | \d[.,٫٬]$ | \d{_DASH}$ | \d\s*[/⁄∕÷~]\s*$ | \d\s*\.\.+\s*$
    | (?:\d|\b(?:{"|".join(_WORDS)})) \s+ (?:out\s+of|of|to|or|point) \s+$""",
    re.VERBOSE | re.IGNORECASE,
)
"""How what comes before a number shows that it began there."""


def check_whole(text: str, place: tuple[int, int], high: float | None, others: Collection[tuple[int, int]] = ()) -> None:
    """Raise `Unreadable` if the number at a place in a text, on a scale that ends at `high`, is only a part of a number.

    `others` are the places of other numbers, which don't belong to it: the 5 of "4, 5" or "4 to 5", if both are asked for.
    """
    begin, end = place
    first = max((other_end for _, other_end in others if other_end <= begin), default=0)
    last = min((other_begin for other_begin, _ in others if other_begin >= end), default=len(text))
    before = _plain(text[max(first, begin - _LOOKED_AT) : begin])
    after = _plain(text[end : min(last, end + _LOOKED_AT)])[:_LOOKED_AT]  # a single character may have become eighteen
    at = 0
    while scale := _SCALE.match(after, at):
        if high != (100 if scale["percent"] else _value(scale["top"])):
            raise Unreadable(Reason.NO_VERDICT)
        at = scale.end()
    if _GOES_ON.match(after, at) or _BEGAN.search(before):
        raise Unreadable(Reason.NO_VERDICT)


def _plain(text: str) -> str:
    """The text with ½ as 1/2, full-width signs as their ASCII ones, single spaces, and no characters that nobody sees."""
    # Several spaces would take the patterns, which allow them in many places, far more than linear time.
    return _SPACE.sub(_line_end_or_space, _UNSEEN.sub("", unicodedata.normalize("NFKC", text)))


def _line_end_or_space(space: re.Match[str]) -> str:
    return "\n" if "\n" in space[0] else " "


def _value(number: str) -> float | None:
    """The value of a number in words or figures; None of one whose comma may be a decimal point or a separator."""
    word = number.lower().split()[-1]
    return _WORDS[word] if word in _WORDS else float(word) if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", word) else None
