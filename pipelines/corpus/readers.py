"""From a unit of work to tables of raw rows, each with the range of its file that it stands for.

The ranges of a file's rows tile it: blank lines belong to the row before them, and those that no row goes before are a
row of kind `blank`. So the names of the parts alone tell whether everything was read, and a row starts where its line does,
however the file is cut up.
"""

import io
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import SourceError
from actors.records import Reason
from pipelines.corpus.corpus_files import FileKind, InputFile, Range, Unit, check_same, check_untouched
from pipelines.storage import Found, is_remote, open_read

FILE, START, END, NOTE, RECORD = "_file", "_start", "_end", "_note", "record"
PREPARED = "_prepared"  # what `pipelines.prepare` puts beside a row
RESERVED = frozenset({FILE, START, END, NOTE, PREPARED})
"""Columns that travel beside those of the input; an input column of that name would take their place."""

BLANK = "blank"
_BLOCK_BYTES = 4 * 2**20
_BLOCK_ROWS = 1024
_BUFFER = 64 * 1024
_ELEMENTS_MEASURED = 100

JSON_SCHEMA = pa.schema(
    [(FILE, pa.int32()), (START, pa.int64()), (END, pa.int64()), (NOTE, pa.string()), (RECORD, pa.large_binary())]
)


class RawRow(NamedTuple):
    """One JSON record as it stands in its file. `note` is `blank`, a `Reason` for an unread record, or None."""

    start: int
    end: int
    note: str | None
    record: bytes | None


EndSeen = Callable[[InputFile, int], None]
"""Called with a file and its extent, once it was read to its end."""


def read(unit: Unit, max_record_bytes: int, end_seen: EndSeen) -> Iterator[pa.Table]:
    """The tables of a unit. Calls `end_seen` with the file's extent if reading is what it takes to know it.

    Raises `SourceError` if the file is gone, or isn't what it was when it was found, before a table that may tell otherwise.
    """
    known = check_same(unit.file)
    if unit.file.kind is FileKind.PARQUET:
        for table in _parquet_tables(unit):
            yield _unchanged(table, known)
        check_untouched(known)
        return
    rows = raw_rows(unit, max_record_bytes)
    extent = 0
    for table, end in _json_tables(unit, rows):
        extent = max(extent, end)
        if table.num_rows:
            yield _unchanged(table, known)
    check_untouched(known)
    if unit.file.extent is None:
        end_seen(unit.file, extent)


def _unchanged(table: pa.Table, known: Found) -> pa.Table:
    """The table, unless the file was written to while it was read. A store is asked at the end alone: that takes long."""
    if not is_remote(known.path):
        check_untouched(known)
    return table


def bytes_per_position(file: InputFile) -> float:
    """About how many bytes on disk a position of the file stands for, from how it begins."""
    with open_read(file.path) as stream:
        if file.kind is FileKind.ARRAY:
            elements = itertools.islice(_cut_array(stream, _BLOCK_BYTES), _ELEMENTS_MEASURED)
            sizes = [len(element or b"") + 2 for element in elements]
            return sum(sizes) / len(sizes) if sizes else float(file.size)
        plain = pa.CompressedInputStream(stream, file.kind.compression)
        try:
            unpacked = len(plain.read(_BLOCK_BYTES))
        except OSError:  # it is cut off; whoever reads it will say so
            unpacked = 0
        return stream.tell() / unpacked if unpacked else 1.0


def raw_rows(unit: Unit, max_record_bytes: int) -> Iterator[RawRow]:
    """The rows of a JSON unit, in order, done or not. Raises `SourceError` if the file can't be read to its end."""
    file = unit.file
    try:
        with open_read(file.path) as stream:
            if file.kind is FileKind.ARRAY:
                yield from _elements(stream, max_record_bytes, file.extent)
            elif file.kind is FileKind.JSONL:
                piece = unit.range or Range(0, file.size)
                yield from _lines(stream, piece.start, piece.end, max_record_bytes)
            else:
                plain = io.BufferedReader(pa.CompressedInputStream(stream, file.kind.compression), _BUFFER)
                yield from _lines(plain, 0, file.extent, max_record_bytes)
    except OSError as error:
        raise SourceError(f"{file.path} can't be read to its end: {error}") from error


def _json_tables(unit: Unit, rows: Iterator[RawRow]) -> Iterator[tuple[pa.Table, int]]:
    done = iter(sorted(unit.done))
    current = next(done, None)
    batch: list[RawRow] = []
    size = 0
    end = 0
    for row in rows:
        end = row.end
        while current is not None and current.end <= row.start:
            current = next(done, None)
        if current is not None and current.start <= row.start:
            continue
        batch.append(row)
        size += len(row.record or b"")
        if size >= _BLOCK_BYTES or len(batch) >= _BLOCK_ROWS:
            yield _table(unit.file, batch), end
            batch, size = [], 0
    yield _table(unit.file, batch), end


def _table(file: InputFile, rows: Sequence[RawRow]) -> pa.Table:
    columns = [[file.index] * len(rows), *([row[i] for row in rows] for i in range(4))]
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, JSON_SCHEMA, strict=True)], JSON_SCHEMA)


