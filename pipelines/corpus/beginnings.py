"""What a file of JSON is, told by its beginning: rows in lines, rows as values after one another, or none, and what then."""

import json
import re
import shlex
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from actors.text.lfs_pointers import lfs_problem

_SAMPLE_LINES = 20
_SHOWN_BYTES, _MOST_KEYS = 60, 5
_MARK = b"\xef\xbb\xbf"
_SPACE = " \t\r\n,\ufeff"
_BINARY = {
    b"\x1f\x8b": "is compressed with gzip: name it .jsonl.gz",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd: name it .jsonl.zst",
    b"PAR1": "is a Parquet file: name it .parquet",
    b"PK\x03\x04": "is a zip archive: unpack it",
    b"\xff\xfe\x00\x00": "is UTF-32 text: `iconv -f UTF-32 -t UTF-8` makes UTF-8 of it",
    b"\x00\x00\xfe\xff": "is UTF-32 text: `iconv -f UTF-32 -t UTF-8` makes UTF-8 of it",
    b"\xff\xfe": "is UTF-16 text: `iconv -f UTF-16 -t UTF-8` makes UTF-8 of it",
    b"\xfe\xff": "is UTF-16 text: `iconv -f UTF-16 -t UTF-8` makes UTF-8 of it",
    b"{\x00": "is UTF-16 text: `iconv -f UTF-16LE -t UTF-8` makes UTF-8 of it",
    b"[\x00": "is UTF-16 text: `iconv -f UTF-16LE -t UTF-8` makes UTF-8 of it",
    b"\x00{": "is UTF-16 text: `iconv -f UTF-16BE -t UTF-8` makes UTF-8 of it",
    b"\x00[": "is UTF-16 text: `iconv -f UTF-16BE -t UTF-8` makes UTF-8 of it",
}
"""What isn't JSON in UTF-8, by its first bytes."""
_HOLDERS = frozenset({"annotations", "data", "dataset", "examples", "instances", "items", "records", "results", "rows",
                      "samples", "test", "train", "validation"})  # fmt: skip
"""Keys under which documents hold their rows, and that no row has for a list of objects."""

_TURNS = {"messages": {"role", "content"}, "conversations": {"from", "value"}}
"""The keys of a turn, by the key under which a row holds a list of them."""


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
    """What the file at `path` is that begins so; None if more of it must be read to tell. `is_whole`: this is all of it."""
    other = next((other for mark, other in _BINARY.items() if beginning.startswith(mark)), "")
    if "UTF" in other and b"\0" not in beginning[:8]:
        other = ""  # a first row that isn't UTF-8
    if problem := lfs_problem(beginning) or other:
        return Beginning(Layout.OTHER, problem)
    text = beginning.removeprefix(_MARK)
    lines = [line for line in text.split(b"\n")[: None if is_whole else -1] if line.strip()]
    values = [_value(line) for line in lines[:_SAMPLE_LINES]]
    rows = [value for value in values if isinstance(value, dict)]
    if text.lstrip().startswith(b"[") or any(isinstance(value, list) and _objects(value) for value in values):
        keys = _first_keys(text)
        if turns := next((name for name, parts in _TURNS.items() if parts <= keys), None):
            each = ".[] | " if re.match(rb"\s*\[\s*\[", text) else ""
            return Beginning(
                Layout.OTHER, f"holds lists of turns: {_jq(f'{each}{{{turns}: .}}', path)} writes a row for each"
            )
        return Beginning(Layout.VALUES, keys=keys)
    if len(lines) == 1 and is_whole and rows and (document := _document(rows[0], path)):
        return document
    if rows or not text.strip():
        first = rows[0] if rows else {}
        return Beginning(
            Layout.LINES, f"is one object, with {_named(first)}", frozenset(first), is_whole and len(lines) == 1
        )
    if text.lstrip().startswith(b"<"):
        return Beginning(Layout.OTHER, f"is a page of HTML or XML, such as an error's: it begins with {_shown(text)}")
    return _over_lines(text.decode(errors="replace").strip(_SPACE), is_whole, path)


def _over_lines(text: str, is_whole: bool, path: str) -> Beginning | None:
    """What a file is without an object in its first lines."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        if not is_whole and text.startswith("{"):
            return None
        why = f" ({error})" if text.startswith("{") else ""
        return Beginning(None, f"holds neither JSON arrays nor objects{why}: it begins with {_shown(text.encode())}")
    rest = text[end:].lstrip(_SPACE)
    if isinstance(value, dict) and rest.startswith(("{", "[")):
        return Beginning(Layout.VALUES, keys=frozenset(value))
    if isinstance(value, dict) and not rest:
        return _document(value, path) or Beginning(
            Layout.OTHER,
            f"is one object over several lines, with {_named(value)}: if it is a row, {_jq('.', path)} writes it in a line",
            frozenset(value),
            is_single=True,
        )
    return Beginning(None, f"holds neither JSON arrays nor objects: it begins with {_shown(text.encode())}")


def _document(value: Mapping[str, Any], path: str) -> Beginning | None:
    """What a file is that is this object, if that can't be a row: its rows are in a list, by key or in columns."""
    members = list(value.values())
    if any(_is_turn(member) or (isinstance(member, list) and any(map(_is_turn, member))) for member in members):
        return None
    if members and all(isinstance(member, dict) for member in members):
        if all(key.isdigit() for member in members for key in member):  # as pandas writes a frame
            python = f"import pandas; pandas.read_json({path!r}).to_json('rows.jsonl', orient='records', lines=True)"
            what = f"is one object with {len(members):,} columns of {len(members[0]):,} values, {_named(value)}"
            return _single(what, f'`python -c "{python}"`', value)
        return _single(f"is one object with {_count(members)} by key, {_named(value)}", _jq(".[]", path), members[0])
    lists = {key: member for key, member in value.items() if isinstance(member, list) and _objects(member)}
    may_be_a_row = any(isinstance(member, str) for member in members) and not _HOLDERS.intersection(lists)
    if not lists or may_be_a_row:
        return None
    key = max(lists, key=lambda key: (key in _HOLDERS, len(lists[key])))
    place = f".[{json.dumps(key)}][]"
    return _single(f"is one object with a list of {_count(lists[key])} under {key!r}", _jq(place, path), lists[key][0])


def _single(what: str, command: str, keys: Collection[str]) -> Beginning:
    return Beginning(Layout.OTHER, f"{what}: {command} writes an object in each line", frozenset(keys), is_single=True)


def _jq(place: str, path: str) -> str:
    return f"`jq -c {shlex.quote(place)} {shlex.quote(path)} > rows.jsonl`"


def _count(members: Collection[object]) -> str:
    return f"{len(members):,} object{'s' if len(members) > 1 else ''}"


def _named(keys: Collection[str]) -> str:
    return ", ".join(map(ascii, list(keys)[:_MOST_KEYS])) + (" ..." if len(keys) > _MOST_KEYS else "")


def _shown(text: bytes) -> str:
    return ascii(text.strip()[:_SHOWN_BYTES].decode(errors="replace"))


def _objects(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _is_turn(value: object) -> bool:
    return isinstance(value, dict) and any(parts <= value.keys() for parts in _TURNS.values())


def _value(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _first_keys(text: bytes) -> frozenset[str]:
    """The keys of the first object in arrays; none if it isn't whole here."""
    start = re.match(rb"[\s\[,]*", text)
    try:
        value, _ = json.JSONDecoder().raw_decode(text[start.end() if start else 0 :].decode(errors="replace"))
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(value) if isinstance(value, dict) else frozenset()
