"""Text of a corpus as the page shows it: bounded, and without characters that act on what stands around them."""

from actors.text.visible import visible


def show(text: str, limit: int) -> str:
    """At most `limit` characters of a text, with a note of its length if it is cut; what acts or hides is made visible."""
    shown = visible(text[:limit].replace("\r\n", "\n"))
    # What is made visible is longer than it was: ten characters for each, so that a text of them would make a page large.
    if max(len(text), len(shown)) <= limit:
        return shown
    return f"{shown[:limit]} \N{HORIZONTAL ELLIPSIS} [cut: {len(text):,} characters in all]"
