"""Reads a unit of work into tables of raw rows, each row with its range of positions in the file.

Invariant: the ranges of a file's rows tile [0, extent) without gaps or overlaps. Blank lines belong to the row before them;
blank lines that follow no row of the unit are a row of their own, with the note `blank`. The names of the parts therefore
tell whether everything was read, and a row starts where its line starts, however the file is cut into units.
"""

import functools
import io
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import DamagedSource
from actors.records import Reason
from actors.text.lfs_pointers import lfs_problem
from pipelines.data.corpus.arrow_types import without_views
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range, check_untouched, status_before
from pipelines.data.corpus.opened_files import opened, read_error_of
from pipelines.data.corpus.units import Unit
from pipelines.data.storage import FileStatus, is_remote, open_read

FILE, START, END, NOTE, RECORD = "_file", "_start", "_end", "_note", "record"
PREPARED = "_prepared"  # the pickled row that `pipelines.run.prepare` adds
# Columns added beside those of the input; an input column of such a name would overwrite ours.
RESERVED = frozenset({FILE, START, END, NOTE, PREPARED})
BLANK = "blank"
_BLOCK_BYTES = 4 * 2**20  # of records in a table, and of one read; a table ends at this or at _BLOCK_ROWS
_BLOCK_ROWS = 1024
_BUFFER = 64 * 1024  # of decompressed bytes; `readline` of an unbuffered stream takes them one by one
_SEEN_BYTES = 64  # the first line of a Git LFS pointer has 43
_MEASURED_ELEMENTS = 100
_SMALL_BYTES = 2**20  # from here on the bytes take longer than the round trips
_READ_AHEAD = 16  # small objects of a store that a task reads concurrently; it holds their rows

JSON_SCHEMA = pa.schema(
    [(FILE, pa.int32()), (START, pa.int64()), (END, pa.int64()), (NOTE, pa.string()), (RECORD, pa.large_binary())]
)


class RawRow(NamedTuple):
    """One JSON record, unparsed. `note` is `blank`, the `Reason` why the record wasn't kept, or None.

    `record` is None with a note. Positions are as in `corpus_files`.
    """

    start: int
    end: int
    note: str | None
    record: bytes | None


EndSeen = Callable[[InputFile, int], None]  # called with a file and its extent once it was read to its end


def read(unit: Unit, max_record_bytes: int, end_seen: EndSeen) -> Iterator[pa.Table]:
    """Read a unit into tables. Calls `end_seen` with the file's extent if that is known only from reading to the end.

    Raises `SourceError` if the file is missing or has changed since it was found: no table of changed content is yielded.
    """
    before = status_before(unit.file)
    if unit.file.kind is FileKind.PARQUET:
        tables = _parquet_tables(unit)  # whose columns are read as they are; JSON is parsed later, record by record
    else:
        tables = _json_tables(unit, raw_rows(unit, max_record_bytes))
    extent = 0
    for table, end in _while_untouched(tables, before):
        extent = max(extent, end)  # also of an empty table, after rows that are all done
        if table.num_rows:
            yield table
    if unit.file.extent is None:
        end_seen(unit.file, extent)


def _while_untouched(tables: Iterator[tuple[pa.Table, int]], before: FileStatus) -> Iterator[tuple[pa.Table, int]]:
    """The tables of a file, each once it is known that nobody wrote to the file since `before` while it was read.

    An empty one, too: an extent that was read from a changed file would be recorded for good. What can't be read may be a
    file that has changed, and then that is the error.
    """
    while True:
        try:
            table_and_end = next(tables, None)
        except Exception:
            check_untouched(before)
            raise
        if table_and_end is None:
            return
        check_untouched(before)
        yield table_and_end


def read_group(units: Sequence[Unit], max_record_bytes: int, end_seen: EndSeen) -> Iterator[pa.Table]:
    """Read units one after the other, as `read` does; tables of small files are joined, up to the size of a block.

    Without this each file of ten rows would be a block of ten rows, and an engine would get as few at a time.
    """
    tables = itertools.chain.from_iterable(_unit_tables(units, max_record_bytes, end_seen))
    return _join(tables) if len(units) > 1 else tables


