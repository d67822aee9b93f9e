"""The delimiters of a judge's prompt: texts, not tokens, that show where one response ends and the next begins.

A response that contains one could forge the other's block. A family names its own; where the checkpoint's template or the
user's rubric decides, they are found around the texts of probe prompts. Only text that nobody writes by chance counts:
something in brackets or angle brackets, or a heading, with at least eight letters and digits.
"""

import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from functools import cache

# A delimiter has so many letters and digits: `[A]`, `<b>` and `### Input` stand in ordinary texts.
_LEAST_LETTERS = 8
_PIECE = re.compile(r"\[[^\[\]\n]{1,80}\]|<[^<>\n]{1,80}>|【[^【】\n]{1,80}】")
_HEADING = re.compile(r"(#{2,6}|={3,}|-{3,}|\*{2,}) ?\w[^\n]{0,80}")
_FILLERS = (0x115F, 0x1160, 0x2800, 0x3164)
_LINE_ENDS = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")


class Delimiters:
    """Finds a prompt's delimiters in texts, ignoring case, white space, invisible characters and compatible forms (NFKD).

    One that begins with a line end counts only where a line begins.
    """

    def __init__(self, texts: Collection[str]) -> None:
        self._plain = {_plain(text) for text in texts}
        self._of_lines = tuple(_plain(text) for text in texts if text.startswith("\n"))
        # The first sign of each, else its first letter: what fewest texts hold.
        rare = (min(text, key=str.isalnum) for text in self._plain)
        self._rare = {character for of_text in rare for character in (of_text, of_text.upper())}

    def are_in(self, text: str) -> bool:
        if not self._plain or (text.isascii() and not any(character in text for character in self._rare)):
            return False  # most texts are ASCII without a bracket, and need no normalised copy
        plain = _plain(text)
        present = {delimiter for delimiter in self._plain if delimiter in plain}
        return not present.issubset(self._of_lines) or (
            bool(present) and any(_plain(line).startswith(self._of_lines) for line in _LINE_ENDS.sub("\n", text).split("\n"))
        )


def between(prompt: str, shown: Collection[str], tokens: Iterable[str]) -> set[str]:
    """The delimiters in a prompt around the `shown` texts; the control `tokens` in it count as line ends.

    Only lines that border on a shown text are looked at, up to the first with words: the rest is instructions.
    """
    parts = re.split("|".join(map(re.escape, shown)), prompt)
    for token in tokens:
        parts = [part.replace(token, "\n") for part in parts]
    parts = [_as_read(part) for part in parts]
    after = (part.split("\n") for part in parts[1:])
    before_it = (part.split("\n")[::-1] for part in parts[:-1])
    return {mark for lines in (*after, *before_it) for mark in _bordering(lines) if _is_distinctive(mark)}


def _bordering(lines: Iterable[str]) -> Iterator[str]:
    # The marks in the first line, which may also have words, and in the lines after it, up to the first with words.
    for number, line in enumerate(map(str.strip, lines)):
        marks = [line] if _HEADING.fullmatch(line) else _PIECE.findall(line)
        words = marks != [line] and re.search(r"\w", _PIECE.sub("", line))
        if words and number > 0:
            return
        yield from marks


def _as_read(text: str) -> str:
    # A text with plain characters, spaces and line ends in place of others that a reader takes for them.
    plain = unicodedata.normalize("NFKD", _LINE_ENDS.sub("\n", text)).translate(_widthless())
    return re.sub(r"[^\S\n]+", " ", plain)


def _is_distinctive(text: str) -> bool:
    return sum(map(str.isalnum, text)) >= _LEAST_LETTERS


def _plain(text: str) -> str:
    """A text without white space, invisible characters and case, in its compatible form. Linear time in its length.

    The marks on characters are removed first: `normalize` sorts those that follow one another, in quadratic time.
    """
    # And again, since compatible forms are made of a letter and its marks, or of spaces.
    return unicodedata.normalize("NFKD", text.translate(_unseen())).translate(_unseen()).casefold()


@cache
def _unseen() -> dict[int, None]:
    """White space of every kind, characters of no width, and marks on others, for `str.translate`.

    Not made at import: looking at all of Unicode takes 0.2 s, and only judges need it.
    """
    return dict.fromkeys(
        code
        for code, character in enumerate(map(chr, range(sys.maxunicode + 1)))
        if character.isspace()
        or unicodedata.category(character) in ("Cc", "Cf", "Me", "Mn")
        or unicodedata.combining(character)
        or code in _FILLERS
    )


@cache
def _widthless() -> dict[int, None]:
    return {code: None for code in _unseen() if not chr(code).isspace()}
