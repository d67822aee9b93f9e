"""Random sampling of a corpus by blocks of neighbouring rows, which are read as the run reads them.

A block is a stretch of positions (bytes of JSONL, ordinals of Parquet and arrays); a row belongs to the block in which it
starts. So every row is in exactly one block, no row is cut, and a long row is no likelier to be sampled than a short one, as
it would be if the row around a random byte were taken. The price is blocks in which no row starts; they count, with zeros.

1. Files with random access (JSONL, Parquet): stratified sampling of the blocks in corpus order; only drawn blocks are read.
2. Files without it, if they are few or small: each is read from start to end, and a reservoir keeps some of the blocks.
3. Files without it, many and large: files are drawn with replacement, with probabilities proportional to size (Hansen and
   Hurwitz), and each drawn file is read from start to end.
"""

import itertools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa

from pipelines.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.corpus.readers import END, START, raw_rows, read
from pipelines.corpus.units import Unit, row_groups
from pipelines.estimate.intervals import Stratum, Values
from pipelines.estimate.tally import AMOUNTS, Tally

_BLOCKS, _BLOCK_ROWS = 250, 8
"""About how many blocks are sampled at the least, and how many rows a block has at most. With fewer blocks the variance
between them is badly estimated, and the intervals are too narrow; more blocks cost more reads."""
_STRATUM_BLOCKS = 25
"""Blocks sampled per stratum. With two, a stratum in which rows change abruptly would hold nearly all of the variance, and
that would be estimated with one degree of freedom."""
_FEWEST_BLOCKS = 4
_READ_THROUGH = 2 * 2**30
"""Bytes on disk that are read from start to end before files are sampled instead: about ten minutes of one core."""
_FEWEST_FILES, _MOST_FILES = 32, 250
"""Bounds for the number of draws when files are sampled: below 32 the interval is too wide to be of use."""
_PROBES = 20
"""Random stretches that are read to measure how many bytes a row has."""
_MORE, _MOST_ROWS = 4, 16
"""Bounds for work where rows are far shorter than expected, so that a block has very many. The rows that are tokenized are
at most 4 times those requested, but up to 16 of each block in any case."""

Count = Callable[[pa.Table], Tally]
OnProgress = Callable[[int, int], None]
"""Called with how many blocks (or files, where they are read through) are done, and of how many."""


@dataclass(frozen=True)
class _Block:
    """A sampled block: its length in positions, and the tally of the rows that were counted.

    `scale` is rows in the block / rows counted: 1 unless only a random part of the rows was counted.
    """

    length: float
    tally: Tally
    scale: float = 1.0

    @property
    def values(self) -> Values:
        return self.tally.values * self.scale


@dataclass
class Sample:
    """The strata for `intervals.totals`, and what was seen in the sampled rows.

    `lengths` (prompt tokens) and `reasons` are weighted: each entry is the number of responses of the corpus that it stands
    for. `longest`, `rows` and `blocks` are of the sample itself.
    """

    strata: list[Stratum] = field(default_factory=list)
    lengths: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    longest: int = 0
    rows: int = 0
    blocks: int = 0

    def add(self, sampled: Sequence[_Block], blocks: int, length: float) -> None:
        """Add a stratum of `blocks` blocks that are `length` long together, of which `sampled` were read."""
        values, lengths = np.array([block.values for block in sampled]), np.array([block.length for block in sampled])
        in_part = any(block.scale > 1 for block in sampled)
        self.strata.append(Stratum.of(blocks, values, lengths, length, amounts=len(AMOUNTS), in_part=in_part))
        self.add_weighted(sampled, blocks / len(sampled))

    def add_weighted(self, sampled: Iterable[_Block], weight: float) -> None:
        """Add to the histograms, where each of the blocks stands for `weight` blocks of the corpus."""
        for block in sampled:
            tally = block.tally
            self.rows += tally.rows
            self.blocks += 1
            self.longest = max(self.longest, tally.longest)
            for histogram, counts in ((self.lengths, tally.lengths), (self.reasons, tally.reasons)):
                for key, count in counts.items():
                    histogram[key] += count * block.scale * weight  # type: ignore[index, assignment]


