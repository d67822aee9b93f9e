"""Strings that aren't ours (names of files, columns, subsets and models), made fit for the place where they are shown.

One function for each place: `line` for a terminal, logs and XML, `markdown`, `code` and `latex` for documents, `visible` for
HTML, whose templates escape by themselves. What acts on a reader or hides from one is spelled out: U+202E as `⟨U+202E⟩`.
"""

import re
from collections.abc import Iterable, Sequence

# Marks that turn the direction of the text after them, also beyond the text that they stand in.
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
# The last two ranges, tags and variation selectors, can hide a whole text. Joiners belong to emoji and to Persian words.
_INVISIBLE = (
    *(0xAD, 0x34F, 0x180E, 0x200B, 0x2028, 0x2029, *range(0x2060, 0x2065), *range(0x206A, 0x2070)),
    *(0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080), *range(0xE0100, 0xE01F0)),
)
# Control characters and halves of surrogate pairs.
_CONTROL = (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))


def spell(character: str) -> str:
    """The code of a character, between brackets that hardly any text has."""
    return f"⟨U+{ord(character):04X}⟩"


_ON_ONE_LINE = {code: spell(chr(code)) for code in (*_CONTROL, *_DIRECTIONS, *_INVISIBLE)}
_VISIBLE = {code: shown for code, shown in _ON_ONE_LINE.items() if chr(code) not in "\t\n"}
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "⟨": r"$\langle$",
        "⟩": r"$\rangle$",
    }
)
# What means something to Markdown, or to GitHub, which shows `$x$` as a formula. Inside of a word `_` is a letter.
_MARKDOWN = re.compile(r"[\\`*\[\]<>|~&#$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def visible(text: str) -> str:
    """A text whose line breaks and tabs stay, and in which nothing else acts or hides."""
    return text.translate(_VISIBLE)


def line(text: str) -> str:
    """A text on one line, in which nothing acts or hides."""
    return text.translate(_ON_ONE_LINE)


def markdown(text: str) -> str:
    """A text that Markdown shows as it is, on one line, also in a cell of a table."""
    return _MARKDOWN.sub(r"\\\g<0>", line(text))


def code(text: str) -> str:
    """A text as code in Markdown, on one line: between more back quotes than it has in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {line(text)} {fence}" if "`" in text else f"`{line(text)}`"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown, whose cells show what is in them."""
    heading, *cells = (f"| {' | '.join(map(markdown, row))} |" for row in (columns, *rows))
    return [heading, f"|{'---|' * len(columns)}", *cells]


def latex(text: str) -> str:
    """A text that LaTeX shows as it is, on one line; in a comment too."""
    return line(text).translate(_LATEX)
