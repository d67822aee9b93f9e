"""Text of a corpus as the page shows it: bounded, and without characters that act on what stands around them."""

_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Marks that turn the direction of the text after them, also beyond the text that they stand in."""
_INVISIBLE = (0x200B, 0x2028, 0x2029, 0xFEFF, *range(0xFFF9, 0xFFFC))
_VISIBLE = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
    | {0x7F: "\N{SYMBOL FOR DELETE}"}
    | {code: f"\N{MATHEMATICAL LEFT ANGLE BRACKET}U+{code:04X}\N{MATHEMATICAL RIGHT ANGLE BRACKET}"
       for code in (*range(0x80, 0xA0), *_DIRECTIONS, *_INVISIBLE)}
)  # fmt: skip


def show(text: str, limit: int) -> str:
    """At most `limit` characters of a text, with a note of its length if it is cut; control characters are made visible."""
    shown = text[:limit].replace("\r\n", "\n").translate(_VISIBLE)
    return shown if len(text) <= limit else f"{shown} \N{HORIZONTAL ELLIPSIS} [cut: {len(text):,} characters in all]"
