"""Finding a verdict in a judge's text where it was asked for: the parts of parsers that several dialects share.

Their common rule: a number is read only if the text gives that number where the verdict belongs. What is missing, given
twice with different values, or off the scale raises `Unreadable`; it is never a guess, a default or a middle value.
"""

import ast
import json
import re
import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from actors.errors import Unreadable
from actors.records import Reason

T = TypeVar("T", bound=Hashable)

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?")
_OBJECT_START = re.compile(r"""\{\s*(?:"(?:[^"\\]|\\.)*+"|'[^']*'|\w+)\s*:""")
_BRACE = re.compile(r"[{}]")
_UNTAKEN = re.compile(r"""\\["'\\]|[\\\r\n\0]|\b(?:true|false|null)\b""")
_TAKEN = {"\\": " ", "\r": " ", "\n": " ", "\0": " ", "true": "True", "false": "False", "null": "None"}
_NOT_DECIMAL = re.compile(r"[0-9]_[0-9]|\b0[bBoOxX]")


def number(value: object, low: float, high: float) -> float:
    """A number from `low` to `high`: a JSON number, or a string of decimal digits. Raises `Unreadable`.

    The reason is `out_of_range` for a number off the scale, and `no_verdict` for what is none.
    """
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value.strip()):
            raise Unreadable(Reason.NO_VERDICT)
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable(Reason.NO_VERDICT)
    if not low <= value <= high:  # neither is NaN
        raise Unreadable(Reason.OUT_OF_RANGE)
    return float(value)


def the_only(values: Iterable[T]) -> T:
    """The value that all of these equal. Raises `Unreadable` if there is none, or if two differ.

    Neither the first nor the last of two is taken: either may be a quotation.
    """
    distinct = set(values)
    if len(distinct) > 1:
        raise Unreadable(Reason.TWO_VERDICTS)
    if not distinct:
        raise Unreadable(Reason.NO_VERDICT)
    return distinct.pop()


def between(text: str, begin: str, end: str) -> str:
    """The text between two marks. Raises `Unreadable` unless every `begin` has its `end`, and all blocks are equal."""
    blocks = [piece.partition(end) for piece in text.split(begin)[1:]]
    if not all(end_mark for _, end_mark, _ in blocks):
        raise Unreadable(Reason.NO_VERDICT)
    return the_only(block.strip() for block, _, _ in blocks)


def objects(text: str, *names: str, under: Collection[str] = ()) -> tuple[list[Mapping[str, Any]], str]:
    """The outermost JSON objects in a text that have one of the names, and those `under` a name in them; also Python's.

    And the rest of the text, where something else may be stated. An object with a duplicate name is none: nobody can tell
    which value was meant.
    """
    verdicts: list[Mapping[str, Any]] = []
    gaps = []
    position = begin = 0
    while (begin := text.find("{", begin)) >= 0:
        parsed, end = _parse_object(text, begin)
        blocks = () if parsed is None else (parsed, *map(parsed.get, under))
        named = [block for block in blocks if isinstance(block, dict) and not block.keys().isdisjoint(names)]
        if named:
            verdicts += named
            gaps.append(text[position:begin])
            position = end
        begin = end
    return verdicts, "\nJSON\n".join(
        (*gaps, text[position:])
    )  # a word, so that no label before an object gets a value behind it


def _parse_object(text: str, at: int) -> tuple[Mapping[str, Any] | None, int]:
    """The object that begins at `at`, or None, and the position where to search on.

    A broken object is skipped as a whole: an object inside it may be a quotation in one of its strings.
    """
    if _OBJECT_START.match(text, at) is None:
        return None, at + 1
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:  # nested a thousand deep, so no verdict; skip the whole text
        return None, len(text)
    except _DuplicateName:
        return None, _find_end(text, at)
    except ValueError:
        end = _find_end(text, at)
        # Python knows neither JSON's words nor, in a string, raw line breaks and the backslashes of formulas.
        spelled = _UNTAKEN.sub(lambda match: _TAKEN.get(match[0], match[0]), text[at:end])
        return _parse_python(text[at:end]) or _parse_python(spelled), end


def _find_end(text: str, at: int) -> int:
    # The position after the brace that closes the one at `at`, counting braces alone; the text's end if none does.
    depth = 0
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return len(text)


def _parse_python(text: str) -> Mapping[str, Any] | None:
    # An object in Python's spelling: single quotes, True, a comma at the end.
    if _NOT_DECIMAL.search(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a SyntaxWarning for each odd backslash in a judge's text
            tree = ast.parse(text, mode="eval").body
            value = ast.literal_eval(tree)
            has_unique_keys = all(
                len(ast.literal_eval(node)) == len(node.keys) for node in ast.walk(tree) if isinstance(node, ast.Dict)
            )
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict) and has_unique_keys else None


class _DuplicateName(ValueError):
    """One object has a name twice."""


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise _DuplicateName
    return mapping


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant, strict=False)
