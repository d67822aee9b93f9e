"""What judges write, and the numbers in it: the ways of finding a verdict that several dialects share.

The rule of all of them: a number comes out only if the text gives that number, once, in the place where the verdict belongs.
Whatever is missing, doubled with another value or off the scale is `Unreadable`, never a guess, a default or a middle value.
"""

import ast
import json
import re
import warnings
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

from actors.errors import Unreadable
from actors.records import Reason
from actors.text.reasoning import MARKS

T = TypeVar("T", bound=Hashable)

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?")
_BEGINS = re.compile(r"""\{\s*(?:"(?:[^"\\]|\\.)*+"|'[^']*'|\w+)\s*:""")
_BRACE = re.compile(r"[{}]")
_NOT_DECIMAL = re.compile(r"[0-9]_[0-9]|\b0[bBoOxX]")


def answer_of(text: str) -> str:
    """What follows the reasoning: all after its last end mark. Reasoning that never ended has no answer after it."""
    ends = (at + len(mark.end) for mark in MARKS if not mark.paired and (at := text.rfind(mark.end)) >= 0)
    answer = text[max(ends, default=0) :]
    if any(mark.begin in answer for mark in MARKS if not mark.paired):
        raise Unreadable(Reason.NO_VERDICT)
    begun = answer.lstrip()
    for mark in MARKS:
        if mark.paired and begun.startswith(mark.begin) and mark.end in begun:
            return begun.partition(mark.end)[2]
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
    blocks = [rest.partition(end) for rest in text.split(begin)[1:]]
    if not all(ended for _, ended, _ in blocks):
        raise Unreadable(Reason.NO_VERDICT)
    return the_only(block.strip() for block, _, _ in blocks)


def objects(text: str, *names: str) -> list[Mapping[str, Any]]:
    """The JSON objects in a text, wherever they stand, outermost first; also those that are written as Python writes them.

    A name that is there twice in an object makes it none: nobody can tell which value was meant. Raises `Unreadable` if one
    of `names` has a value outside of all that can be read: then the verdict may be there, and what can be read a quotation.
    """
    found, rest = objects_and_rest(text)
    if names and re.search(rf"""(["'])(?:{"|".join(map(re.escape, names))})\1\s*:""", rest):
        raise Unreadable(Reason.NO_VERDICT)
    return found


def objects_and_rest(text: str) -> tuple[list[Mapping[str, Any]], str]:
    """The objects, and what is left of the text without them."""
    objects, rest = [], []
    at = begin = 0
    while (begin := text.find("{", begin)) >= 0:
        found, end = _object(text, begin)
        if found is not None:
            objects.append(found)
            rest.append(text[at:begin])
            at = end
        begin = end
    return objects, " ".join((*rest, text[at:]))


def _object(text: str, at: int) -> tuple[Mapping[str, Any] | None, int]:
    """The object that begins here, and where the text goes on; None if none does.

    What begins like one and can't be read is passed over whole: an object inside it may be what one of its texts quotes.
    """
    if _BEGINS.match(text, at) is None:
        return None, at + 1
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:  # nobody means what is nested that deep
        return None, len(text)
    except _Twice:
        return None, _end(text, at)
    except ValueError:
        end = _end(text, at)
        return _python(text[at:end]), end


def _end(text: str, at: int) -> int:
    """Where what begins with this brace ends, as far as braces alone can tell."""
    depth = 0
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return len(text)


def _python(text: str) -> Mapping[str, Any] | None:
    """An object in Python's spelling: single quotes, True, a comma at the end."""
    if _NOT_DECIMAL.search(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a backslash in a judge's text nobody needs to hear
            tree = ast.parse(text, mode="eval").body
            found = ast.literal_eval(tree)
            whole = all(
                len(ast.literal_eval(node)) == len(node.keys) for node in ast.walk(tree) if isinstance(node, ast.Dict)
            )
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, dict) and whole else None


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
