"""Parses one line of a JSONL file, as bytes, into an object."""

import codecs
import functools
import json
from collections.abc import Callable
from itertools import chain

from actors.errors import Rejected
from actors.records import Reason

# Maximum nesting of objects and lists. Far below the limit of Python's stack (about 1,000 levels, less in a deep caller), so
# that a row has the same outcome wherever it is read.
MAX_DEPTH = 100


def parse(line: bytes, number: Callable[[str], object] | None = None) -> dict[str, object]:
    """The object on this line, or `Rejected`: not_utf8, broken_json, too_deep or not_an_object.

    A byte-order mark at the start and a CR at the end are accepted. A blank line is broken JSON, so callers must skip it.
    `number` makes a value of a number's text, in place of Python's own.
    """
    try:
        # Decoded here, because json.loads guesses UTF-16 and UTF-32 from bytes.
        text = line.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise Rejected(Reason.NOT_UTF8, f"at byte {error.start}") from None
    value = parse_json(text, number)
    if not isinstance(value, dict):
        raise Rejected(Reason.NOT_AN_OBJECT, f"a JSON {type(value).__name__}")
    return value


def parse_json(text: str, number: Callable[[str], object] | None = None) -> object:
    """The JSON value of a text, or `Rejected`: broken_json or too_deep.

    `number` is as in `parse`.
    """
    try:
        # The standard library and not orjson, because a row is rejected for what is judged and for nothing else in
        # it: integers of any size stay exact (orjson: 2**70 becomes a float), NaN and Infinity pass (orjson: error),
        # and so do lone surrogates (orjson: error). Of a duplicate key, the last one counts, as everywhere.
        value = _decoder(number).decode(text)
    except RecursionError:
        raise Rejected(Reason.TOO_DEEP, f"more than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise Rejected(Reason.BROKEN_JSON, f"{error.msg} at character {error.pos}") from None
    except ValueError:  # an integer of more than 4,300 digits: Python's guard against quadratic time
        raise Rejected(Reason.BROKEN_JSON, "an integer too long to read") from None
    # An upper bound on the depth that costs almost nothing, and spares most rows the walk.
    if text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise Rejected(Reason.TOO_DEEP, f"more than {MAX_DEPTH} levels")
    return value


@functools.cache
def _decoder(number: Callable[[str], object] | None) -> json.JSONDecoder:
    # json.loads would make one for each line, which takes longer than a short line.
    return json.JSONDecoder(parse_float=number, parse_int=number)


def _deeper_than(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        if not inner:
            return False
        level = list(chain.from_iterable(inner))
    return True
