"""Where each key lies, in a temporary SQLite database of this process: on its disk, and not in its memory.

Beside the keys it holds the bytes of segments, up to `_CONTENT_BYTES`, so that a hit needs no further request to the store.
The file has no name: the system deletes it with the process, however that ends.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_CONTENT_BYTES = 2**30
_CACHE_KIB = 16 * 1024
_KEY_BYTES = 16
"""Of a key's 32: enough to find it, and the whole key is compared with that of the entry."""
_KEYS_A_QUERY = 500  # well below the number of variables of any build of SQLite


class Place(NamedTuple):
    """Where an entry lies: a segment's name, and the row in it."""

    segment: str
    row: int


class KeyIndex:
    """Places by key. For one thread at a time."""

    def __init__(self, content_bytes: int = _CONTENT_BYTES) -> None:
        # An empty name is SQLite's for a temporary file, of which at most the page cache is in memory.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.executescript(
            f"""
            pragma cache_size = -{_CACHE_KIB}; pragma journal_mode = off; pragma synchronous = off;
            create table segments (number integer primary key, name text unique);
            create table places (key blob primary key, segment integer, row integer) without rowid;
            create table contents (segment integer primary key, content blob);
            """
        )
        self._room = content_bytes

    def __len__(self) -> int:
        (count,) = self._database.execute("select count(*) from places").fetchone()
        return int(count)

    def lacking(self, names: Iterable[str]) -> list[str]:
        """Those of some segments that were never added."""
        known = {name for (name,) in self._database.execute("select name from segments")}
        return [name for name in names if name not in known]

    def add(self, name: str, keys: Sequence[bytes], content: bytes) -> None:
        """Add a segment; keys that another segment has already stay with that."""
        self._database.execute("begin")
        number = self._database.execute("insert or ignore into segments (name) values (?)", (name,)).lastrowid
        self._database.executemany(
            "insert or ignore into places values (?, ?, ?)",
            [(key[:_KEY_BYTES], number, row) for row, key in enumerate(keys)],
        )
        self._database.execute("commit")
        self.keep(name, content)

    def places(self, keys: Sequence[bytes]) -> dict[bytes, Place]:
        """The places of those keys that have one."""
        by_beginning = {key[:_KEY_BYTES]: key for key in keys}
        beginnings, places = list(by_beginning), dict[bytes, Place]()
        for first in range(0, len(beginnings), _KEYS_A_QUERY):
            some = beginnings[first : first + _KEYS_A_QUERY]
            rows = self._database.execute(
                "select key, name, row from places join segments on segment = number "
                f"where key in ({', '.join('?' * len(some))})",
                some,
            )
            places |= {by_beginning[key]: Place(name, row) for key, name, row in rows}
        return places

    def keep(self, name: str, content: bytes) -> None:
        """Keep the bytes of an added segment, if there is room for them: those that came first stay."""
        if len(content) > self._room:
            return
        added = self._database.execute(
            "insert or ignore into contents select number, ? from segments where name = ?", (content, name)
        )
        self._room -= len(content) * added.rowcount

    def content(self, name: str) -> bytes | None:
        """The bytes of a segment, if they were kept."""
        row = self._database.execute(
            "select content from contents join segments on segment = number where name = ?", (name,)
        ).fetchone()
        return None if row is None else row[0]

    def drop(self, name: str) -> None:
        """Forget the places in a segment, and never take it in again."""
        self._database.execute("insert or ignore into segments (name) values (?)", (name,))
        self._database.execute("delete from places where segment = (select number from segments where name = ?)", (name,))
