"""The output files of a filter, JSONL or Parquet: one per output number and side, committed whole or not at all."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Literal, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import OutputError, RunStopped
from actors.records import Reason
from pipelines.data import storage
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.corpus.readers import RECORD
from pipelines.data.storage.lease import Ticket
from pipelines.folders.run_folder.columns import REASON, ROW, Columns
from pipelines.folders.run_folder.json_lines import encode, has_json, written_type
from pipelines.results.filtering.json_splice import one_line, splice, wrap
from pipelines.results.filtering.response_rows import OwnFieldCounts, ResponseRows

_ROW_GROUP_BYTES = 32 * 2**20
_NO_OBJECT = frozenset(
    {
        Reason.NOT_UTF8, Reason.BROKEN_JSON, Reason.NOT_AN_OBJECT, Reason.TOO_DEEP, Reason.RECORD_TOO_LARGE,
        Reason.COLUMN_COLLISION,  # an object, but with fields of our names
    }
)  # fmt: skip
"""Reasons for rejection with which a record can't be spliced: it is no JSON object, or has fields of our names."""


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
    ticket: Ticket | None = None
    """The ticket of the folder's lease, to check before a file is committed."""
    responses: ResponseRows | None = None
    """What makes rows of the responses alone; None where whole rows are written."""

    def check(self) -> None:
        """Raise `OutputError`, naming the column, if the format can't represent the corpus."""
        if self.format == "parquet" or self.columns.is_json or self.responses is not None:
            return
        if bad := [field for field in self.columns.carried if not has_json(field.type)]:
            raise OutputError(
                f"JSONL can't hold the column {bad[0].name!r}, which is {bad[0].type}; leave the format at parquet"
            )

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
        return None if any("map<" in str(field.type) for field in schema) else schema

    @property
    def reads(self) -> set[str]:
        """The columns to read from the parts."""
        if self.responses is not None:
            return self.responses.reads
        names = set(self.schema.names) - {self.why}
        return names | {RECORD, self.columns.prefix + REASON} if self.columns.is_json else names

    def open(self, index: int) -> "KeptFile":
        """The file of output number `index`."""
        return KeptFile(self, f"{self.stem}-{index:05d}.{self.format}")


class KeptFile:
    """A file being written. It gets its name when it is complete; if no row was written there is no file."""

    def __init__(self, target: Target, name: str) -> None:
        self.target = target
        self._name = name
        self._folder = storage.folder(target.folder)
        self._stack = ExitStack()
        self._writer: _Writer | None = None
        self.own_fields = OwnFieldCounts()

    def __enter__(self) -> Self:
        return self

    def write(self, table: pa.Table) -> None:
        """Add rows. Raises `OutputError`."""
        if not table.num_rows:
            return
        try:
            # Opened at the first row: an output without rows, as of a group of which all is kept, leaves no empty file.
            if self._writer is None:
                kind = _ParquetWriter if self.target.format == "parquet" else _JsonlWriter
                stream = self._stack.enter_context(self._folder.writing(self._name))
                self._writer = kind(self.target, stream, self.own_fields)
            self._writer.write(table)
        except OSError as error:
            raise self._output_error(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._writer is not None:
                with nullcontext() if kind is None else suppress(OSError, pa.ArrowException):
                    self._writer.close()  # after an error, too: else the Parquet writer closes itself later, and fails
            # Checked last, before the commit: a run that lost the lease must not replace a file of its successor.
            if kind is None and self.target.ticket is not None:
                self.target.ticket.check()
            self._stack.__exit__(kind, error, traceback)
        # The context of `_folder.writing` discards the file if it is left with an error: it must get those raised here, too.
        except OSError as refused:
            self._stack.__exit__(type(refused), refused, refused.__traceback__)
            raise self._output_error(refused) from refused
        except RunStopped as lost:
            self._stack.__exit__(type(lost), lost, lost.__traceback__)
            raise

    def _output_error(self, error: OSError) -> OutputError:
        return OutputError(f"{self._folder.file(self._name)} can't be written: {error.strerror or error}")


class _Writer(Protocol):
    def __init__(self, target: Target, stream: IO[bytes], own_fields: OwnFieldCounts) -> None: ...

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class _ParquetWriter:
    """Collects rows into row groups of about 32 MiB, uncompressed."""

    def __init__(self, target: Target, stream: IO[bytes], own_fields: OwnFieldCounts) -> None:
        self._responses, self._own_fields = target.responses, own_fields
        self._schema = target.schema.with_metadata(dict(target.metadata))
        self._writer = pq.ParquetWriter(stream, self._schema, compression="zstd", write_page_checksum=True)
        # Tables come part by part, filtered: often a few rows each, which as row groups would be more headers than data.
        self._tables: list[pa.Table] = []
        self._bytes = 0

    def write(self, table: pa.Table) -> None:
        if self._responses is not None:
            table = self._responses.table(table, self._own_fields)
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


class _JsonlWriter:
    """Writes one line per row."""

    def __init__(self, target: Target, stream: IO[bytes], own_fields: OwnFieldCounts) -> None:
        self._target, self._own_fields = target, own_fields
        self._names = target.schema.names
        self._stream = stream

    def write(self, table: pa.Table) -> None:
        self._stream.writelines(line + b"\n" for line in self._lines(table))

    def close(self) -> None:
        self._stream.flush()

    def _lines(self, table: pa.Table) -> Iterator[bytes]:
        columns = self._target.columns
        if self._target.responses is not None:
            yield from map(encode, self._target.responses.rows(table, self._own_fields))
            return
        rows = python_rows(table.select(self._names), unconvertible=None)
        if not columns.is_json:
            yield from map(encode, rows)
            return
        records = table.column(RECORD).to_pylist()
        reasons = table.column(columns.prefix + REASON).to_pylist()
        for record, reason, fields in zip(records, reasons, rows, strict=True):
            # None: the record was too large to be read.
            if record is None:
                yield wrap(None, fields)
            elif not self._target.fields:
                yield one_line(record) or wrap(record, fields)  # a record of white space alone would be an empty line
            # Whole, in a field of its own: fields can't be added to what is no object, nor twice under one name.
            elif reason in _NO_OBJECT or self._has_why(record):
                yield wrap(record, fields)
            else:
                yield splice(record, fields)

    def _has_why(self, record: bytes) -> bool:
        """Whether the object has a field `why` itself: scoring rejects collisions with other names, not with this."""
        why = self._target.why
        # Parse only if the name occurs as text, or may occur escaped.
        return why is not None and (why.encode() in record or b"\\u" in record) and why in json.loads(record)
