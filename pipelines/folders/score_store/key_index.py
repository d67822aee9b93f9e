"""The stored scores by their keys, in a temporary SQLite database of this process: on its disk, and not in its memory.

So each segment is read once, and a hit needs no request to the store. The file has no name: the system deletes it with the
process, however that ends.
"""

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_CACHE_KIB = 16 * 1024
_KEYS_A_QUERY = 500  # well below the number of variables of any build of SQLite


class KeyIndex:
    """Stored scores by key, for one thread at a time. Methods raise `OSError` if the database fails, as on a full disk."""

    def __init__(self) -> None:
        # An empty name is SQLite's for a temporary file, of which at most the page cache is in memory.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.executescript(
            f"""
            pragma cache_size = -{_CACHE_KIB}; pragma journal_mode = off; pragma synchronous = off;
            create table segments (name text primary key);
            create table entries (key blob primary key, scores blob);
            """
        )

    @property
    def size(self) -> int:
        """The bytes of the database."""
        pages, page_bytes = (self._query(f"pragma {name}")[0][0] for name in ("page_count", "page_size"))
        return int(pages * page_bytes)

    def __len__(self) -> int:
        return int(self._query("select count(*) from entries")[0][0])

    def lacking(self, names: Iterable[str]) -> list[str]:
        """Those of some segments that were never added."""
        added_names = {name for (name,) in self._query("select name from segments")}
        return [name for name in names if name not in added_names]

    def add(self, name: str, entries: Mapping[bytes, bytes]) -> None:
        """Add the entries of a segment, whose name is `lacking` no more; keys that are there already stay as they are."""
        with _os_errors():
            self._database.execute("begin")
            try:
                self._database.execute("insert or ignore into segments values (?)", (name,))
                self._database.executemany("insert or ignore into entries values (?, ?)", entries.items())
            finally:
                # Also after an error: without a journal nothing can be undone, and what is left open would refuse the next.
                self._database.execute("commit")

    def find(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The scores of those keys that have some."""
        wanted, scores = list(keys), dict[bytes, bytes]()
        for first in range(0, len(wanted), _KEYS_A_QUERY):
            batch = wanted[first : first + _KEYS_A_QUERY]
            marks = ", ".join("?" * len(batch))
            scores |= dict(self._query(f"select key, scores from entries where key in ({marks})", batch))
        return scores

    def _query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with _os_errors():
            return self._database.execute(statement, values).fetchall()


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raise an error of SQLite, which has classes of its own for a full disk, as what it is."""
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(f"the index in {tempfile.gettempdir()}, of which TMPDIR decides: {error}") from error
