"""The output files of a filter, JSONL or Parquet: one per output number and side, committed whole or not at all."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import OutputError
from actors.records import Reason
from pipelines.data import storage
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.corpus.readers import RECORD
from pipelines.data.storage.lease import Ticket
from pipelines.folders.run_folder.columns import REASON, ROW, Columns
from pipelines.folders.run_folder.json_lines import encode, written_type
from pipelines.folders.run_folder.output_folder import result_name
from pipelines.folders.scored_corpus.candidates import count_left
from pipelines.results.filtering.json_splice import one_line, splice, wrap
from pipelines.results.filtering.response_rows import ResponseRows

_ROW_GROUP_BYTES = 32 * 2**20  # uncompressed: a reader decodes a row group whole
# Reasons with which a record can't be spliced: it is no JSON object that can be read, or has fields of our names.
NO_OBJECT = frozenset(
    {
        Reason.NOT_UTF8, Reason.BROKEN_JSON, Reason.NOT_AN_OBJECT, Reason.TOO_DEEP, Reason.RECORD_TOO_LARGE,
        Reason.COLUMN_COLLISION,
    }
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One side of a filter, kept rows or the rest: folder and format. `why` names the rest's column of reasons."""

    folder: str
    stem: Literal["kept", "rest"]
    format: Literal["jsonl", "parquet"]
    columns: Columns
    fields: bool
    why: str | None
    metadata: Mapping[str, str]
    responses: ResponseRows | None = None  # makes rows of the responses alone; None where whole rows are written
    ticket: Ticket | None = None  # of the folder's lease, to check before a file is committed

    @property
    def schema(self) -> pa.Schema:
        """The columns to write; of whole rows of a JSON corpus in JSONL, those that are spliced into the record."""
        if self.responses is not None:
            return self.responses.schema
        fields = list(self.columns.schema if self.fields else self.columns.carried)
        if self.format == "jsonl" and self.columns.is_json:
            fields = list(self.columns.ours) if self.fields else [pa.field(self.columns.prefix + ROW, pa.string())]
        return pa.schema([*fields, *([pa.field(self.why, pa.string())] if self.why else [])])

    @property
    def written(self) -> pa.Schema | None:
        """The columns of the rows as JSONL has them, for the card; None where rows are records of the input's own fields."""
        if self.format == "parquet" or (self.columns.is_json and self.responses is None):
            return None
        schema = pa.schema([field.with_type(written_type(field.type)) for field in self.schema])
        # JSON writes a map as an object, whose keys would have to be the fields of a type.
        return None if any("map<" in str(field.type) for field in schema) else schema

    @property
    def reads(self) -> set[str]:
        if self.responses is not None:
            return self.responses.reads
        names = set(self.schema.names) - {self.why}
        # The reason says whether the record can be spliced.
        return names | {RECORD, self.columns.prefix + REASON} if self.columns.is_json else names


@contextmanager
def writing(target: Target, index: int) -> Iterator["KeptFile"]:
    """The file of output number `index`. It gets its name when the block ends; if no row was written there is no file.

    Raises `OutputError` if it can't be written, and `RunStopped` if the run has lost the folder.
    """
    folder, name = storage.folder(target.folder), f"{target.stem}-{result_name(index)}.{target.format}"
    try:
        with folder.writing(name) as stream:
            file = KeptFile(target, stream)
            try:
                yield file
            except BaseException:
                # A Parquet writer that isn't closed closes itself later, and fails where nobody sees it.
                with suppress(OSError, pa.ArrowException):
                    file.close()
                raise
            file.close()
            # Checked last, before the commit: a run that lost the lease must not replace a file of its successor.
            if target.ticket is not None:
                target.ticket.check()
        if not file.rows:
            folder.delete(name)
    except OSError as error:
        raise OutputError(f"{folder.file(name)} can't be written: {error.strerror or error}") from error


class KeptFile:
    """A file being written.

    Of rows of single responses, `left` counts own fields that aren't written (`count_left`), and `mixed` says whether some
    have another type than their column.
    """

    def __init__(self, target: Target, stream: IO[bytes]) -> None:
        self.rows, self.left, self.mixed = 0, Counter[str](), False
        self._target, self._stream = target, stream
        self._row_groups: RowGroups | None = None
        if target.format == "parquet":
            self._row_groups = RowGroups(stream, target.schema.with_metadata(dict(target.metadata)))

    def write(self, table: pa.Table, is_first: pa.Array, why: pa.Array) -> None:
        """Write responses: `is_first` marks the first one of each row, and `why` says why it isn't kept."""
        target = self._target
        if target.why:
            table = table.append_column(target.why, why)
        # Without our fields a kept row is its input row: once, however many of its responses are kept.
        if not target.fields and target.responses is None:
            table = table.filter(is_first)
        self.rows += table.num_rows
        if target.responses is not None:
            self._write_responses(target.responses, table)
        elif self._row_groups is not None:
            self._row_groups.add(table)
        else:
            self._stream.writelines(line + b"\n" for line in _lines(target, table))

    def close(self) -> None:
        if self._row_groups is not None:
            self._row_groups.close()

    def _write_responses(self, maker: ResponseRows, table: pa.Table) -> None:
        responses = maker.read(table)
        self.left.update(count_left(read.left for read in responses))
        if self._row_groups is not None:
            self._row_groups.add(maker.table(table, responses))
            return
        self.mixed = self.mixed or maker.is_mixed(table, responses)
        self._stream.writelines(encode(row) + b"\n" for row in maker.rows(table, responses))


class RowGroups:
    """Collects rows into row groups of about 32 MiB, uncompressed.

    `close` writes the last one and the footer; without it the file can't be read.
    """

    def __init__(self, stream: IO[bytes], schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True)
        # Tables come part by part, filtered: often a few rows each, which as row groups would be more headers than data.
        self._tables: list[pa.Table] = []
        self._bytes = 0

    def add(self, table: pa.Table) -> None:
        """Add rows, which may have more columns than the schema."""
        self._tables.append(table.select(self._schema.names).cast(self._schema))
        # Added up, and not summed anew for each table: 4,000 tables of a few rows would be 8 million times `nbytes`.
        self._bytes += self._tables[-1].nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._tables:
            self._writer.write_table(pa.concat_tables(self._tables))
        self._tables, self._bytes = [], 0


def _lines(target: Target, table: pa.Table) -> Iterator[bytes]:
    columns = target.columns
    rows = columns.as_objects(python_rows(table.select(target.schema.names), unconvertible=None))
    if not columns.is_json:
        yield from map(encode, rows)
        return
    records = table.column(RECORD).to_pylist()
    reasons = table.column(columns.prefix + REASON).to_pylist()
    for record, reason, fields in zip(records, reasons, rows, strict=True):
        # None: the record was too large to be read.
        if record is None:
            yield wrap(None, fields)
        elif not target.fields:
            yield one_line(record) or wrap(record, fields)  # a record of white space alone would be an empty line
        # Whole, in a field of its own: fields can't be added to what is no object, nor twice under one name.
        elif reason in NO_OBJECT or _has_field(record, target.why):
            yield wrap(record, fields)
        else:
            yield splice(record, fields)


def _has_field(record: bytes, name: str | None) -> bool:
    """Whether the object has the field `why` itself: scoring rejects collisions with other names, not with this."""
    # Parse only if the name occurs as text, or may occur escaped.
    return name is not None and (name.encode() in record or b"\\u" in record) and name in json.loads(record)