def _unit_tables(units: Sequence[Unit], max_record_bytes: int, end_seen: EndSeen) -> Iterator[Iterable[pa.Table]]:
    # The tables of each unit, in order. Small ones of a store are read concurrently, as each takes several round trips.
    tables_of = functools.partial(read, max_record_bytes=max_record_bytes, end_seen=end_seen)
    with ThreadPoolExecutor(_READ_AHEAD) as threads:
        for are_small, neighbours in itertools.groupby(units, key=_is_small_object):
            while batch := list(itertools.islice(neighbours, _READ_AHEAD)):
                yield from threads.map(lambda unit: list(tables_of(unit)), batch) if are_small else map(tables_of, batch)


def _is_small_object(unit: Unit) -> bool:
    return is_remote(unit.file.path) and unit.file.size <= _SMALL_BYTES


def _join(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    joined: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        full = rows + table.num_rows > _BLOCK_ROWS or size + table.nbytes > _BLOCK_BYTES
        if joined and (full or table.schema != joined[0].schema):
            yield pa.concat_tables(joined)
            joined, rows, size = [], 0, 0
        joined.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
    if joined:
        yield pa.concat_tables(joined)


def bytes_per_position(file: InputFile) -> float:
    """Approximate bytes on disk per position, measured at the start of the file: per element, or per decompressed byte.

    For progress and estimates of files of which only reading tells the extent.
    """
    with opened(file) as stream:
        if file.kind is FileKind.ARRAY:
            elements = itertools.islice(_cut_values(stream, _BLOCK_BYTES), _MEASURED_ELEMENTS)
            sizes = [len(element or b"") + 2 for element in elements]
            return sum(sizes) / len(sizes) if sizes else float(file.size)
        plain = pa.CompressedInputStream(stream, file.kind.compression)
        try:
            unpacked = len(plain.read(_BLOCK_BYTES))
        except OSError:  # a truncated file: reading it will report that
            unpacked = 0
        return stream.tell() / unpacked if unpacked else 1.0


def raw_rows(unit: Unit, max_record_bytes: int) -> Iterator[RawRow]:
    """All rows of a JSON unit in order, also those in `unit.done`. Raises `SourceError` if the file can't be read."""
    file, position = unit.file, 0
    try:
        with open_read(file.path, file.size) as stream:
            if unit.range is None or unit.range.start == 0:  # of a store's files none may have been opened before
                if problem := lfs_problem(stream.read(_SEEN_BYTES)):
                    raise DamagedSource(f"{file.path} {problem}")
                stream.seek(0)
            if file.kind is FileKind.ARRAY:
                yield from _values(stream, max_record_bytes, file.extent)
            elif file.kind is FileKind.JSONL:
                piece = unit.range or Range(0, file.size)
                yield from _read_lines(stream, piece.start, piece.end, max_record_bytes)
            else:
                plain = io.BufferedReader(pa.CompressedInputStream(stream, file.kind.compression), _BUFFER)
                for row in _read_lines(plain, 0, file.extent, max_record_bytes):
                    position = row.end
                    yield row
    except OSError as error:
        place = f", after byte {position:,} of its decompressed content (it has {file.size:,} bytes on disk)"
        raise read_error_of(file, error, place if file.kind.compression else "") from error


def _json_tables(unit: Unit, rows: Iterator[RawRow]) -> Iterator[tuple[pa.Table, int]]:
    """Tables of the rows outside `unit.done`, each with the position up to which the file has been read.

    Both the rows and the done ranges are sorted, so one pass over each suffices. The last table may be empty: it carries the
    final position, which is the file's extent even if its last rows are all done.
    """
    done = iter(sorted(unit.done))
    skipped = next(done, None)
    batch: list[RawRow] = []
    size = 0
    position = 0
    for row in rows:
        position = row.end
        while skipped is not None and skipped.end <= row.start:
            skipped = next(done, None)
        if skipped is not None and skipped.start <= row.start:
            continue
        batch.append(row)
        size += len(row.record or b"")
        if size >= _BLOCK_BYTES or len(batch) >= _BLOCK_ROWS:
            yield _table(unit.file, batch), position
            batch, size = [], 0
    yield _table(unit.file, batch), position


def _table(file: InputFile, rows: Sequence[RawRow]) -> pa.Table:
    columns = [[file.index] * len(rows), *([row[i] for row in rows] for i in range(4))]
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, JSON_SCHEMA, strict=True)], JSON_SCHEMA)


