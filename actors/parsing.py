"""What judges write, and the numbers in it: the ways of finding a verdict that several dialects share.

The rule of all of them: a number comes out only if the text gives that number, once, in the place where the verdict belongs.
Whatever is missing, doubled with another value or off the scale is `Unreadable`, never a guess, a default or a middle value.
"""

import ast
import json
import re
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from actors.errors import Unreadable
from actors.records import Reason

T = TypeVar("T", bound=Hashable)

THINK, END_THINK = "<think>", "</think>"
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?")
_FLAT = re.compile(r"\{[^{}]*\}")
_NOT_DECIMAL = re.compile(r"[0-9]_[0-9]|\b0[bBoOxX]")


def answer_of(text: str) -> str:
    """What follows the reasoning: all after the last `</think>`. Reasoning that never ended has no answer after it."""
    _, ended, answer = text.rpartition(END_THINK)
    if not ended and THINK in text:
        raise Unreadable(Reason.NO_VERDICT)
    return answer


def number(given: object, low: float, high: float) -> float:
    """A number from `low` to `high`, as JSON has it or in decimal digits."""
    if isinstance(given, str):
        if not _NUMBER.fullmatch(given.strip()):
            raise Unreadable(Reason.NO_VERDICT)
        given = float(given)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise Unreadable(Reason.NO_VERDICT)
    if not low <= given <= high:  # neither is NaN
        raise Unreadable(Reason.OUT_OF_RANGE)
    return float(given)


def the_only(found: Iterable[T]) -> T:
    """What all of these are. None at all is no verdict, and several that differ are none either."""
    different = set(found)
    if len(different) > 1:
        raise Unreadable(Reason.TWO_VERDICTS)
    if not different:
        raise Unreadable(Reason.NO_VERDICT)
    return different.pop()


def between(text: str, begin: str, end: str) -> str:
    """What stands between two marks, which must be there in this order; if several times, always with the same in it."""
    return the_only(found.strip() for found in re.findall(f"{re.escape(begin)}(.*?){re.escape(end)}", text, re.DOTALL))


def objects(text: str) -> Iterator[Mapping[str, Any]]:
    """The JSON objects in a text, wherever they stand, outermost first; also those that are written as Python writes them.

    A name that is there twice in an object makes it none: nobody can tell which value was meant.
    """
    at = 0
    while (at := text.find("{", at)) >= 0:
        found, end = _object(text, at)
        if found is not None:
            yield found
        at = end


def _object(text: str, at: int) -> tuple[Mapping[str, Any] | None, int]:
    """The object that begins here, and where the text goes on; None if none does."""
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:  # nobody means what is nested that deep, and each of its brackets would be tried again
        return None, len(text)
    except _Twice:
        return None, at + 1
    except ValueError:
        return _python(text, at)


def _python(text: str, at: int) -> tuple[Mapping[str, Any] | None, int]:
    """A flat object in Python's spelling: single quotes, True, a comma at the end."""
    match = _FLAT.match(text, at)
    if match is None or _NOT_DECIMAL.search(match[0]):
        return None, at + 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a backslash in a judge's text nobody needs to hear
            tree = ast.parse(match[0], mode="eval").body
            found = ast.literal_eval(tree)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None, at + 1
    if not isinstance(tree, ast.Dict) or len(found) < len(tree.keys):
        return None, at + 1
    return found, match.end()


class _Twice(ValueError):
    """A name that stands twice in one object."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def _no_number(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_number)
