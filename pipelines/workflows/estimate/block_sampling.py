"""A random sample of a corpus by blocks of neighbouring rows, which are read and rendered as the run does.

A row belongs to the block in which it starts: no row is cut, and a long row is no likelier to be drawn than a short one, as
it would be if the row around a random byte were taken.

1. JSONL has blocks of bytes and Parquet blocks of rows. Only those that are drawn are read.
2. Compressed files and arrays can only be read from their start. They are read through, and some of their blocks are kept.
   If they are too large together, some files are drawn at random; of a file that is too large by itself, the beginning is
   read, and `Sample.beginnings` names it.
"""

import itertools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from actors.errors import SettingsError
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.data.corpus.readers import BLANK, NOTE, START, bytes_per_position, raw_rows, read
from pipelines.data.corpus.units import Unit, row_groups
from pipelines.workflows.estimate.intervals import DrawnUnits
from pipelines.workflows.estimate.tally import QUANTITIES, Tally, Values

# Blocks that are drawn at the least, and rows of a block at the most: a smaller sample has shorter blocks, not fewer, as
# neighbouring rows are alike, and the number of blocks decides how sure a total is.
_BLOCKS, _BLOCK_ROWS = 250, 8
_FEWEST_UNITS = 16  # blocks, or files, of each kind of file at the least: fewer don't show how much all of them differ
_READ_THROUGH = 2 * 2**30  # bytes on disk that are read from the start of files: about ten minutes of one core
_PLACES, _PLACE_BYTES = 20, 2**16  # random places of the text, and the bytes there, by which rows are measured

Count = Callable[[pa.Table], Tally]
OnProgress = Callable[[int, int], None]  # blocks (or files, where they are read through) that are done, and of how many


@dataclass
class Sample:
    """What was drawn, for `intervals.totals`, and `seen`: the counts of the drawn rows themselves.

    `lengths` (prompt tokens) and `reasons` are weighted: each entry is the number of responses of the corpus that it stands
    for. `beginnings` are names of files of which only the beginning was read.
    """

    parts: list[DrawnUnits] = field(default_factory=list)
    seen: Tally = field(default_factory=Tally)
    lengths: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    blocks: int = 0
    beginnings: list[str] = field(default_factory=list)

    def add(self, tallies: Sequence[Tally], weight: float) -> None:
        self.blocks += len(tallies)
        for tally in tallies:
            self.seen.join(tally)
            for histogram, counts in ((self.lengths, tally.lengths), (self.reasons, tally.reasons)):
                for key, count in counts.items():
                    histogram[key] += count * weight  # type: ignore[index, assignment]

    def of_more_rows(self, rows: int) -> "Sample":
        """The same sample of a corpus with so many rows, of which the files are a part; the units' sizes are then rows.

        Raises `SettingsError` if the files hold more rows, or none.
        """
        column = QUANTITIES.index("rows")
        measured = sum(part.total[column] for part in self.parts)
        if not 1 <= measured <= rows:
            raise SettingsError(
                f"--rows {rows} is of a corpus of which INPUTS are a part, and these hold {measured:,.0f} rows"
            )
        parts = [
            replace(
                part,
                values=(values := part.values[part.values[:, column] > 0]),
                sizes=values[:, column],
                size=float(part.total[column] * rows / measured),
                units=part.units * rows / measured,
                rows_known=True,
            )
            for part in self.parts
            if part.total[column]
        ]
        reasons = Counter({reason: count * rows / measured for reason, count in self.reasons.items()})
        return replace(self, parts=parts, reasons=reasons)


