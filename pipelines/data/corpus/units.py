"""Units of work: which ranges of which files one read task reads.

A large file is cut into several units, and many small files are read by one task: a task takes Ray 10 to 30 ms, in which
100 KB of rows are read. The number of tasks is bounded, as the driver holds all of them.
"""

import itertools
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.data.corpus.opened_files import parquet_metadata

# What opening a file costs, as bytes read in the same time. A file of less counts as this much.
_FILE_BYTES = 8 * 1024
_LEAST_TASK_BYTES = 2**20
# Tasks of a corpus that is smaller than this many full ones, so that they are spread over a cluster's processors.
_EVEN_TASKS = 256
# Tasks of the largest corpus. Ray Data's driver holds about 4 KB of each, and plans them before the first one starts.
_MOST_TASKS = 20_000


@dataclass(frozen=True)
class Unit:
    """The rows that start in a range of a file (None: all of it), without the ranges in `done`."""

    file: InputFile
    range: Range | None
    done: tuple[Range, ...] = ()

    @property
    def size(self) -> int:
        # Approximate bytes on disk, by which units are grouped to tasks.
        if self.range is None or not self.file.extent:
            return self.file.size
        if self.file.kind is FileKind.JSONL:  # whose extent may be cut by a limit, while its size is that of the whole file
            return self.range.end - self.range.start
        return self.file.size * (self.range.end - self.range.start) // self.file.extent


def task_bytes(total_bytes: int, unit_bytes: int) -> int:
    """Bytes per read task of a corpus of `total_bytes`.

    At most `unit_bytes`, unless the tasks would then be more than 20,000. A small corpus has tasks of 1 MiB, or of
    `unit_bytes` if that is less.
    """
    return max(min(unit_bytes, max(_LEAST_TASK_BYTES, total_bytes // _EVEN_TASKS)), total_bytes // _MOST_TASKS)


def cut(file: InputFile, remaining: Sequence[Range] | None, done: Sequence[Range], unit_bytes: int) -> list[Unit]:
    """Cut what remains of a file into units of about `unit_bytes`; `remaining` is None while the file's end isn't known.

    JSONL is cut by bytes and Parquet between row groups, of which a single one may be larger. Compressed files and arrays
    can only be read from their start, so each of them is a single unit, which skips what is done.
    """
    if remaining is None:
        return [Unit(file, None, tuple(done))]
    if file.kind is FileKind.JSONL:
        # A cut needs no look at the file: a line belongs to the piece in which it starts (`readers`).
        return [
            Unit(file, Range(start, min(start + unit_bytes, gap.end)))
            for gap in remaining
            for start in range(gap.start, gap.end, unit_bytes)
        ]
    if file.kind is FileKind.PARQUET:
        # A small file isn't opened for its row groups: a corpus may have a million of them.
        pieces = remaining if file.size <= unit_bytes else _row_ranges(file, remaining, unit_bytes)
        return [Unit(file, piece) for piece in pieces]
    return [Unit(file, None, tuple(done))] if remaining else []


def group(units: Iterable[Unit], max_bytes: int) -> Iterator[list[Unit]]:
    """Group neighbouring units for a read task each: of up to `max_bytes` together, or a single larger one."""
    members: list[Unit] = []
    size = 0
    for unit in units:
        cost = max(unit.size, _FILE_BYTES)
        if members and size + cost > max_bytes:
            yield members
            members, size = [], 0
        members.append(unit)
        size += cost
    if members:
        yield members


def _row_ranges(file: InputFile, gaps: Iterable[Range], unit_bytes: int) -> Iterator[Range]:
    """Cut gaps in a Parquet file where row groups end: after as many of them as `unit_bytes` hold, or a single larger one.

    A range costs a footer to parse, which tells of every row group: with one range for each, a file took quadratic time.
    """
    groups = row_groups(file)
    rows = unit_bytes * groups[-1].end // file.size if groups else 0
    # Of a file that has lost rows meanwhile the gaps stay whole: that it has changed is noticed where they are read.
    ends = [*(group.end for group in groups), sys.maxsize]
    for start, gap_end in gaps:
        while start < gap_end:
            # The last row group that ends within so many rows, but not before the one that holds the first of them.
            end = ends[max(bisect_right(ends, start + rows) - 1, bisect_right(ends, start))]
            end = gap_end if gap_end <= max(end, start + rows) else end
            yield Range(start, end)
            start = end


def row_groups(file: InputFile) -> list[Range]:
    """The ranges of rows of a Parquet file's row groups that have any.

    Raises `SourceError`, also if the file isn't Parquet any more. One small read: the footer.
    """
    metadata = parquet_metadata(file)
    ends = itertools.accumulate(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    return [Range(start, end) for start, end in itertools.pairwise((0, *ends)) if start < end]
