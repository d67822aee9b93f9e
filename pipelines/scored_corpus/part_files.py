"""Parts as files: which of them can't be read, and all of them as one table for SQL.

Arrow checks each page that it reads by the page's checksum. DuckDB by itself does not, so it is given what Arrow read.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.dataset as ds

from actors.errors import SourceError
from pipelines import storage
from pipelines.scored_corpus.parts import Part, Parts, open_part, read_tables

PART_AT, ROW_AT = "part_at", "row_at"
"""Columns of `in_order`: where a row is."""

_SIDE_BY_SIDE = 8


def drop_unreadable(parts: Parts, noted: Callable[[str], None]) -> list[Part]:
    """Read every part, and drop those that can't be read or don't hold what their names say. What they leave is a gap."""
    dropped: list[Part] = []
    for part, why in unreadable_parts(parts):
        noted(f"{parts.path(part)} is dropped, and what it held is made again: {why}")
        parts.parts_folder.delete(part.name)
        dropped.append(part)
    return dropped


def unreadable_parts(parts: Parts) -> Iterator[tuple[Part, str]]:
    """The parts that can't be read to their ends, and why."""
    listing = parts.listing()
    with ThreadPoolExecutor(min(_SIDE_BY_SIDE, os.cpu_count() or 1)) as threads:
        reasons = threads.map(lambda part: _why_unreadable(parts.path(part), part), listing)
        yield from ((part, why) for part, why in zip(listing, reasons, strict=True) if why is not None)


def _why_unreadable(path: str, part: Part) -> str | None:
    held = 0
    try:
        with open_part(path) as parquet:
            for batch in parquet.iter_batches():
                held += batch.num_rows
    except SourceError as error:
        return str(error.__cause__)
    if held != part.counts.responses:
        return f"it holds {held} responses, and its name says {part.counts.responses}"
    return None


def dataset(parts: Parts, schema: pa.Schema) -> ds.Dataset:
    """Some columns of all parts, as DuckDB scans them as often as it likes."""
    file_system, place = storage.arrow_file_system(parts.parts_folder.path)
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    fragments = [form.make_fragment(place(parts.path(part)), file_system) for part in parts.listing()]
    return ds.FileSystemDataset(fragments, schema, form, file_system)


def in_order(parts: Parts, schema: pa.Schema, names: Sequence[str]) -> pa.RecordBatchReader:
    """Some columns of all parts in the order of the corpus, called `names`, and where each row is. To be read once."""
    numbers = [pa.field(PART_AT, pa.int64()), pa.field(ROW_AT, pa.int64())]
    named = pa.schema([*(field.with_name(name) for field, name in zip(schema, names, strict=True)), *numbers])

    def batches() -> Iterator[pa.RecordBatch]:
        for part_at, part in enumerate(parts.listing()):
            row_at = 0
            for table in read_tables(parts.path(part), schema.names):
                count = table.num_rows
                places = [pa.array([part_at] * count, pa.int64()), pa.array(range(row_at, row_at + count), pa.int64())]
                yield from pa.table([*table.cast(schema).columns, *places], named).to_batches()
                row_at += count

    return pa.RecordBatchReader.from_batches(named, batches())