def _lines(stream: IO[bytes], start: int, stop: int | None, limit: int) -> Iterator[RawRow]:
    """The lines that start in [start, stop). A line's range takes the blank lines after it."""
    position = _first_line_start(stream, start, limit)
    pending: RawRow | None = None
    while stop is None or position < stop:
        line, length = _read_line(stream, limit)
        if not length:
            break
        begin, position = position, position + length
        if line is not None and not line.strip():
            pending = RawRow(begin, position, BLANK, None) if pending is None else pending._replace(end=position)
            continue
        if pending is not None:
            yield pending
        note = Reason.RECORD_TOO_LARGE.value if line is None else None
        pending = RawRow(begin, position, note, line if line is None else line.rstrip(b"\r\n"))
    if pending is not None:
        yield pending


def _first_line_start(stream: IO[bytes], start: int, limit: int) -> int:
    if start == 0:
        return 0
    stream.seek(start - 1)  # if the byte before is a line's end, a line starts right here
    _, length = _read_line(stream, limit)
    return start - 1 + length


def _read_line(stream: IO[bytes], limit: int) -> tuple[bytes | None, int]:
    """The next line and its length; None for a line longer than `limit`, which is passed over piece by piece."""
    line = stream.readline(limit + 1)
    if len(line) <= limit or line.endswith(b"\n"):
        return line, len(line)
    length = len(line)
    while not line.endswith(b"\n") and (line := stream.readline(_BLOCK_BYTES)):
        length += len(line)
    return None, length


_TOKEN = re.compile(rb'"(?:[^"\\]+|\\.)*+"|[\[\]{},"]', re.DOTALL)


def _elements(stream: IO[bytes], limit: int, stop: int | None) -> Iterator[RawRow]:
    """The elements of a JSON array as they are written, by ordinal. What can't be cut up is one last, broken record.

    So is an end that is missing: a file that was cut off right after an element must not look whole.
    """
    for ordinal, element in enumerate(itertools.islice(_cut_array(stream, limit), stop)):
        yield RawRow(ordinal, ordinal + 1, Reason.RECORD_TOO_LARGE.value if element is None else None, element)


def _cut_array(stream: IO[bytes], limit: int) -> Iterator[bytes | None]:
    """Cuts at the commas of the outermost array. Only strings and brackets matter, so an element may itself be broken.

    An element longer than `limit` is None, and isn't held: with a quote too few, it may be all the rest of the file.
    """
    buffer = stream.read(_BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()[1:]
    depth = begin = at = 0
    too_large = closed = False
    while True:
        match = _TOKEN.search(buffer, at)
        if match is None or match[0] == b'"':  # nothing more here, or a string that goes on in the next block
            element, at = buffer[begin:], (match.start() if match else len(buffer)) - begin
            too_large = too_large or len(element.strip()) > limit
            if too_large:  # of an open string, only the quote is needed, and whether a backslash waits for its character
                element, at = (b'"' + element[len(element.rstrip(b"\\")) :] if match else b""), 0
            more = stream.read(max(_BLOCK_BYTES, len(element)))
            buffer, begin = element + more, 0
            if not more:
                break
            continue
        at = match.end()
        token = match[0]
        if token in b"[{":
            depth += 1
        elif token in b"]}" and depth:
            depth -= 1
        elif token in b",]" and not depth and not closed:
            closed = token == b"]"
            element = buffer[begin : match.start()].strip()
            if too_large or element or not closed:
                yield None if too_large or len(element) > limit else element
            begin, too_large = at, False
    if too_large or buffer.strip():
        yield None if too_large else buffer.strip()
    if not closed:
        yield b""


def _parquet_tables(unit: Unit) -> Iterator[pa.Table]:
    if unit.range is None:
        return
    start = unit.range.start
    with open_read(unit.file.path) as stream, pq.ParquetFile(stream) as parquet:
        for batch in _slices(parquet, unit.range):
            positions = pa.array(range(start, start + batch.num_rows), pa.int64())
            ends = pa.array(range(start + 1, start + batch.num_rows + 1), pa.int64())
            file = pa.array([unit.file.index] * batch.num_rows, pa.int32())
            note = pa.nulls(batch.num_rows, pa.string())
            columns = {FILE: file, START: positions, END: ends, NOTE: note}
            yield pa.table(columns | dict(zip(batch.schema.names, batch.columns, strict=True)))
            start += batch.num_rows


def _slices(parquet: pq.ParquetFile, wanted: Range) -> Iterator[pa.RecordBatch]:
    start = 0
    for group in range(parquet.num_row_groups):
        end = start + parquet.metadata.row_group(group).num_rows
        if start < wanted.end and end > wanted.start:
            position = start
            for batch in parquet.iter_batches(_batch_rows(parquet.metadata.row_group(group)), row_groups=[group]):
                first, last = max(position, wanted.start), min(position + batch.num_rows, wanted.end)
                if first < last:
                    yield batch.slice(first - position, last - first)
                position += batch.num_rows
        start = end


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    """How many rows of a row group are read together: of large ones a few."""
    return max(1, min(_BLOCK_ROWS, _BLOCK_BYTES * group.num_rows // max(group.total_byte_size, 1)))