class BlockSampler:
    """Samples the rows of a corpus. Equal seeds sample equal rows of equal files."""

    def __init__(
        self,
        count: Count,
        max_record_bytes: int,
        row_bytes: float,
        seed: int,
        on_progress: OnProgress = lambda done, total: None,
    ) -> None:
        """`count` tallies a table of raw rows; `row_bytes` is a first guess at the bytes of a row."""
        self._count = count
        self._max_record_bytes = max_record_bytes
        self._row_bytes = row_bytes
        self._block_rows = _BLOCK_ROWS
        self._rng = Random(seed)
        self._on_progress = on_progress

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        """Sample about `rows` rows of the files. Raises `SourceError` if a file can't be read."""
        sample = Sample()
        files = [file for file in files if file.extent != 0 and file.size]
        size = sum(file.size for file in files)
        # For a small sample blocks get shorter, not fewer: 250 blocks of one row rather than 31 of eight. 2,000 rows are 250
        # blocks of eight, in ten strata of 25.
        self._block_rows = max(1, min(_BLOCK_ROWS, rows // _BLOCKS))
        for kind in sorted({file.kind for file in files}):
            files_of_kind = [file for file in files if file.kind is kind]
            size_of_kind = sum(file.size for file in files_of_kind)
            blocks = max(_FEWEST_BLOCKS, round(rows * (size_of_kind / size) / self._block_rows))
            if kind in (FileKind.JSONL, FileKind.PARQUET):
                self._sample_strata(files_of_kind, blocks, sample)
            elif size_of_kind <= _READ_THROUGH or len(files_of_kind) <= _FEWEST_FILES:
                self._sample_stream(files_of_kind, blocks, sample)
            else:
                self._sample_files(files_of_kind, blocks, sample)
        return sample

    def _sample_strata(self, files: Sequence[InputFile], target: int, sample: Sample) -> None:
        """Sample about `target` blocks of files with random access, the same number from each stratum.

        Blocks are numbered through all files, and no block lies in two files: the last block of a file is shorter.
        """
        length = self._block_rows if files[0].kind is FileKind.PARQUET else self._block_bytes(files)
        # ends[i] is the number of the first block after file i, so ends[-1] is how many blocks there are.
        ends = list(itertools.accumulate(math.ceil((file.extent or 0) / length) for file in files))
        # Strata are equal stretches of the block numbers, whatever files they cross. One is enough if every block is read.
        strata = max(1, target // _STRATUM_BLOCKS) if target < ends[-1] else 1
        edges = [ends[-1] * number // strata for number in range(strata + 1)]
        numbers_by_stratum = [
            self._rng.sample(range(first, last), min(last - first, math.ceil(target / strata)))
            for first, last in pairwise(edges)
        ]
        # Read in corpus order, file by file: each file is opened once, and each Parquet row group is decoded once.
        numbers = sorted(itertools.chain.from_iterable(numbers_by_stratum))
        row_limit = self._row_limit(target, len(numbers))
        blocks: dict[int, _Block] = {}
        for index, group in itertools.groupby(numbers, key=lambda number: bisect_right(ends, number)):
            first_of_file = ends[index - 1] if index else 0
            within_file = [number - first_of_file for number in group]
            for number, block in self._read_blocks(files[index], length, within_file, row_limit):
                blocks[number + first_of_file] = block
                self._on_progress(len(blocks), len(numbers))
        for (first, last), stratum_numbers in zip(pairwise(edges), numbers_by_stratum, strict=True):
            # By how much the last blocks of the files that end in this stratum fall short of `length`: a file of 1,000 bytes
            # in blocks of 300 has four, the last of them 200 short. It is block `end` - 1, hence `first < end <= last`. The
            # ratio estimator (`Stratum.of`) needs the exact length: if it is too great, totals come out too high.
            shortfall = sum(
                (end - start) * length - (file.extent or 0)
                for file, start, end in zip(files, [0, *ends[:-1]], ends, strict=True)
                if first < end <= last
            )
            stratum_length = (last - first) * length - shortfall
            sample.add([blocks[number] for number in stratum_numbers], last - first, stratum_length)

    def _block_bytes(self, files: Sequence[InputFile]) -> int:
        """The length of a block, in bytes, at which it has about `_block_rows` rows.

        Measured on rows from all over the files, as the first rows of a file are often unlike the others: blocks that are
        much too long would each hold hundreds of rows.
        """
        length = max(1, round(self._block_rows * self._row_bytes))
        rows = size = 0
        # Each file in proportion to its bytes, so that every byte of the corpus is equally likely to be probed.
        for file in self._rng.choices(files, [file.extent or 0 for file in files], k=_PROBES):
            start = self._rng.randrange(file.extent or 1)
            for row in raw_rows(Unit(file, Range(start, min(start + length, file.extent or 0))), self._max_record_bytes):
                rows, size = rows + 1, size + row.end - row.start
        return max(1, round(self._block_rows * size / rows)) if rows else length

    def _read_blocks(
        self, file: InputFile, length: int, numbers: Sequence[int], row_limit: int
    ) -> Iterator[tuple[int, _Block]]:
        """Read and count blocks of a file, given by their numbers in it, in ascending order."""
        extent = file.extent or 0
        ranges = {number: Range(number * length, min((number + 1) * length, extent)) for number in numbers}
        if file.kind is not FileKind.PARQUET:
            for number, block_range in ranges.items():
                tables = list(read(Unit(file, block_range), self._max_record_bytes, _ignore_end))
                yield number, self._count_block(tables, block_range.end - block_range.start, row_limit)
            return
        tables_by_block: dict[int, list[pa.Table]] = {number: [] for number in numbers}
        # A row group can only be decoded whole, so all of its blocks are read from one decoding; a block that crosses into
        # the next group gets a second table from that one.
        for group in row_groups(file):
            inside = [block for block in ranges.values() if block.start < group.end and block.end > group.start]
            if inside:
                stretch = Range(max(inside[0].start, group.start), min(inside[-1].end, group.end))
                for number, table in _split_by_block(read(Unit(file, stretch), self._max_record_bytes, _ignore_end), length):
                    if number in tables_by_block:
                        # `take` copies: a slice would keep the whole row group in memory.
                        tables_by_block[number].append(table.take(list(range(table.num_rows))))
        for number, block_range in ranges.items():
            yield number, self._count_block(tables_by_block[number], block_range.end - block_range.start, row_limit)

    def _sample_stream(self, files: Sequence[InputFile], target: int, sample: Sample) -> None:
        """Read all files from start to end, and keep `target` of their blocks as a single stratum."""
        reservoir = _Reservoir(target, self._rng)
        for done, file in enumerate(files, start=1):
            self._stream(file, [reservoir])
            self._on_progress(done, len(files))
        if reservoir.kept:
            row_limit = self._row_limit(target, len(reservoir.kept))
            blocks = [self._count_block(tables, length, row_limit) for tables, length in reservoir.kept]
            sample.add(blocks, reservoir.offered, reservoir.length)

    def _sample_files(self, files: Sequence[InputFile], target: int, sample: Sample) -> None:
        """Draw files with replacement, and sample blocks of each; a file drawn twice is read once, into two reservoirs."""
        sizes = [file.size for file in files]
        # As many draws as come to about `_READ_THROUGH` bytes of files of average size.
        # Of files of 10 MB those are 214, of 100 MB the 32 that are drawn at the least.
        draws = min(_MOST_FILES, max(_FEWEST_FILES, int(_READ_THROUGH * len(files) / sum(sizes))))
        draws_by_file = Counter(self._rng.choices(range(len(files)), sizes, k=draws))
        estimates = []
        for done, (index, times) in enumerate(sorted(draws_by_file.items()), start=1):
            # Fresh blocks for each draw: the variance between draws must contain that of the blocks within a file.
            reservoirs = [_Reservoir(max(1, math.ceil(target / draws)), self._rng) for _ in range(times)]
            self._stream(files[index], reservoirs)
            for reservoir in reservoirs:
                row_limit = self._row_limit(1, 1)
                # A file in which no row starts is a draw all the same, and says 0: left out, the others would count for it.
                blocks = [self._count_block(tables, length, row_limit) for tables, length in reservoir.kept] or [
                    _Block(1, Tally())
                ]
                lengths = sum(block.length for block in blocks)
                # From the blocks to their file by length, then to the corpus by 1 / the probability of the draw. So each
                # draw is an unbiased estimate of the total by itself, and their mean is Hansen and Hurwitz's estimate.
                weight = reservoir.length / lengths * sum(sizes) / sizes[index]
                estimates.append(sum(block.values for block in blocks) * weight)
                sample.add_weighted(blocks, weight / draws)
            self._on_progress(done, len(draws_by_file))
        sample.strata.append(Stratum(1, np.array(estimates), replacement=True))

    def _stream(self, file: InputFile, reservoirs: Sequence["_Reservoir"]) -> None:
        """Offer every block of a file in which a row starts. All blocks pass by here, so empty ones needn't be counted."""
        length = self._block_rows if file.kind.by_ordinal else max(1, round(self._block_rows * self._row_bytes))
        tables = _split_by_block(read(Unit(file, None), self._max_record_bytes, _ignore_end), length)
        number, pieces = 0, list[pa.Table]()
        # One block behind: only the last block may be shorter than `length`, and which that is shows at the end.
        for next_number, group in itertools.groupby(tables, key=lambda numbered: numbered[0]):
            for reservoir in reservoirs if pieces else ():
                reservoir.offer(pieces, length)
            number, pieces = next_number, [table for _, table in group]
        if pieces:
            end = pieces[-1].column(END)[-1].as_py()
            for reservoir in reservoirs:
                reservoir.offer(pieces, min(length, end - number * length))

    def _row_limit(self, target: int, sampled: int) -> int:
        """How many rows of a block are counted at most, if `target` blocks were requested and `sampled` are read."""
        # 32 rows of blocks of eight if all 250 blocks are there; 800 if the corpus has only ten, which must do for 2,000
        # rows.
        return max(_MOST_ROWS, _MORE * self._block_rows * target // sampled)

    def _count_block(self, tables: Sequence[pa.Table], length: float, row_limit: int) -> _Block:
        """Count all rows of a block, or a random `row_limit` of them if there are more."""
        rows = sum(table.num_rows for table in tables)
        if rows > row_limit:
            # Any `row_limit` rows, and not the first: neighbouring rows are alike. `scale` makes up for those left out.
            table = pa.concat_tables(tables).take(sorted(self._rng.sample(range(rows), row_limit)))
            return _Block(length, self._count(table), rows / row_limit)
        tally = Tally()
        for table in tables:
            tally.join(self._count(table))
        return _Block(length, tally)


class _Reservoir:
    """Keeps `size` of the blocks offered, each with the same probability however many come (reservoir sampling)."""

    def __init__(self, size: int, rng: Random) -> None:
        self._size = size
        self._rng = rng
        self.kept: list[tuple[list[pa.Table], float]] = []
        self.offered = 0
        self.length = 0.0

    def offer(self, tables: Sequence[pa.Table], length: float) -> None:
        """Offer the next block, `length` positions long; it may replace one that was kept."""
        self.offered += 1
        self.length += length
        # The n-th block gets one of n slots at random, and is kept if that is one of the first `size`: so each of the n
        # blocks so far is kept with probability size / n.
        slot = len(self.kept) if len(self.kept) < self._size else self._rng.randrange(self.offered)
        if slot < self._size:
            # `take` copies: a slice would keep the whole table that was read in memory.
            self.kept[slot : slot + 1] = [([table.take(list(range(table.num_rows))) for table in tables], length)]


def _split_by_block(tables: Iterable[pa.Table], length: int) -> Iterator[tuple[int, pa.Table]]:
    """Cut tables where a block begins; each piece comes with the number of its block in the file."""
    for table in tables:
        numbers = table.column(START).to_numpy() // length
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for first, last in pairwise(edges):
            yield int(numbers[first]), table.slice(first, last - first)


def _ignore_end(file: InputFile, extent: int) -> None:
    """The readers report where a file ends; sampling has no use for it."""
