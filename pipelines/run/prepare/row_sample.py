"""A sample of a corpus' rows, read before a run starts: what it looks at decides how all rows are read."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow.parquet as pq

from actors.errors import Rejected
from actors.records import Reason
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.data.corpus.opened_files import opened
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.corpus.readers import BLANK, raw_rows
from pipelines.data.corpus.units import Unit, row_groups
from pipelines.data.formats import parse

SAMPLE_ROWS = 1000
_PLACES = 20  # places of the corpus at which rows are read: a field may be null in a file's first thousand rows
_PLACE_BYTES = 2**20  # bytes at a place after which no further row of it is read; at least one is
_REACH = 2**28  # bytes of Parquet that a sample may read: a place in a row group costs all pages before it
_BUFFER = 2**22  # bytes of a column at a time: unbuffered, a row group of 1.3 GB is held whole for its first row


class RowSample(NamedTuple):
    """Rows of a corpus as objects, in order; an error for one that can't be read as an object.

    `record_bytes` are the sizes of the JSON records among them, which are none of Parquet. `beginnings`: the files that were
    only looked at from their start, with how many rows.
    """

    rows: list[object]
    record_bytes: list[int]
    beginnings: dict[str, int]


def read_sample(files: Sequence[InputFile], max_record_bytes: int, reach: int = _REACH) -> RowSample:
    """Up to 1,000 rows from 20 places: of the files, or within one, one of each of 20 equal stretches.

    A compressed file and an array are read from their beginning alone: nothing else of them can be found. Places of large
    row groups of Parquet lie within their first bytes, all together `reach`. The same files give the same rows, in every
    session.
    """
    chosen = [files[position] for position in _spread(len(files), _PLACES)]
    sample = RowSample([], [], {})
    for number, file in enumerate(chosen):
        places = _PLACES // len(chosen) + (number < _PLACES % len(chosen))
        for row, size in _rows_of(file, places, max_record_bytes, reach // len(chosen)):
            sample.rows.append(row)
            if file.kind not in (FileKind.PARQUET, FileKind.JSONL):
                sample.beginnings[file.name] = sample.beginnings.get(file.name, 0) + 1
            if size:
                sample.record_bytes.append(size)
    return sample


def _spread(length: int, most: int) -> list[int]:
    """At most as many positions: a random one of each of equal stretches, since every second file may be of another kind."""
    generator, count = random.Random(0), min(most, length)  # the same positions in every session
    bounds = [length * number // count for number in range(count + 1)] if count else []
    return [generator.randrange(start, end) for start, end in itertools.pairwise(bounds)]


def _rows_of(file: InputFile, places: int, max_record_bytes: int, reach: int) -> Iterator[tuple[object, int]]:
    """Rows at some places of a file, each with the size of its record in bytes, 0 where it has none."""
    rows = SAMPLE_ROWS // _PLACES
    if file.kind is FileKind.PARQUET:
        yield from ((row, 0) for piece in _parquet_pieces(file, places, rows, reach) for row in piece)
    elif file.kind is FileKind.JSONL:
        for unit in _line_pieces(file, places):
            yield from _json_rows(unit, rows, _PLACE_BYTES, max_record_bytes)
    else:
        yield from _json_rows(Unit(file, None), places * rows, places * _PLACE_BYTES, max_record_bytes)


def _line_pieces(file: InputFile, places: int) -> Iterator[Unit]:
    extent = file.extent or 0
    bounds = [extent * place // places for place in range(places + 1)]
    return (Unit(file, Range(start, end)) for start, end in itertools.pairwise(bounds) if start < end)


def _json_rows(unit: Unit, most: int, most_bytes: int, max_record_bytes: int) -> Iterator[tuple[object, int]]:
    read = 0
    rows = (row for row in raw_rows(unit, max_record_bytes) if row.note != BLANK)
    for row in itertools.islice(rows, most):
        size = len(row.record or b"")
        try:
            yield parse(row.record) if row.record is not None else Rejected(Reason.RECORD_TOO_LARGE), size
        except Rejected as error:
            yield error, size
        read += size
        if read > most_bytes:
            return


def _parquet_pieces(file: InputFile, places: int, most: int, reach: int) -> Iterator[list[object]]:
    """Rows at the beginnings of as many row groups; of a file with fewer, at several places of each."""
    extent = file.extent or 0
    groups = [group for group in row_groups(file) if group.start < extent]
    chosen = {groups[position].start for position in _spread(len(groups), places)}
    row_bytes = file.size / max(groups[-1].end if groups else 0, 1)  # compressed: `_PLACE_BYTES` bounds what is read
    places_each = math.ceil(places / max(len(chosen), 1))
    rows = max(1, min(most, int(_PLACE_BYTES / row_bytes)))
    reached = int(reach / row_bytes) // max(len(chosen), 1)
    with opened(file) as stream, pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False) as parquet:
        start = 0
        for number in range(parquet.num_row_groups):
            length = parquet.metadata.row_group(number).num_rows
            if length and start in chosen:
                end = min(length, extent - start)
                pieces = math.ceil(min(end, max(reached, rows * places_each)) / rows)
                wanted = {(pieces - 1) * place // max(places_each - 1, 1) for place in range(places_each)}
                # Only within a row group: pyarrow can't concatenate nested dictionary columns of two of them.
                batches = parquet.iter_batches(rows, row_groups=[number])
                for piece, batch in enumerate(itertools.islice(batches, max(wanted) + 1)):
                    if piece in wanted:
                        yield list(python_rows(batch.slice(0, end - piece * rows)))
            start += length
