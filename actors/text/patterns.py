"""A user's regular expressions on generated texts: by RE2, in linear time of the text.

Python's engine backtracks: with `(a+)+b` forty letters take hours, and a response can make a judge write them. RE2 has no
lookaround and no backreferences; its \\d, \\w, \\s and \\b match ASCII only.
"""

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=64)
def linear(pattern: str) -> Any:
    """The compiled pattern, with the methods of Python's.

    Raises `ValueError` for one that RE2 can't take, such as a lookahead or a backreference.
    """
    import re2  # only who has a rubric needs it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        problem = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(
            f"not a valid regular expression in RE2's syntax, which has neither lookaround nor backreferences: {problem}"
        ) from error


def groups_of(pattern: str) -> dict[str, int]:
    """The numbers of a pattern's named groups, in the order of the groups."""
    return dict(sorted(linear(pattern).groupindex.items(), key=lambda group: group[1]))
