"""Judges' texts made plain for comparison, and numbers in them, in figures or in words."""

import html
import re
import unicodedata

_TO_TWELVE = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_ROUND = {"fifteen": 15, "twenty": 20, "fifty": 50, "hundred": 100, "thousand": 1000}
WORDS = {word: number for number, word in enumerate(_TO_TWELVE)} | _ROUND
FIGURES = r"\d++(?:[.,]\d+)*+"
NUMBER = rf"(?:(?:an?\s+|one\s+)(?=hundred|thousand))?(?:{FIGURES}|(?:{'|'.join(WORDS)})\b)"

_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufe0f\ufeff]")
_FORMULA = re.compile(r"\\(?:text\w*|math\w+|left|right)(?![a-z])|\\[,;!]|\\(?=[/()\[\]{} :%&#_-])")
_SLASH = re.compile(r"\\(?:over|mid|div|slash|backslash)(?![a-z])")
_EMPHASIS = re.compile(
    r"\*+|`+|~~+|\$+|(?<![^\W_])_+(?=\w)|(?<=[^\W_])_+(?![^\W_])|</?(?:b|i|u|em|strong|code|mark|span|su[bp]|h[1-6]|p)>",
    re.IGNORECASE,
)
_BRACKETS = str.maketrans("【】〔〕", "[][]")
_SPACE = re.compile(r"\s+")


def plain(text: str) -> str:
    """The text without emphasis and invisible characters, with ½ as 1/2, brackets as ASCII, and single spaces.

    For comparison alone: positions in it aren't those in the text.
    """
    # Several spaces would take the patterns, which allow them in many places, far more than linear time.
    text = unicodedata.normalize("NFKC", html.unescape(text)).translate(_BRACKETS)
    text = _SLASH.sub("/", _FORMULA.sub("", _EMPHASIS.sub("", _UNSEEN.sub("", text))))
    return _SPACE.sub(lambda space: "\n" if "\n" in space[0] else " ", text)


def number_in(text: str) -> float | None:
    """The value of a number in words or figures; None of one whose comma may be a decimal point or a separator."""
    word = text.lower().split()[-1] if text.strip() else ""
    value = WORDS.get(word)
    return float(word) if value is None and re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", word) else value
