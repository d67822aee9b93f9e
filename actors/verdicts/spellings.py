r"""What a judge's text gives a label in any spelling: `**Score**: 1`, `score = 1`, `<score>1`, a heading and a line.

A judge may quote a verdict in the form that it was asked for, and give its own in another. So what is read in that form is
compared with what the text gives the same label in any other.
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator

_TO_TWELVE = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_MORE = {"fifteen": 15, "twenty": 20, "fifty": 50, "hundred": 100, "thousand": 1000}
WORDS = {word: at for at, word in enumerate(_TO_TWELVE)} | _MORE
FIGURES = r"\d+(?:[.,]\d+)*"
NUMBER = rf"(?:(?:an?\s+|one\s+)(?=hundred|thousand))?(?:{FIGURES}|(?:{'|'.join(WORDS)})\b)"

_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_FORMULA = re.compile(r"\\(?:text\w*|math\w+|left|right)(?![a-z])|\\[,;!]|\\(?=[/()\[\]{} :%&#_-])")
_SLASH = re.compile(r"\\(?:over|mid|div|slash|backslash)(?![a-z])")
_EMPHASIS = re.compile(
    r"\*+|`+|~~+|\$+|(?<![^\W_])_+(?=\w)|(?<=[^\W_])_+(?![^\W_])|</?(?:b|i|u|em|strong|code|mark|span|su[bp]|h[1-6]|p)>",
    re.IGNORECASE,
)
_BRACKETS = str.maketrans("【】〔〕", "[][]")
_SPACE = re.compile(r"\s+")

_ANOTHER = r"""(?: ^[^\w\n]*(?!(?:the|my|our|your|this|its|so|thus|and|final|overall|total)\b)[^\W\d_]+
  | \b(?:max(?:imum|\.)?|min(?:imum|\.)?|highest|lowest|best|worst|top|perfect|full|possible))[^\S\n]+"""
"""Before a label, what makes another one of it, as in "style score: 3" and "the highest score is 10"."""
_BOX = "boxed"
_LEAD = r"(?:(?:the|an?|about|only|just|response|assistant|answer|chatbot|model|option|candidate|solution)[^\S\n]+)*"
_OF_MANY = rf"(?:[^\S\n]*(?:/|out[^\S\n]+of|of)[^\S\n]*{NUMBER})?"


def plain(text: str) -> str:
    """The text without emphasis and invisible characters, with ½ as 1/2, full-width signs as ASCII, and single spaces."""
    # Several spaces would take the patterns, which allow them in many places, far more than linear time.
    text = unicodedata.normalize("NFKC", html.unescape(text)).translate(_BRACKETS)
    text = _SLASH.sub("/", _FORMULA.sub("", _EMPHASIS.sub("", _UNSEEN.sub("", text))))
    return _SPACE.sub(lambda space: "\n" if "\n" in space[0] else " ", text)


def tokens_of(label: str) -> tuple[str, ...]:
    """The words of a label; its brackets, if it has none but two of these; else nothing, as of a number alone.

    One in brackets and capitals, `[RESULT]`, stays so: in other letters it is a word of the text, as in "the result is 42".
    """
    words = re.findall(r"[^\W_]+", label if label.isupper() and "[" in label else label.lower())
    words = [word for word in words if word != _BOX] or words
    last = max(
        (at for at, word in enumerate(words) if word == words[0]), default=0
    )  # "Score: unclear. Score:" is the second
    if any(len(word) > 1 and not word.isdigit() for word in words[last:]):
        return tuple(words[last:])
    brackets = re.findall(r"[\[({<]", label)
    return () if words or len(brackets) < 2 else tuple(brackets)


def any_of(words: Iterable[str]) -> str:
    """A regular expression for one of these words; in other case, only where no word follows it, as in "a close call"."""
    choice = "|".join(map(re.escape, words))
    return rf"(?-i:{choice})(?!\w)|(?:{choice})(?![^\S\n]*[\w'’])"


def assigned(text: str, label: tuple[str, ...], value: str = NUMBER) -> Iterator[str]:
    """The values that a plain text gives a label, whose tokens these are. `value` is a regular expression without groups."""
    if _BOX not in label:
        text = text.replace(rf"\{_BOX}", "")
    # ":" and the like say what follows of any word before them. Without them a value ends its line or sentence.
    words = r"[\W_]{0,8}".join(map(re.escape, label))
    if words.isupper():
        words = f"(?-i:{words})"
    if not label[0].isalnum():
        given = rf"()(?:{words})\s*{_LEAD}({value})(?!\w)()"
    else:
        given = rf"""(?P<another>{_ANOTHER})?(?<!\w)(?<!\w-){words}(?!\w)(?:\s*\([^()\n]{{0,60}}\))?(?:
            [^\w\n]{{0,9}}? (?:(?<![-+*/<>!=])=(?!=)|[:|→⇒>\]{{]|[^\S\n](?:is|gets|earns|receives)\b) [\W_]{{0,20}}
              {_LEAD}({value})(?!\w)
          | (?:[^\w\n]{{1,9}}|[^\w\n]{{0,9}}\n[\W_]{{0,9}}) {_LEAD}({value}){_OF_MANY}[^\w\n]*$
          | [^\w\n]{{1,9}} {_LEAD}({value}){_OF_MANY}[^\w\n]*[.!;](?=\s)
        )"""
    for match in re.finditer(given, text, re.VERBOSE | re.IGNORECASE | re.MULTILINE):
        if not match[1]:
            yield next(filter(None, match.groups()[1:]))


def assigned_before(text: str, label: str, value: str) -> Iterator[str]:
    """The values that stand before a label in a plain text, as in "1 / 10" and "B is Better"."""
    tokens = r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", plain(label))))
    for match in re.finditer(rf"(?<![\w.,])({value})[^\w\n/]{{0,9}}{tokens}(?!\w)", text, re.IGNORECASE):
        yield match[1]


def number_in(text: str) -> float | None:
    """The value of a number in words or figures; None of one whose comma may be a decimal point or a separator."""
    word = text.lower().split()[-1] if text.strip() else ""
    return WORDS[word] if word in WORDS else float(word) if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", word) else None