@dataclass
class BlockSampler:
    """Samples the rows of a corpus. Equal seeds draw equal rows of equal files.

    `count` tallies a table of raw rows; `row_bytes` is a first guess at the bytes of a row.
    """

    count: Count
    max_record_bytes: int
    row_bytes: float
    seed: int
    on_progress: OnProgress = lambda done, total: None

    def __post_init__(self) -> None:
        self._block_rows = _BLOCK_ROWS
        self._rng = Random(self.seed)

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        """Sample about `rows` rows of the files; all, if there are no more.

        Each kind of file is a part of its own, with rows by its share of the bytes. Raises `SourceError` if a file can't be
        read.
        """
        sample = Sample()
        files = [file for file in files if file.extent != 0 and file.size]
        self._block_rows = max(1, min(_BLOCK_ROWS, rows // _BLOCKS))
        for kind in sorted({file.kind for file in files}):
            files_of_kind = [file for file in files if file.kind is kind]
            rows_of_kind = rows * _size(files_of_kind) / _size(files)
            if kind in (FileKind.JSONL, FileKind.PARQUET):
                self._draw_blocks(files_of_kind, rows_of_kind, sample)
            else:
                self._read_files(files_of_kind, rows_of_kind, sample)
        return sample

    def _draw_blocks(self, files: Sequence[InputFile], rows: float, sample: Sample) -> None:
        """Sample about so many rows of files of which any block can be read.

        Blocks are numbered through all files, and no block lies in two files: the last block of a file is shorter.
        """
        is_parquet = files[0].kind is FileKind.PARQUET
        row_length = 1.0 if is_parquet else self._measured_row_bytes(files)  # in positions: rows, or bytes
        length = max(1, round(self._block_rows * row_length))
        extents = [file.extent or 0 for file in files]
        # ends[i] is the number of the first block after file i, so ends[-1] is how many blocks there are.
        ends = list(itertools.accumulate(math.ceil(extent / length) for extent in extents))
        drawn = max(_FEWEST_UNITS, math.ceil(ends[-1] * rows * row_length / sum(extents)))
        numbers = sorted(self._rng.sample(range(ends[-1]), min(drawn, ends[-1])))
        tallies: list[Tally] = []
        sizes: list[int] = []
        # In corpus order, so that each file is opened once.
        for index, numbers_of_file in itertools.groupby(numbers, key=lambda number: bisect_right(ends, number)):
            first = ends[index - 1] if index else 0
            starts = [(number - first) * length for number in numbers_of_file]
            blocks = [Range(start, min(start + length, extents[index])) for start in starts]
            for tally in self._tally_blocks(files[index], blocks):
                tallies.append(tally)
                self.on_progress(len(tallies), len(numbers))
            sizes += [block.end - block.start for block in blocks]
        part = DrawnUnits(_values(tallies), np.array(sizes, np.float64), sum(extents), ends[-1], rows_known=is_parquet)
        sample.parts.append(part)
        sample.add(tallies, part.weight)

    def _measured_row_bytes(self, files: Sequence[InputFile]) -> float:
        # At random places: the first rows of files are often unlike the others. Blocks that are cut by rows which are much
        # too long hold hundreds of the others, and of blocks by rows which are too short nearly all hold none.
        rows = size = 0
        for file in self._rng.choices(files, [file.extent or 0 for file in files], k=_PLACES):
            start = self._rng.randrange(file.extent or 1)
            piece = Range(start, min(start + _PLACE_BYTES, file.extent or 0))
            for row in raw_rows(Unit(file, piece), self.max_record_bytes):
                rows, size = rows + 1, size + row.end - row.start
        return size / rows if rows else self.row_bytes

    def _tally_blocks(self, file: InputFile, blocks: Sequence[Range]) -> Iterator[Tally]:
        # In ascending order, so that a file is read forward.
        stretches = [[block] for block in blocks]
        if file.kind is FileKind.PARQUET:
            # A row group can only be decoded whole, so all blocks that begin in it are taken from one decoding.
            ends = [group.end for group in row_groups(file)]
            grouped = itertools.groupby(blocks, key=lambda block: bisect_right(ends, block.start))
            stretches = [list(blocks_of_group) for _, blocks_of_group in grouped]
        for stretch in stretches:
            tallies = [Tally() for _ in stretch]
            unit = Unit(file, Range(stretch[0].start, stretch[-1].end))
            for table in read(unit, self.max_record_bytes, ignore_end):
                # Of a stretch all rows between its first and last block are read; (blocks, 2) are the indices of each in it.
                edges = np.searchsorted(table.column(START).to_numpy(), np.array(stretch))
                for tally, (first, last) in zip(tallies, edges.tolist(), strict=True):
                    if first < last:
                        tally.join(self.count(table.slice(first, last - first)))
            yield from tallies

    def _read_files(self, files: Sequence[InputFile], rows: float, sample: Sample) -> None:
        # Each file may take its share of these bytes, so that 16 files are read at the least, or all if they are fewer.
        share = _READ_THROUGH // min(len(files), _FEWEST_UNITS)
        shuffled = self._rng.sample(files, len(files))
        read_bytes = itertools.accumulate(min(file.size, share) for file in shuffled)
        drawn = [file for file, total in zip(shuffled, read_bytes, strict=True) if total <= _READ_THROUGH]
        blocks = rows / self._block_rows
        if len(drawn) == len(files):
            # One part of all files that are read to their end, whose blocks are equally likely in whichever file they are,
            # and one of each larger file: what its beginning says is of no other.
            whole = [file for file in files if file.size <= share]
            groups = [whole, *([file] for file in files if file.size > share)]
            for group in filter(None, groups):
                blocks_of_group = max(_FEWEST_UNITS, math.ceil(blocks * _size(group) / _size(files)))
                part, tallies = self._read_through(group, blocks_of_group, share, sample)
                sample.parts.append(part)
                sample.add(tallies, part.weight)
            return
        # The units are files. What a file adds to the totals is itself estimated, and files differ by that error, too. It
        # would be there if all files were drawn: hence the infinite number of them.
        values = []
        for done, file in enumerate(drawn, start=1):
            part, tallies = self._read_through([file], math.ceil(blocks / len(drawn)), share, sample)
            values.append(part.total)
            sample.add(tallies, part.weight * _size(files) / _size(drawn))
            self.on_progress(done, len(drawn))
        sizes = np.array([file.size for file in drawn], np.float64)
        sample.parts.append(DrawnUnits(np.array(values), sizes, _size(files), math.inf))

    def _read_through(
        self, files: Sequence[InputFile], blocks: int, share: int, sample: Sample
    ) -> tuple[DrawnUnits, list[Tally]]:
        """Read files to their end, and count so many of their blocks, each as likely as any other (reservoir sampling).

        One that is larger than its share is read to that, and the rest is taken to have as many rows for its bytes.
        """
        kept: list[pa.Table] = []
        offered = rows = 0
        whole_by_read = 1.0
        for done, file in enumerate(files, start=1):
            file, whole_by_read = _beginning(file, share)
            if whole_by_read > 1:
                sample.beginnings.append(file.name)
            for table in read(Unit(file, None), self.max_record_bytes, ignore_end):
                table = table.filter(pc.fill_null(pc.not_equal(table.column(NOTE), BLANK), True))
                for start in range(0, table.num_rows, self._block_rows):
                    block = table.slice(start, self._block_rows)
                    offered, rows = offered + 1, rows + block.num_rows
                    # The n-th block gets one of n slots at random, and is kept if that is one of the first `blocks`: so
                    # each of the n blocks so far is kept with probability blocks / n.
                    slot = len(kept) if len(kept) < blocks else self._rng.randrange(offered)
                    if slot < blocks:
                        # `take` copies: a slice would keep the whole table that was read in memory.
                        kept[slot : slot + 1] = [block.take(list(range(block.num_rows)))]
            if len(files) > 1:
                self.on_progress(done, len(files))
        tallies = [self.count(table) for table in kept] or [Tally()]
        sizes = np.array([table.num_rows for table in kept] or [1], np.float64)
        units = max(1.0, offered * whole_by_read)
        part = DrawnUnits(_values(tallies), sizes, rows * whole_by_read, units, rows_known=whole_by_read == 1)
        return part, tallies


def _beginning(file: InputFile, most_bytes: int) -> tuple[InputFile, float]:
    """The file up to about so many of its bytes on disk, and how many times as long the whole one is.

    Positions are bytes of the text, or elements of an array: what is on disk may be compressed.
    """
    if file.size <= most_bytes:
        return file, 1.0
    position_bytes = bytes_per_position(file)
    extent, end = file.extent or file.size / position_bytes, max(1, int(most_bytes / position_bytes))
    return (replace(file, extent=end), extent / end) if end < extent else (file, 1.0)


def _size(files: Sequence[InputFile]) -> int:
    return sum(file.size for file in files)


def _values(tallies: Sequence[Tally]) -> Values:
    return np.array([tally.values for tally in tallies])


def ignore_end(file: InputFile, extent: int) -> None:
    """The readers report where a file ends; a plan has no use for it."""
