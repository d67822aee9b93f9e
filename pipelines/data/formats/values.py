"""What any JSON value of a row is: for a message, and whether it is there at all."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from actors.text.counted import first_of

SHOWN_CHARACTERS, _SHOWN_KEYS = 40, 6
_KEYS_SHOWN = 20  # in a message; all keys of a wide row would be pages


def describe(value: object) -> str:
    """What a value is, for a message: its type, and how it begins.

    Of an object the first six keys, of a list its length and its first item.
    """
    if isinstance(value, Mapping):
        more = ", ..." if len(value) > _SHOWN_KEYS else ""
        return f"an object with {', '.join(ascii(str(key)) for key in list(value)[:_SHOWN_KEYS]) or 'no keys'}{more}"
    if isinstance(value, list):
        return f"a list of {len(value)}, the first {describe(value[0])}" if value else "an empty list"
    kinds = {str: "text", bool: "true or false", int: "a number", float: "a number", bytes: "bytes", type(None): "null"}
    kind, begin = kinds.get(type(value), f"a {type(value).__name__}"), repr(value)[:SHOWN_CHARACTERS]
    return kind if value is None else f"{kind}, {begin}{'...' if len(repr(value)) > SHOWN_CHARACTERS else ''}"


def is_blank(value: object) -> bool:
    """Whether an optional value is absent: null or NaN, only white space, an empty list or object.

    0 and false are values.
    """
    return value is None or is_nan(value) or value in ([], {}) or (isinstance(value, str) and not value.strip())


def is_nan(value: object) -> bool:
    """Whether a value is NaN, which is how pandas writes null into columns of any type."""
    return isinstance(value, float) and math.isnan(value)


def keys_seen(rows: Sequence[object]) -> str:
    """The keys of the rows, the most frequent first, for an error."""
    keys = Counter(str(key) for row in rows if isinstance(row, dict) for key in row).most_common()
    return first_of([ascii(key[:40]) for key, _ in keys], _KEYS_SHOWN) or "none"
