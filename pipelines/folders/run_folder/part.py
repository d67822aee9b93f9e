"""A part of a run, whose file name tells all that is known of it without reading it."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from actors.records import Score
from pipelines.data.corpus.corpus_files import Range

RUN = r"[0-9a-f]{16}"  # the pattern of a run's name: eight digits of its identity's hash, and eight random ones

_NUMBER = r"(\d{1,18})"  # one that 64 bits hold
_NAME = re.compile(rf"{_NUMBER}(?:to{_NUMBER})?{f'-{_NUMBER}' * 6}-({RUN})\.parquet")


class Counts(NamedTuple):
    """Numbers of input rows, and of their responses by status.

    `rows` counts input rows also where none of their responses could be read. The order of the fields is that in names.
    """

    rows: int = 0
    scored: int = 0
    rejected: int = 0
    failed: int = 0

    @property
    def responses(self) -> int:
        return self.scored + self.rejected + self.failed

    def __add__(self, other: object) -> "Counts":
        if not isinstance(other, Counts):
            return NotImplemented
        return Counts(*(first + second for first, second in zip(self, other, strict=True)))

    @classmethod
    def of(cls, rows: int, scores: Iterable[Score]) -> Self:
        return cls.of_statuses(rows, (score.status for score in scores))

    @classmethod
    def of_statuses(cls, rows: int, statuses: Iterable[str]) -> Self:
        """The counts of some rows and the statuses of their responses; what is no status isn't counted."""
        by_status = Counter(statuses)
        return cls(rows, *(by_status[name] for name in cls._fields[1:]))


class Part(NamedTuple):
    """A committed range of a file, or of neighbouring files: from a position in the first to one in the last of them.

    `run` is the name of its run, which `Parts` sets when it commits.
    """

    file: int
    range: Range
    counts: Counts
    run: str = ""
    further: int = 0  # how many files after `file` have rows in the part; `range.end` is then a position in the last of them

    @property
    def name(self) -> str:
        return f"{self.place}-{'-'.join(map(str, self.counts))}-{self.run}.parquet"

    @property
    def place(self) -> str:
        last = f"to{self.last_file:06d}" if self.further else ""
        return f"{self.file:06d}{last}-{self.range.start:012d}-{self.range.end:012d}"

    @property
    def last_file(self) -> int:
        return self.file + self.further

    @property
    def begin(self) -> tuple[int, int]:
        # Files come first: positions of a whole corpus are ordered by it.
        return self.file, self.range.start

    @property
    def end(self) -> tuple[int, int]:
        return self.last_file, self.range.end

    def pieces(self, extents: Mapping[int, int | None]) -> Iterator[tuple[int, Range]]:
        """The range of each file that the part covers; `extents` are those of all files, by index.

        Of several files those that are empty, or aren't in `extents`, have none.
        """
        if not self.further:
            yield self.file, self.range
            return
        if self.last_file not in extents:
            return
        # Files between the first and the last are covered whole. One whose extent isn't known counts as empty: `audit` then
        # says that not all of its rows are in the parts.
        for index in range(self.file, self.last_file + 1):
            start = self.range.start if index == self.file else 0
            end = self.range.end if index == self.last_file else extents.get(index) or 0
            if start < end:
                yield index, Range(start, end)

    def report(self) -> dict[str, int]:
        return {
            "file": self.file,
            "further": self.further,
            "start": self.range.start,
            "end": self.range.end,
            **self.counts._asdict(),
        }

    @classmethod
    def of_report(cls, report: Mapping[str, Any]) -> Self:
        counts = Counts(*(report[name] for name in Counts._fields))
        return cls(report["file"], Range(report["start"], report["end"]), counts, "", report["further"])

    @classmethod
    def parse(cls, name: str) -> "Part | None":
        """A part from its name; None for any other file."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        first, last, *numbers, run = match.groups()
        start, end, *counts = map(int, numbers)
        # Interned: a million parts hold one text of their run, and not a million equal ones.
        part = cls(int(first), Range(start, end), Counts(*counts), sys.intern(run), int(last or first) - int(first))
        # Another spelling of the same numbers, such as a leading zero more, is no part: both would count the same rows.
        return part if part.further >= 0 and part.name == name else None
