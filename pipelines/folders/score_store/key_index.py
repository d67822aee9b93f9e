"""Where each key lies, in a temporary SQLite database of this process: on its disk, and not in its memory.

Beside the keys it holds the bytes of segments, up to `_CONTENT_BYTES`, so that a hit needs no further request to the store.
The file has no name: the system deletes it with the process, however that ends. Nothing here is trusted: a key is compared
with that of its entry.
"""

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

_CONTENT_BYTES = 2**30
_CACHE_KIB = 16 * 1024
_KEY_BYTES = 16  # of a key's 32: enough to find it, and the whole key is compared with that of the entry
_KEYS_A_QUERY = 500  # well below the number of variables of any build of SQLite


class Place(NamedTuple):
    """Where an entry lies: a segment's name, and the row in it."""

    segment: str
    row: int


class KeyIndex:
    """Places by key. For one thread at a time. Every method raises `OSError` if the database fails, as on a full disk."""

    def __init__(self, content_bytes: int = _CONTENT_BYTES) -> None:
        # An empty name is SQLite's for a temporary file, of which at most the page cache is in memory (negative: KiB).
        # Neither journal nor sync, as the database ends with its process.
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

    @property
    def size(self) -> int:
        pages, page_bytes = (self._query(f"pragma {name}")[0][0] for name in ("page_count", "page_size"))
        return int(pages * page_bytes)

    def __len__(self) -> int:
        return int(self._query("select count(*) from places")[0][0])

    def lacking(self, names: Iterable[str]) -> list[str]:
        """Those of some segments that were never added."""
        added_names = {name for (name,) in self._query("select name from segments")}
        return [name for name in names if name not in added_names]

    def add(self, name: str, keys: Sequence[bytes], content: bytes) -> None:
        """Add a segment; keys that another segment has already stay with that. Its bytes are kept if there is room.

        It may have been dropped before: damaged, and written again since.
        """
        with _os_errors(), self._transaction():
            self._database.execute("insert or ignore into segments (name) values (?)", (name,))
            ((number,),) = self._database.execute("select number from segments where name = ?", (name,)).fetchall()
            self._database.executemany(
                # The first segment with a key keeps it: any score of an equal request will do.
                "insert or ignore into places values (?, ?, ?)",
                [(key[:_KEY_BYTES], number, row) for row, key in enumerate(keys)],
            )
            # None is pushed out: a segment that finds no room is read from the store at each hit.
            if len(content) <= self._room:
                self._database.execute("insert or replace into contents values (?, ?)", (number, content))
                self._room -= len(content)

    def places(self, keys: Sequence[bytes]) -> dict[bytes, Place]:
        by_beginning = {key[:_KEY_BYTES]: key for key in keys}
        beginnings, places = list(by_beginning), dict[bytes, Place]()
        for first in range(0, len(beginnings), _KEYS_A_QUERY):
            batch = beginnings[first : first + _KEYS_A_QUERY]
            rows = self._query(
                "select key, name, row from places join segments on segment = number "
                f"where key in ({', '.join('?' * len(batch))})",
                batch,
            )
            places |= {by_beginning[key]: Place(name, row) for key, name, row in rows}
        return places

    def content(self, name: str) -> bytes | None:
        rows = self._query("select content from contents join segments on segment = number where name = ?", [name])
        return rows[0][0] if rows else None

    def drop(self, name: str) -> None:
        # As one that was added, so that `lacking` never names it again.
        self._query("insert or ignore into segments (name) values (?)", [name])
        self._query("delete from places where segment = (select number from segments where name = ?)", [name])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        # Ends with what was done: without a journal nothing can be undone, and what is left open would refuse the next.
        self._database.execute("begin")
        try:
            yield
        finally:
            self._database.execute("commit")

    def _query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with _os_errors():
            return self._database.execute(statement, values).fetchall()


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    # Raise an error of SQLite, which has classes of its own for a full disk, as what it is.
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(f"the index in {tempfile.gettempdir()}, of which TMPDIR decides: {error}") from error
