"""Which rows of a corpus are looked at: blocks of neighbouring rows, drawn at random, and read as the run reads them.

A block is a stretch of positions (bytes of lines, ordinals of Parquet and arrays), and a row is in the block in which it
starts. So every row is in one block, rows are cut nowhere, and a long row is no likelier to be drawn than a short one, as it
would be if a row were taken from wherever a random byte falls. The price is blocks without a row, which count too.

1. Files that can be read anywhere (JSONL, Parquet): blocks are drawn in strata of their order, and only these are read.
2. Files that can't, as long as they are few or small: all are read through, and of their blocks some are kept (a reservoir).
3. More of these: files are drawn with replacement, by their size (Hansen and Hurwitz), and each is read through.
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

from pipelines.corpus.corpus_files import FileKind, InputFile, Range, Unit, cut
from pipelines.corpus.readers import END, START, raw_rows, read
from pipelines.estimate.intervals import Stratum, Values
from pipelines.estimate.tally import AMOUNTS, Tally

_BLOCKS, _BLOCK_ROWS = 250, 8
"""How many blocks are drawn, about, and how many rows a block has at most: the bounds of few blocks would be too narrow, and
each costs a read."""
_STRATUM_BLOCKS = 25
"""Drawn of each stratum: with two, a stratum in which rows change abruptly would have all of the variance, badly known."""
_FEWEST_BLOCKS = 4
_READ_THROUGH = 2 * 2**30
"""Bytes on disk of files that have to be read through: about ten minutes of one core."""
_FEWEST_FILES, _MOST_FILES = 32, 250
_PROBES = 20
_MORE, _MOST_ROWS = 4, 16
"""Where rows are shorter than those that a file begins with, blocks have more of them than they should. Then some of each
are looked at: in all so many times those asked for, or so many of a block if that is more."""

Count = Callable[[pa.Table], Tally]
HowFar = Callable[[int, int], None]
"""Told how many of how many blocks, or files to be read through, are done."""


@dataclass(frozen=True)
class _Block:
    """What a block of a length came to. `scale`: of so many times the rows that were looked at."""

    length: float
    tally: Tally
    scale: float = 1.0

    @property
    def values(self) -> Values:
        return self.tally.values * self.scale


@dataclass
class Sample:
    """What was drawn. `lengths` and `reasons` weigh what was seen by what it stands for."""

    strata: list[Stratum] = field(default_factory=list)
    lengths: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    longest: int = 0
    rows: int = 0
    blocks: int = 0

    def add(self, drawn: Sequence[_Block], blocks: int, length: float) -> None:
        """A stratum of so many blocks, of which these were drawn, and so long in all."""
        values, lengths = np.array([block.values for block in drawn]), np.array([block.length for block in drawn])
        in_part = any(block.scale > 1 for block in drawn)
        self.strata.append(Stratum.of(blocks, values, lengths, length, amounts=len(AMOUNTS), in_part=in_part))
        self.see(drawn, blocks / len(drawn))

    def see(self, drawn: Iterable[_Block], weight: float) -> None:
        """Blocks each of which stands for so many."""
        for block in drawn:
            tally = block.tally
            self.rows += tally.rows
            self.blocks += 1
            self.longest = max(self.longest, tally.longest)
            for mine, its in ((self.lengths, tally.lengths), (self.reasons, tally.reasons)):
                for key, count in its.items():
                    mine[key] += count * block.scale * weight  # type: ignore[index, assignment]


class BlockSampler:
    """Draws from a corpus. `row_bytes` is about how long its rows are."""

    def __init__(
        self, count: Count, max_record_bytes: int, row_bytes: float, seed: int, how_far: HowFar = lambda done, of: None
    ) -> None:
        """`count` says what raw rows come to."""
        self._count = count
        self._max_record_bytes = max_record_bytes
        self._row_bytes = row_bytes
        self._block_rows = _BLOCK_ROWS
        self._rng = Random(seed)
        self._how_far = how_far

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        """Look at about so many rows of some files. Raises `SourceError` if one can't be read."""
        found = Sample()
        files = [file for file in files if file.extent != 0 and file.size]
        size = sum(file.size for file in files)
        self._block_rows = max(1, min(_BLOCK_ROWS, rows // _BLOCKS))
        for kind in sorted({file.kind for file in files}):
            own = [file for file in files if file.kind is kind]
            share = sum(file.size for file in own) / size
            blocks = max(_FEWEST_BLOCKS, round(rows * share / self._block_rows))
            if kind in (FileKind.JSONL, FileKind.PARQUET):
                self._listed(own, blocks, found)
            elif sum(file.size for file in own) <= _READ_THROUGH or len(own) <= _FEWEST_FILES:
                self._read_through(own, blocks, found)
            else:
                self._drawn_files(own, blocks, found)
        return found

    def _listed(self, files: Sequence[InputFile], wanted: int, found: Sample) -> None:
        """Blocks of files that can be read anywhere, the same number of each stratum."""
        length = self._block_rows if files[0].kind is FileKind.PARQUET else self._block_bytes(files)
        ends = list(itertools.accumulate(math.ceil((file.extent or 0) / length) for file in files))
        strata = max(1, wanted // _STRATUM_BLOCKS) if wanted < ends[-1] else 1
        edges = [ends[-1] * at // strata for at in range(strata + 1)]
        drawn = [
            self._rng.sample(range(*edge), min(edge[1] - edge[0], math.ceil(wanted / strata))) for edge in pairwise(edges)
        ]
        every = sorted(itertools.chain.from_iterable(drawn))
        most = self._most(wanted, len(every))
        looked: dict[int, _Block] = {}
        for at, group in itertools.groupby(every, key=lambda block: bisect_right(ends, block)):
            before = ends[at - 1] if at else 0
            for block, seen in self._blocks_of(files[at], length, [block - before for block in group], most):
                looked[block + before] = seen
                self._how_far(len(looked), len(every))
        for (first, last), own in zip(pairwise(edges), drawn, strict=True):
            short = sum(
                ends[at] * length - before * length - (files[at].extent or 0)
                for at, before in enumerate([0, *ends[:-1]])
                if first < ends[at] <= last
            )
            found.add([looked[block] for block in own], last - first, (last - first) * length - short)

    def _block_bytes(self, files: Sequence[InputFile]) -> int:
        """How long a block is: by rows from all over the files, not their first ones."""
        length = max(1, round(self._block_rows * self._row_bytes))
        rows = size = 0
        for file in self._rng.choices(files, [file.extent or 0 for file in files], k=_PROBES):
            start = self._rng.randrange(file.extent or 1)
            for row in raw_rows(Unit(file, Range(start, min(start + length, file.extent or 0))), self._max_record_bytes):
                rows, size = rows + 1, size + row.end - row.start
        return max(1, round(self._block_rows * size / rows)) if rows else length

    def _blocks_of(self, file: InputFile, length: int, blocks: Sequence[int], most: int) -> Iterator[tuple[int, _Block]]:
        """What blocks of a file hold. Parquet is read by row groups, of which each is decoded once."""
        extent = file.extent or 0
        ranges = {block: Range(block * length, min((block + 1) * length, extent)) for block in blocks}
        if file.kind is not FileKind.PARQUET:
            for block, own in ranges.items():
                yield (
                    block,
                    self._look(list(read(Unit(file, own), self._max_record_bytes, _unnoted)), own.end - own.start, most),
                )
            return
        tables: dict[int, list[pa.Table]] = {block: [] for block in blocks}
        for unit in cut(file, [Range(0, extent)], [], length):
            assert unit.range is not None
            inside = [own for own in ranges.values() if own.start < unit.range.end and own.end > unit.range.start]
            if inside:
                stretch = Range(max(inside[0].start, unit.range.start), min(inside[-1].end, unit.range.end))
                for block, table in _by_block(read(Unit(file, stretch), self._max_record_bytes, _unnoted), length):
                    if block in tables:
                        tables[block].append(table.take(list(range(table.num_rows))))
        for block, own in ranges.items():
            yield block, self._look(tables[block], own.end - own.start, most)

    def _read_through(self, files: Sequence[InputFile], wanted: int, found: Sample) -> None:
        reservoir = _Reservoir(wanted, self._rng)
        for at, file in enumerate(files):
            self._stream(file, [reservoir])
            self._how_far(at + 1, len(files))
        if reservoir.kept:
            most = self._most(wanted, len(reservoir.kept))
            found.add([self._look(*kept, most) for kept in reservoir.kept], reservoir.seen, reservoir.length)

    def _drawn_files(self, files: Sequence[InputFile], wanted: int, found: Sample) -> None:
        """Files by their size, each of them as often as it was drawn; blocks are drawn anew every time."""
        sizes = [file.size for file in files]
        draws = min(_MOST_FILES, max(_FEWEST_FILES, int(_READ_THROUGH * len(files) / sum(sizes))))
        times = Counter(self._rng.choices(range(len(files)), sizes, k=draws))
        values = []
        for done, (at, drawn) in enumerate(sorted(times.items()), start=1):
            reservoirs = [_Reservoir(max(1, math.ceil(wanted / draws)), self._rng) for _ in range(drawn)]
            self._stream(files[at], reservoirs)
            for reservoir in reservoirs:
                blocks = [self._look(*kept, self._most(1, 1)) for kept in reservoir.kept] or [_Block(1, Tally())]
                lengths = sum(block.length for block in blocks)
                weight = reservoir.length / lengths * sum(sizes) / sizes[at]
                values.append(sum(block.values for block in blocks) * weight)
                found.see(blocks, weight / draws)
            self._how_far(done, len(times))
        found.strata.append(Stratum(1, np.array(values), replacement=True))

    def _stream(self, file: InputFile, reservoirs: Sequence["_Reservoir"]) -> None:
        """Offer all blocks of a file that hold rows: here, where all pass by, the others needn't count."""
        length = self._block_rows if file.kind.by_ordinal else max(1, round(self._block_rows * self._row_bytes))
        tables = _by_block(read(Unit(file, None), self._max_record_bytes, _unnoted), length)
        block, pieces = 0, list[pa.Table]()
        for following, group in itertools.groupby(tables, key=lambda pair: pair[0]):
            for reservoir in reservoirs if pieces else ():
                reservoir.offer(pieces, length)
            block, pieces = following, [table for _, table in group]
        if pieces:
            end = pieces[-1].column(END)[-1].as_py()
            for reservoir in reservoirs:
                reservoir.offer(pieces, min(length, end - block * length))

    def _most(self, wanted: int, drawn: int) -> int:
        """Rows of a block that are looked at, where so many blocks were wanted, and drawn."""
        return max(_MOST_ROWS, _MORE * self._block_rows * wanted // drawn)

    def _look(self, tables: Sequence[pa.Table], length: float, most: int) -> _Block:
        """What a block comes to: all of its rows, or `most` of a great many, drawn at random."""
        rows = sum(table.num_rows for table in tables)
        if rows > most:
            some = pa.concat_tables(tables).take(sorted(self._rng.sample(range(rows), most)))
            return _Block(length, self._count(some), rows / most)
        tally = Tally()
        for table in tables:
            tally.join(self._count(table))
        return _Block(length, tally)


class _Reservoir:
    """Keeps a given number of blocks, each with the same chance however many are offered."""

    def __init__(self, size: int, rng: Random) -> None:
        self._size = size
        self._rng = rng
        self.kept: list[tuple[list[pa.Table], float]] = []
        self.seen = 0
        self.length = 0.0

    def offer(self, tables: Sequence[pa.Table], length: float) -> None:
        """The next block. What is kept is a copy: a slice would hold on to all of its table."""
        self.seen += 1
        self.length += length
        at = len(self.kept) if len(self.kept) < self._size else self._rng.randrange(self.seen)
        if at < self._size:
            self.kept[at : at + 1] = [([table.take(list(range(table.num_rows))) for table in tables], length)]


def _by_block(tables: Iterable[pa.Table], length: int) -> Iterator[tuple[int, pa.Table]]:
    """Tables cut where a block of positions begins, each with the number of its block."""
    for table in tables:
        blocks = table.column(START).to_numpy() // length
        edges = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
        for first, last in pairwise(edges):
            yield int(blocks[first]), table.slice(first, last - first)


def _unnoted(file: InputFile, extent: int) -> None:
    """Where a file ends is of no matter here."""
