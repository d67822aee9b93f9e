"""What a file of JSON is, told by its beginning: rows in lines, rows as values after one another, or none, and what then."""

import json
import shlex
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from actors.text.lfs_pointers import lfs_problem

_SAMPLE_LINES = 20  # one broken line at the start of a file says nothing of the others
_SHOWN_BYTES, _MOST_KEYS = 60, 5  # in messages
_MARK = b"\xef\xbb\xbf"  # UTF-8's byte-order mark, which Windows writes
_SPACE = " \t\r\n,\ufeff"
IS_PARQUET = "is a Parquet file: name it .parquet"
# What isn't text, by its first bytes.
_BINARY = {
    b"\x1f\x8b": "is compressed with gzip: name it .jsonl.gz",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd: name it .jsonl.zst",
    b"PAR1": IS_PARQUET,
    b"PK\x03\x04": "is a zip archive: unpack it",
}
# Keys under which documents hold their rows, and that no row has for a list of objects.
_HOLDERS = frozenset({"annotations", "data", "dataset", "examples", "instances", "items", "records", "results", "rows",
                      "samples", "test", "train", "validation"})  # fmt: skip
_TURNS = ({"role", "content"}, {"from", "value"})  # the keys of a turn, in OpenAI's form and in ShareGPT's


class Layout(StrEnum):
    """How the rows of a file lie: an object in each line, arrays of rows and objects after one another, or as neither."""

    LINES = "lines"
    VALUES = "values"
    OTHER = "other"


class Beginning(NamedTuple):
    """What a file is: the layout of its rows, None where it can't be told.

    `problem` says what it is and what to do if it holds no rows, in words to follow its name. `keys` are those of the first
    row, or of what may be the rows of a file that is a single object: `is_single`.
    """

    layout: Layout | None
    problem: str = ""
    keys: frozenset[str] = frozenset()
    is_single: bool = False


def look_at(beginning: bytes, is_whole: bool, path: str) -> Beginning | None:
    """What the file at `path` is that begins so; None if more of it must be read to tell.

    `is_whole`: the beginning is all of the file. Otherwise its last line may be cut off, and isn't looked at.
    """
    if problem := lfs_problem(beginning) or _other_bytes(beginning):
        return Beginning(Layout.OTHER, problem)
    text = beginning.removeprefix(_MARK)
    lines = [line for line in text.split(b"\n")[: None if is_whole else -1] if line.strip()]
    values = [_value(line) for line in lines[:_SAMPLE_LINES]]
    rows = [value for value in values if isinstance(value, dict)]
    if text.lstrip().startswith(b"[") or any(isinstance(value, list) and _are_objects(value) for value in values):
        return Beginning(Layout.VALUES, keys=_first_keys(text))
    is_single = is_whole and len(lines) == 1
    if is_single and rows and (document := _document(rows[0], path)):
        return document
    if rows or not text.strip():
        first = rows[0] if rows else {}
        return Beginning(Layout.LINES, f"is one object, with {_named(first)}", frozenset(first), is_single)
    if text.lstrip().startswith(b"<"):
        return Beginning(Layout.OTHER, f"is a page of HTML or XML, such as an error's: it begins with {_shown(text)}")
    return _over_lines(text.decode(errors="replace").strip(_SPACE), is_whole, path)


def _other_bytes(beginning: bytes) -> str | None:
    # RFC 4627's rule, by the zeros among the first four bytes, as the first two characters of JSON are ASCII.
    encoding = json.detect_encoding(beginning)
    if not encoding.startswith("utf-8") and b"\0" in beginning[:8]:  # a first row that begins with other bytes has no zeros
        name = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
        return f"is {name[:6]} text: `iconv -f {name} -t UTF-8` makes UTF-8 of it"
    return next((problem for mark, problem in _BINARY.items() if beginning.startswith(mark)), None)


def _over_lines(text: str, is_whole: bool, path: str) -> Beginning | None:
    why = remainder = ""
    value = None
    try:
        value, end = json.JSONDecoder().raw_decode(text)
        remainder = text[end:].lstrip(_SPACE)
    except (ValueError, RecursionError) as error:
        if text.startswith("{"):
            if not is_whole:  # an object that may end later in the file
                return None
            why = f" ({error})"
    if isinstance(value, dict) and remainder.startswith(("{", "[")):
        return Beginning(Layout.VALUES, keys=frozenset(value))
    if isinstance(value, dict) and not remainder:
        problem = (
            f"is one object over several lines, with {_named(value)}: if it is a row, {_jq('.', path)} writes it in a line"
        )
        return _document(value, path) or Beginning(Layout.OTHER, problem, frozenset(value), is_single=True)
    return Beginning(None, f"holds neither JSON arrays nor objects{why}: it begins with {_shown(text.encode())}")


def _document(value: Mapping[str, Any], path: str) -> Beginning | None:
    """What a file is that is this object, if that can't be a row: its rows are in a list, or by key."""
    members = list(value.values())  # with a turn among them it is a row, such as {"prompt": turn, "chosen": turn}
    if any(_is_turn(turn) for member in members for turn in (member if isinstance(member, list) else [member])):
        return None
    lists = {key: member for key, member in value.items() if isinstance(member, list) and _are_objects(member)}
    if _are_objects(members) and _are_columns(members):
        keys, what = value, f"{len(members):,} columns by the number of the row, as pandas writes them, {_named(value)}"
        command = _jq("(first(.[]) | keys_unsorted[]) as $row | map_values(.[$row])", path)
    elif _are_objects(members):
        keys, what, command = members[0], f"{len(members):,} objects by key, {_named(value)}", _jq(".[]", path)
    # With texts beside the list it may be a row that carries objects, such as {"question": ..., "steps": [{...}]}.
    elif lists and (_HOLDERS.intersection(lists) or not any(isinstance(member, str) for member in members)):
        key = max(lists, key=lambda key: (key in _HOLDERS, len(lists[key])))
        keys, what = lists[key][0], f"a list of {len(lists[key]):,} objects under {key!r}"
        command = _jq(f".[{json.dumps(key)}][]", path)
    else:
        return None
    problem = f"is one object with {what}: {command} writes an object in each line"
    return Beginning(Layout.OTHER, problem, frozenset(keys), is_single=True)


def _jq(place: str, path: str) -> str:
    return f"`jq -c {shlex.quote(place)} {shlex.quote(path)} > rows.jsonl`"


def _named(keys: Collection[str]) -> str:
    return ", ".join(map(ascii, list(keys)[:_MOST_KEYS])) + (" ..." if len(keys) > _MOST_KEYS else "")


def _shown(text: bytes) -> str:
    return ascii(text.strip()[:_SHOWN_BYTES].decode(errors="replace"))


def _are_objects(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _are_columns(members: list[Any]) -> bool:
    numbers = members[0].keys()
    return all(map(str.isdigit, numbers)) and all(member.keys() == numbers for member in members)


def _is_turn(value: object) -> bool:
    return isinstance(value, dict) and any(parts <= value.keys() for parts in _TURNS)


def _value(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _first_keys(text: bytes) -> frozenset[str]:
    try:
        value, _ = json.JSONDecoder().raw_decode(text.decode(errors="replace").lstrip(f"{_SPACE}["))
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(value) if isinstance(value, dict) else frozenset()


def damage_advice(compression: str) -> str:
    """What to do with a compressed file that breaks off, as the end of a message."""
    return (
        f"It is cut off or damaged (`{compression} -t` says so, too): fetch it again, or leave it out, or save the "
        f"lines that are whole with `{compression} -dc` into another file and give that"
    )
