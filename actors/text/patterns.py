"""A user's regular expressions on generated texts: by RE2, in linear time of the text.

Python's engine backtracks: with `(a+)+b` forty letters take hours, and a response can make a judge write them. RE2 has no
lookaround and no backreferences; its \\d, \\w, \\s and \\b match ASCII only.
"""

import re
from functools import lru_cache
from typing import Any

_MANY_LINES = re.compile(r"\(\?[a-z]*m[a-z]*[:)]")


@lru_cache(maxsize=64)
def linear(pattern: str) -> Any:
    """The compiled pattern, with the methods of Python's. Raises `ValueError` for one that RE2 can't take."""
    import re2  # only who has a rubric needs it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_translate_end_anchors(pattern), options)
    except re2.error as error:
        problem = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(
            f"not a valid regular expression in RE2's syntax, which has neither lookaround nor backreferences: {problem}"
        ) from error


def groups_of(pattern: str) -> dict[str, int]:
    """The numbers of a pattern's named groups, in the order of the groups."""
    return dict(sorted(linear(pattern).groupindex.items(), key=lambda group: group[1]))


def _translate_end_anchors(pattern: str) -> str:
    r"""The pattern with Python's meaning of `$` and `\Z` in RE2's syntax: `$` also matches before a final line break.

    A scan over the pattern, since both are ordinary characters inside a class, and `$` is one after a backslash.
    """
    if _MANY_LINES.search(pattern):
        return pattern.replace(r"\Z", r"\z")  # then it is the end of any line, as in RE2
    parts: list[str] = []
    at, in_class = 0, False
    while at < len(pattern):
        piece = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(piece)
        if piece == "[" and not in_class:
            in_class = True
            piece = (
                pattern[at - 1 : at + 2] if pattern[at : at + 2] == "^]" else "[]" if pattern[at : at + 1] == "]" else piece
            )
            at += len(piece) - 1
        elif piece == "]":
            in_class = False
        parts.append(piece if in_class else {"$": r"(?:\n?\z)", r"\Z": r"\z"}.get(piece, piece))
    return "".join(parts)
