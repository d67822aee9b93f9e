"""The parts that a listing tells of, in 80 bytes each: a corpus has hundreds of thousands, and the driver all of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from pipelines.data.corpus.corpus_files import Range
from pipelines.data.storage import Entry
from pipelines.folders.run_folder.part import Counts, Part

T = TypeVar("T")


class _Row(NamedTuple):
    # In the order in which parts compare, so that sorting by these columns sorts the parts.
    file: int
    start: int
    end: int
    rows: int
    scored: int
    rejected: int
    failed: int
    further: int
    size: int
    written: float


_FIELDS = np.dtype([(name, np.float64 if name == "written" else np.int64) for name in _Row._fields])
# Rows become Python's objects so many at a time: all at once they would take the memory that packing saves.
_AT_A_TIME = 1024


class _Packed(Sequence[T]):
    def __init__(self, run: str, table: NDArray[np.void]) -> None:
        self._run, self._table = run, table

    def _make(self, row: _Row) -> T:
        raise NotImplementedError

    def _make_part(self, row: _Row) -> Part:
        counts = Counts(row.rows, row.scored, row.rejected, row.failed)
        return Part(row.file, Range(row.start, row.end), counts, self._run, row.further)

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Self: ...
    def __getitem__(self, at: int | slice) -> "T | Self":
        if isinstance(at, slice):
            return type(self)(self._run, self._table[at])
        return self._make(_Row(*self._table[at].tolist()))

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), _AT_A_TIME):
            for row in self._table[start : start + _AT_A_TIME].tolist():
                yield self._make(_Row(*row))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


class PartList(_Packed[Part]):
    """Parts of one run, sorted."""

    @classmethod
    def of(cls, run: str, entries: Iterable[Entry]) -> "PartList":
        parsed = ((Part.parse(entry.name), entry) for entry in entries)
        rows = (
            (part.file, *part.range, *part.counts, part.further, entry.size, entry.written)
            for part, entry in parsed
            if part is not None and part.run == run
        )
        # From an iterator: a list of all rows would take several hundred bytes a part.
        table = np.fromiter(rows, _FIELDS)
        # Of `lexsort` the last key, the file, is the first to be compared.
        order = np.lexsort([table[name] for name in reversed(_Row._fields[:-2])])
        return cls(run, table[order])

    @property
    def entries(self) -> "PackedEntries":
        return PackedEntries(self._run, self._table)

    @property
    def failed(self) -> NDArray[np.int64]:
        return self._table["failed"]

    def where(self, chosen: NDArray[np.bool_]) -> "PartList":
        return PartList(self._run, self._table[chosen])

    _make = _Packed._make_part


class PackedEntries(_Packed[tuple[Part, Entry]]):
    """Parts with their directory entries."""

    def _make(self, row: _Row) -> tuple[Part, Entry]:
        part = self._make_part(row)
        return part, Entry(part.name, row.size, row.written)
