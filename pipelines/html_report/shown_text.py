"""Text of a corpus as the page shows it: bounded, and without characters that act on what stands around them."""

import unicodedata

_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Marks that turn the direction of the text after them, also beyond the text that they stand in."""
_INVISIBLE = (
    *(0xAD, 0x34F, 0x180E, 0x200B, 0x2028, 0x2029, *range(0x2060, 0x2065), *range(0x206A, 0x2070)),
    *(0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080), *range(0xE0100, 0xE01F0)),
)
"""The last two ranges, tags and variation selectors, can hide a whole text. Joiners belong to emoji and to Persian words."""
_MARKS = 8
"""So many marks on a letter are shown as they are: no script has more, and thousands would be painted over other lines."""


def _spell(character: str) -> str:
    return f"\N{MATHEMATICAL LEFT ANGLE BRACKET}U+{ord(character):04X}\N{MATHEMATICAL RIGHT ANGLE BRACKET}"


_VISIBLE = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
    | {0x7F: "\N{SYMBOL FOR DELETE}"}
    | {code: _spell(chr(code)) for code in (*range(0x80, 0xA0), *_DIRECTIONS, *_INVISIBLE)}
)


def show(text: str, limit: int) -> str:
    """At most `limit` characters of a text, with a note of its length if it is cut; what acts or hides is made visible."""
    shown = _spell_piles(text[:limit].replace("\r\n", "\n").translate(_VISIBLE))
    if max(len(text), len(shown)) <= limit:
        return shown
    return f"{shown[:limit]} \N{HORIZONTAL ELLIPSIS} [cut: {len(text):,} characters in all]"


def _spell_piles(text: str) -> str:
    """The text with the marks on a letter beyond `_MARKS` as their codes."""
    if text.isascii():
        return text
    pieces, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        pieces.append(character if marks <= _MARKS else _spell(character))
    return "".join(pieces)
