"""Parts as Parquet files: finds those that can't be read, and gives all of them as one table for SQL.

Arrow verifies the checksum of each page. DuckDB's own Parquet reader doesn't, so DuckDB gets what Arrow has read.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.dataset as ds

from actors.errors import SourceError
from pipelines import storage
from pipelines.run_folder.parts import Part, Parts, open_part
from pipelines.scored_corpus.scored_folder import ResponsesOf

PART_AT, ROW_AT = "part_at", "row_at"
"""Columns of `in_order`: the index of a row's part in the listing, and of the row in the part."""

_THREADS = 8


def drop_unreadable(parts: Parts, notify: Callable[[str], None]) -> list[Part]:
    """Read every part, delete those that can't be read or contradict their names, and return them.

    Each leaves a gap, which the next pass fills. `notify` gets a message for each.
    """
    dropped: list[Part] = []
    for part, reason in unreadable_parts(parts):
        notify(f"{parts.path(part)} is dropped, and its rows are scored again: {reason}")
        parts.parts_folder.delete(part.name)
        dropped.append(part)
    return dropped


def unreadable_parts(parts: Parts) -> Iterator[tuple[Part, str]]:
    """The parts that can't be read to the end, each with the reason. Reads every page of every part."""
    sizes = parts.sizes()
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
        reasons = threads.map(lambda part: _why_unreadable(parts.path(part), part, sizes[part]), sizes)
        yield from ((part, reason) for part, reason in zip(sizes, reasons, strict=True) if reason is not None)


def _why_unreadable(path: str, part: Part, size: int) -> str | None:
    responses = 0
    try:
        with open_part(path, size) as parquet:
            for batch in parquet.iter_batches():
                responses += batch.num_rows
    except SourceError as error:
        return str(error.__cause__)
    if responses != part.counts.responses:
        return f"it holds {responses} responses, and its name says {part.counts.responses}"
    return None


def dataset(parts: Parts, schema: pa.Schema) -> ds.Dataset:
    """Some columns of all parts as an Arrow dataset, which DuckDB can scan more than once."""
    sizes = {parts.path(part): size for part, size in parts.sizes().items()}
    file_system, place = storage.arrow_file_system(parts.parts_folder.path, sizes)
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    fragments = [form.make_fragment(place(path), file_system) for path in sizes]
    return ds.FileSystemDataset(fragments, schema, form, file_system)


def in_order(source: ResponsesOf, schema: pa.Schema, names: Sequence[str]) -> pa.RecordBatchReader:
    """Some columns of what is read, in corpus order, renamed to `names`, with `PART_AT` and `ROW_AT`. Can be read once."""
    numbers = [pa.field(PART_AT, pa.int64()), pa.field(ROW_AT, pa.int64())]
    named = pa.schema([*(field.with_name(name) for field, name in zip(schema, names, strict=True)), *numbers])

    def batches() -> Iterator[pa.RecordBatch]:
        for part_at, part in enumerate(source.parts.listing()):
            row_at = 0
            for table in source.tables(part, schema.names):
                count = table.num_rows
                places = [pa.array([part_at] * count, pa.int64()), pa.array(range(row_at, row_at + count), pa.int64())]
                yield from pa.table([*table.cast(schema).columns, *places], named).to_batches()
                row_at += count

    return pa.RecordBatchReader.from_batches(named, batches())
