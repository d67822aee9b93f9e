"""The parts that a listing tells of, in 80 bytes each: a corpus has hundreds of thousands, and the driver all of them."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from pipelines.data.corpus.corpus_files import Range
from pipelines.data.storage import Entry
from pipelines.folders.run_folder.part import Counts, Part

_NUMBERS = 9
"""Of a part: file, start, end, the four counts, further files, and the size in bytes."""
_FAILED, _SIZE = 6, 8
_AT_A_TIME = 1024


class PartList(Sequence[Part]):
    """Parts of one run, sorted. Each `Part` is made when it is looked at."""

    def __init__(self, run: str, numbers: NDArray[np.int64], written: NDArray[np.float64]) -> None:
        """`numbers` is parts x `_NUMBERS`, sorted, and `written` the time of writing of each part."""
        self._run, self._numbers, self._written = run, numbers, written

    @classmethod
    def of(cls, run: str, entries: Iterable[Entry]) -> "PartList":
        """The parts of a run among the files of a folder."""
        numbers, written = array("q"), array("d")
        for entry in entries:
            part = Part.parse(entry.name)
            if part is not None and part.run == run:
                numbers.extend((part.file, *part.range, *part.counts, part.further, entry.size))
                written.append(entry.written)
        table = np.array(numbers, np.int64).reshape(-1, _NUMBERS)
        order = np.lexsort(table[:, _SIZE - 1 :: -1].T)  # the last key, the file, is the first to be compared
        return cls(run, table[order], np.array(written)[order])

    @property
    def entries(self) -> "PackedEntries":
        """The parts, each with its directory entry."""
        return PackedEntries(self)

    @property
    def failed(self) -> NDArray[np.int64]:
        """The number of failed responses of each part."""
        return self._numbers[:, _FAILED]

    def where(self, chosen: NDArray[np.bool_]) -> "PartList":
        """The parts for which `chosen` is true."""
        return PartList(self._run, self._numbers[chosen], self._written[chosen])

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> Part: ...
    @overload
    def __getitem__(self, at: slice) -> "PartList": ...
    def __getitem__(self, at: int | slice) -> "Part | PartList":
        if isinstance(at, slice):
            return PartList(self._run, self._numbers[at], self._written[at])
        return self._make_part(self._numbers[at].tolist())

    def __iter__(self) -> Iterator[Part]:
        for start in range(0, len(self), _AT_A_TIME):
            yield from map(self._make_part, self._numbers[start : start + _AT_A_TIME].tolist())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _make_part(self, numbers: Sequence[int]) -> Part:
        file, start, end, rows, scored, rejected, failed, further, _ = numbers
        return Part(file, Range(start, end), Counts(rows, scored, rejected, failed), self._run, further)


class PackedEntries(Sequence[tuple[Part, Entry]]):
    """Parts with their directory entries. Each pair is made when it is looked at."""

    def __init__(self, parts: PartList) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, at: int) -> tuple[Part, Entry]: ...
    @overload
    def __getitem__(self, at: slice) -> "PackedEntries": ...
    def __getitem__(self, at: int | slice) -> "tuple[Part, Entry] | PackedEntries":
        if isinstance(at, slice):
            return PackedEntries(self.parts[at])
        return self._make_pair(self.parts._numbers[at].tolist(), float(self.parts._written[at]))

    def __iter__(self) -> Iterator[tuple[Part, Entry]]:
        numbers, written = self.parts._numbers, self.parts._written
        for start in range(0, len(self), _AT_A_TIME):
            stretch = slice(start, start + _AT_A_TIME)
            yield from map(self._make_pair, numbers[stretch].tolist(), written[stretch].tolist())

    def _make_pair(self, numbers: Sequence[int], written: float) -> tuple[Part, Entry]:
        part = self.parts._make_part(numbers)
        return part, Entry(part.name, numbers[_SIZE], written)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]
