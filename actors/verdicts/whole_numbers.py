"""Whether a number that a pattern takes out of a judge's text is the whole number that the judge wrote there.

The 4 of "4/10", "4-5", "4 1/2", "40 %", "4 or 5", "4,000" and "4.5" is none on a scale from 1 to 5; that of "4/5", "4.",
"**4**", "4 (good)" and "4 - good" is. Nor is a number whose line goes on with another one, with signs alone between them,
unless that is the end of the scale: "4 | 10", "4 : 10" and "4 (10)" are of an unknown scale.
"""

import re
from collections.abc import Collection

from actors.errors import Unreadable
from actors.records import Reason
from actors.verdicts.numbers import FIGURES, NUMBER, WORDS, number_in, plain

# Characters on either side of a number that are looked at; bounded, so that all matches take linear time.
_LOOKED_AT = 200

_PART = r"(?:half|halves|thirds?|quarters?|fourths?|fifths?|tenths?)\b"
# What ends quotation, brackets and tags, and white space in a line.
_CLOSED = r"""(?:[_"'”’)\]}>]|</\w+>|[^\S\n])*"""
_OPENED = r"""(?:["'“‘(\[{]|<\w+>|\s)*"""
_UNIT = rf"(?:{_CLOSED}(?:(?:points?|punkte?|pts|stars?|marks?)\b\.?|[★⭐分点점]))?{_CLOSED}"
_DASH = "[-‐‒–—―−]"
_LIMIT = r"(?:(?:an?|the|possible|maximum|max\.?|total|full|of)\s+)*"
_RANGE = rf"{NUMBER} \s* (?:{_DASH}|to|and|\.\.+)"
_ALONE = r"(?:\s*(?:(?:points?|pts|stars?|marks?|max(?:imum)?)\b|分制?))?(?:\s*[^\w\s:=%/(–-]|\s*$|\n)"
_BEST_SCORE = r"\b(?:max(?:imum|\.)?|(?:top|best|highest|perfect)\s+(?:score|grade|mark))(?:\s+(?:of|points?|score)\b)*+"
_BEST = r"(?:best|highest|top|max(?:imum|\.)?|perfect|perfection|excellent|outstanding|great|ideal|flawless)\b"
_ENDED = r"\s*(?:[)\],;]|$|\n)"
# What says of how many a number is, such as /10, "out of ten", "(1-10)", "where 10 is best", "| 10" and %.
_SCALE = re.compile(
    rf"""{_UNIT} (?: \s* (?P<percent>%|percent\b|per\ cent\b|pct\b)
    | (?: \s* (?:[{{(]?[/⁄∕÷]+[}})]?|\}}\s*\{{)
      | (?!(?<=\])\ ?\[|(?<=\]\ )\[) [^\S\n]* (?![:'’·٫٬]\d)[^\]\w\s,;.~∼^=+±×‐‒–—―−-] [^\w\n]* (?={NUMBER}{_ALONE})
      | [^\S\n]+ [(\[]? (?:in|on|per|from|against|versus|vs\.?) \s+ (?={NUMBER}{_ALONE})
      | [^.!?\n]{{0,40}}? (?={NUMBER} \s* (?:is|being|=|as|for|mean\w*|represent\w*) \s* (?:(?:the|an?)\s+)? {_BEST}
          | {NUMBER} \s+ {_BEST} {_ENDED})
      | [^.!?\n]{{0,40}}? \b{_BEST} (?:\s+(?:possible|score|mark|grade|value|rating)\b)* \s*
          (?: is\b|being\b|=|:|(?=\s{NUMBER}{_ENDED}) ) \s*
      | [^.!?\n]{{0,40}}? {_BEST_SCORE} \s*
      | [,;:=]? (?!\n(?-i:[A-Z])) \s* {_DASH}? \s* [(（\[{{]? \s* (?:
          (?: out[\s-]+of|of|over|von|sur|su|de|av|из|van ) \s* [}})]? [\s-]+ {_LIMIT}
        | (?:(?:on|in|from|of)\s+)? (?:(?:an?|the)\s+)? (?:scale|range)\b [\s:]* (?:(?:of|from|between)\s+)? (?: {_RANGE} )?
        | (?:on|in|from|between) \s+ (?:(?:an?|the)\s+)? {_RANGE}
        | (?:(?:on|in)\s+)? (?:(?:an?|the)\s+)? (?={NUMBER}[\s-](?:points?[\s-])?scale\b)
        | 满分 \s* :?
        | (?<=[(\[]) (?: [/⁄] | {NUMBER} \s* (?:{_DASH}|to) \s* (?={FIGURES}\s*(?:[)\]]|scale\b)) )
      )) {_OPENED} (?P<top>{NUMBER})
    )""",
    re.VERBOSE | re.IGNORECASE,
)
# How a number goes on: in figures, as a range, a sum or a fraction, or as one of two.
_GOES_ON = re.compile(
    rf"""{_CLOSED} (?: (?<!\s)\d | (?<!\s)(?:[.,:'’_·٫٬]|\{{,\}})\d | e[+-]?\d | (?<!\s)(?:[km]|ish)\b
      | \s+\.\d | ,\s*\d{{3}}(?!\d) | [^\S\n]+\d+ (?! \s*[:)] | \.(?!\d) | \d )
      | [,;]\s*{FIGURES} \s* (?:[^\w\s:]|\n|$) )
    | {_UNIT} (?:(?:{_DASH}>?|[=→]>?|[~∼^]|\.\.+)\s*\d|[+±×]|\\(?:pm|times|cdot)\b|x\s*\d|(?:plus|minus)\b|\s*[(,;/-]?\s* (?:
        (?: (?:revised\s+)?to|through|thru|till|until|bis|times|point|comma|no,?\s+wait,? ) \s+ {NUMBER}
      | (?: and|& ) \s* (?: (?:an?\s+|(?:one|two|three)[\s-])? {_PART} | \d )
      | (?: an?\s+ )? {_PART}
      | (?: or|maybe|perhaps|possibly|almost|nearly ) \s+ (?:(?:maybe|perhaps|possibly|even|almost|an?)\s+)*
          (?: {NUMBER} | more|higher|above|less|lower|below|under|over|so|better|worse|at\s )
      | (?: hundred|thousand|million|billion|dozen )\b ))""",
    re.VERBOSE | re.IGNORECASE,
)
# How what comes before a number shows that it began there.
_BEGAN = re.compile(
    rf"""[-‐−+\d]\Z | \d[.,٫٬]\Z | \d{_DASH}\Z | \d\s*[/⁄∕÷~]\s*\Z | \d\s*\.\.+\s*\Z
    | (?:\d|\b(?:{"|".join(WORDS)})) \s+ (?:out\s+of|of|to|or|point) \s+\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_SCALE_BEFORE = re.compile(
    rf"(?:out[\s-]+of|/|\bmax(?:imum|\.)?:?|\d\s*(?:{_DASH}|to|\.\.+))\s*(?P<top>{NUMBER})[^\w\n]*[:=][^\w\n]*$",
    re.IGNORECASE,
)


def check_whole(text: str, place: tuple[int, int], high: float | None, others: Collection[tuple[int, int]] = ()) -> None:
    """Raise `Unreadable` if the number at a place in a text, on a scale that ends at `high`, is only a part of a number.

    `others` are the places of other numbers, which don't belong to it: the 5 of "4, 5" or "4 to 5", if both are asked for.
    """
    begin, end = place
    first = max((other_end for _, other_end in others if other_end <= begin), default=0)
    last = min((other_begin for other_begin, _ in others if other_begin >= end), default=len(text))
    before = plain(text[max(first, begin - _LOOKED_AT) : begin])
    after = plain(text[end : min(last, end + _LOOKED_AT)])[:_LOOKED_AT]  # a single character may have become eighteen
    position = 0
    scale_before = _SCALE_BEFORE.search(before)
    tops = [] if scale_before is None else [number_in(scale_before["top"])]
    while scale := _SCALE.match(after, position):
        tops.append(100 if scale["percent"] else number_in(scale["top"]))
        position = scale.end()
    if any(top != high for top in tops):
        raise Unreadable(Reason.NO_VERDICT)
    if _GOES_ON.match(after, position) or _BEGAN.search(before):
        raise Unreadable(Reason.NO_VERDICT)
