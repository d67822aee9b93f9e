"""Judges' texts made plain for comparison, and numbers in them: in figures, in words, in Roman numerals."""

import html
import re
import unicodedata

_TO_TWELVE = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6, "vii": 7, "viii": 8, "ix": 9, "x": 10}
_ROUND = {"fifteen": 15, "twenty": 20, "fifty": 50, "hundred": 100, "thousand": 1000}
WORDS = {word: number for number, word in enumerate(_TO_TWELVE)} | _ROUND
FIGURES = r"\d++(?:[.,]\d+)*+"
NUMBER = rf"(?:(?:an?\s+|one\s+)(?=hundred|thousand))?(?:{FIGURES}|(?:{'|'.join(WORDS)})\b)"
# A number where a verdict is expected: there "V" is five, and "I", unless words follow it.
NUMERAL = rf"{NUMBER}|(?-i:{'|'.join(_ROMAN).upper()})(?!['’]|[^\S\n]*\w)"

_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufe0f\ufeff]")
_FORMULA = re.compile(r"\\(?:text\w*|math\w+|left|right)(?![a-z])|\\[,;!]|\\(?=[/()\[\]{} :%&#_-])")
_SLASH = re.compile(r"\\(?:over|mid|div|slash|backslash)(?![a-z])")
_EMPHASIS = re.compile(
    r"\*+|`+|~~+|\$+|(?<![^\W_])_+(?=\w)|(?<=[^\W_])_+(?![^\W_])|</?(?:b|i|u|em|strong|code|mark|span|su[bp]|h[1-6]|p)>",
    re.IGNORECASE,
)
# Brackets, and Cyrillic and Greek letters, that nobody can tell from the Latin ones in a label.
_LOOK_ALIKES = str.maketrans(
    "【】〔〕АВЕЅІЈКМНОРСТУХаеѕіјорсухΑΒΕΖΗΙΚΜΝΟΡΤΥΧο",
    "[][]ABESIJKMHOPCTYXaesijopcyxABEZHIKMNOPTYXo",
)
_SPACE = re.compile(r"\s+")


def plain(text: str) -> str:
    """The text without emphasis and invisible characters, with ½ as 1/2, look-alikes as ASCII, and single spaces.

    For comparison alone: positions in it aren't those in the text.
    """
    # Several spaces would take the patterns, which allow them in many places, far more than linear time.
    text = unicodedata.normalize("NFKC", html.unescape(text)).translate(_LOOK_ALIKES)
    text = _SLASH.sub("/", _FORMULA.sub("", _EMPHASIS.sub("", _UNSEEN.sub("", text))))
    return _SPACE.sub(lambda space: "\n" if "\n" in space[0] else " ", text)


def number_in(text: str) -> float | None:
    """The value of a number in words or figures; None of one whose comma may be a decimal point or a separator."""
    word = text.lower().split()[-1] if text.strip() else ""
    value = WORDS.get(word, _ROMAN.get(word))
    return float(word) if value is None and re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", word) else value
