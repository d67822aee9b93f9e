"""Text of a corpus as the page shows it: bounded, and without characters that act on what stands around them."""

import unicodedata

from actors.text.visible import spell, visible

_MARKS = 8
"""So many marks on a letter are shown as they are: no script has more, and thousands would be painted over other lines."""


def show(text: str, limit: int) -> str:
    """At most `limit` characters of a text, with a note of its length if it is cut; what acts or hides is made visible."""
    shown = _spell_piles(visible(text[:limit].replace("\r\n", "\n")))
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
        pieces.append(character if marks <= _MARKS else spell(character))
    return "".join(pieces)