def _read_lines(stream: IO[bytes], start: int, stop: int | None, limit: int) -> Iterator[RawRow]:
    """The lines that start in [start, stop); each line's range includes the blank lines after it."""
    position = _first_line_start(stream, start, limit)
    pending: RawRow | None = None  # held back until the next line, since blank lines may still extend its range
    while stop is None or position < stop:
        line, length = _read_line(stream, limit)
        if not length:
            break
        line_start, position = position, position + length
        if line is not None and not line.strip():
            pending = RawRow(line_start, position, BLANK, None) if pending is None else pending._replace(end=position)
            continue
        if pending is not None:
            yield pending
        note = Reason.RECORD_TOO_LARGE.value if line is None else None
        pending = RawRow(line_start, position, note, line if line is None else line.rstrip(b"\r\n"))
    if pending is not None:
        yield pending


def _first_line_start(stream: IO[bytes], start: int, limit: int) -> int:
    # The first position at or after `start` where a line starts: a line that began earlier is the previous unit's.
    if start == 0:
        return 0
    stream.seek(start - 1)  # one byte earlier: if that byte is a line break, a line starts exactly at `start`
    _, length = _read_line(stream, limit)
    return start - 1 + length


def _read_line(stream: IO[bytes], limit: int) -> tuple[bytes | None, int]:
    # The next line and its length in bytes. A line longer than `limit` is None, and is skipped block by block.
    line = stream.readline(limit + 1)
    if len(line) <= limit or line.endswith(b"\n"):
        return line, len(line)
    length = len(line)
    while not line.endswith(b"\n") and (line := stream.readline(_BLOCK_BYTES)):
        length += len(line)
    return None, length


# A whole string, or one structural character. A lone quote matches only where the string's end isn't in the buffer yet.
# The repetition is possessive (`*+`): with backtracking, a string whose end is missing would take exponential time.
_TOKEN = re.compile(rb'"(?:[^"\\]+|\\.)*+"|[\[\]{},"]', re.DOTALL)
# What may stand before and between the arrays and objects of a file: white space, commas, the mark of a joined file.
_BETWEEN = re.compile(rb"(?:[ \t\r\n,]|\xef\xbb\xbf)*")


def _values(stream: IO[bytes], limit: int, stop: int | None) -> Iterator[RawRow]:
    """The rows of a file of JSON values as raw bytes, by ordinal. What can't be cut into rows is one last, broken record.

    A missing `]` also yields a broken record: a file that was truncated right after an element must not look complete.
    """
    for ordinal, row in enumerate(itertools.islice(_cut_values(stream, limit), stop)):
        yield RawRow(ordinal, ordinal + 1, Reason.RECORD_TOO_LARGE.value if row is None else None, row)


def _cut_values(stream: IO[bytes], limit: int) -> Iterator[bytes | None]:
    """The elements of the arrays of a file, and the objects beside these, in order.

    They are cut without parsing: only strings and brackets count, so rows may be broken. One longer than `limit` is yielded
    as None and its bytes are dropped while reading: a missing quote can make the whole rest of the file one row.
    """
    buffer = b""  # always begins within the current row, or before it
    in_array = too_large = False
    depth: float = 0  # infinite after what begins neither an array nor an object: no bracket or comma ends that
    row_start = position = 0
    while True:
        if not in_array and not depth:
            position = row_start = _BETWEEN.match(buffer, position).end()  # type: ignore[union-attr]
            start = buffer[position : position + 1]
            if in_array := start == b"[":
                position = row_start = position + 1
            elif start not in b"{":
                depth = math.inf
        match = _TOKEN.search(buffer, position)
        if match is None or match[0] == b'"':  # the buffer is used up, or a string continues in the next block
            row, position = buffer[row_start:], (match.start() if match else len(buffer)) - row_start
            too_large = too_large or len(row.strip()) > limit
            if too_large:
                # Drop the row. Of an open string keep its quote and its trailing backslashes: whether the next byte is
                # escaped depends on them. The scan then starts again at that quote.
                row, position = (b'"' + row[len(row.rstrip(b"\\")) :] if match else b""), 0
            # As much again as is unfinished: a string is searched from its quote each time, and with blocks of a fixed size
            # a long one would take quadratic time.
            block = stream.read(max(_BLOCK_BYTES, len(row)))
            buffer, row_start = row + block, 0
            if not block:
                break
            continue
        position = match.end()
        row_end = match.start() if in_array else position
        depth, in_array, is_end = _after(match[0], depth, in_array)
        if is_end:
            row = buffer[row_start:row_end].strip()
            # An empty element is dropped only directly before `]`, so `[]` has none, and `[1,,2]` has a broken one.
            if too_large or row or in_array:
                yield None if too_large or len(row) > limit else row
            row_start, too_large = position, False
    if too_large or buffer.strip():
        yield None if too_large else buffer.strip()
    if in_array:
        yield b""


def _after(token: bytes, depth: float, in_array: bool) -> tuple[float, bool, bool]:
    # The depth within a row, whether it is an array's, and whether it ends, after a token.
    if token in b"[{":
        return depth + 1, in_array, False
    if token in b"]}" and depth:
        return depth - 1, in_array, depth == 1 and not in_array
    is_end = not depth and token in b",]"
    return depth, in_array and not (is_end and token == b"]"), is_end


def _parquet_tables(unit: Unit) -> Iterator[tuple[pa.Table, int]]:
    assert unit.range is not None  # `cut` gives one, since the extent of a Parquet file is known
    start = unit.range.start
    with opened(unit.file) as stream, pq.ParquetFile(stream) as parquet:
        schema = without_views(parquet.schema_arrow)
        for batch in _batches(parquet, unit.range):
            plain = batch if schema == parquet.schema_arrow else batch.cast(schema)
            end = start + batch.num_rows
            columns = {
                FILE: pa.array([unit.file.index] * batch.num_rows, pa.int32()),
                START: pa.array(range(start, end), pa.int64()),
                END: pa.array(range(start + 1, end + 1), pa.int64()),
                NOTE: pa.nulls(batch.num_rows, pa.string()),
            }
            yield pa.table(columns | dict(zip(schema.names, plain.columns, strict=True))), end
            start = end


def _batches(parquet: pq.ParquetFile, rows: Range) -> Iterator[pa.RecordBatch]:
    # The batches of a range of row ordinals; of each row group that overlaps it, only the rows in the range.
    start = 0
    for group in range(parquet.num_row_groups):
        end = start + parquet.metadata.row_group(group).num_rows
        if start < rows.end and end > rows.start:  # others aren't read; those at the ends of the range are read whole
            position = start
            for batch in parquet.iter_batches(_batch_rows(parquet.metadata.row_group(group)), row_groups=[group]):
                first, last = max(position, rows.start), min(position + batch.num_rows, rows.end)
                if first < last:
                    yield batch.slice(first - position, last - first)
                position += batch.num_rows
        start = end


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    # Rows per batch of a row group: at most `_BLOCK_ROWS`, and few enough to hold about `_BLOCK_BYTES`.
    return max(1, min(_BLOCK_ROWS, _BLOCK_BYTES * group.num_rows // max(group.total_byte_size, 1)))
