"""Parts as Parquet files: finds those that are damaged, and gives all of them as one table for SQL.

Arrow verifies the checksum of each page. DuckDB's own Parquet reader doesn't, so DuckDB gets what Arrow has read.
"""

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from actors.errors import SourceError
from pipelines.data import storage
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.part_content import DamagedPart, batches, check_named, is_whole, opened
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.scored_folder import ResponsesOf

# Columns of `in_order`: the index of a row's part in the listing, and of the row in the part.
PART_AT, ROW_AT = "part_at", "row_at"

_THREADS = 8  # parts that are read concurrently, each as a whole
_OPEN_AT_A_TIME = 256  # parts of which Arrow reads some while others are computed on


@dataclass(frozen=True)
class CheckedPart:
    """What was found of a part; `problem` is a clause about it that begins with a verb, None if it is good."""

    part: Part
    size: int
    problem: str | None


def drop_unreadable(parts: Parts, notify: Callable[[str], None]) -> list[Part]:
    """Read every part, and delete and return those that are damaged or contradict their names.

    Each leaves a gap, which the next pass fills. `notify` gets a message for each. Raises as `check_contents` does; then
    the part that the storage didn't give is still there.
    """
    dropped: list[Part] = []
    for checked in check_contents(parts):
        if checked.problem is not None:
            notify(f"{parts.path(checked.part)} {checked.problem}, so it is dropped, and its rows are scored again")
            parts.parts_folder.delete(checked.part.name)
            dropped.append(checked.part)
    return dropped


def _read_all(part: Part, parquet: pq.ParquetFile) -> None:
    for _ in batches(parquet):  # whose checksums are verified
        pass


def check_contents(parts: Parts, check: Callable[[Part, pq.ParquetFile], str | None] = _read_all) -> Iterator[CheckedPart]:
    """Check the bytes of every part, and by `check`, which gives a problem or None, what is in it.

    A part is read at once and then taken apart, so that a storage that doesn't answer is never taken for a damaged part.
    Raises `SourceError` if the storage doesn't give a part, or there is no memory for it: that says nothing of the part.
    """
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
        yield from threads.map(functools.partial(_check_content, parts, check), parts.listing())


def _check_content(parts: Parts, check: Callable[[Part, pq.ParquetFile], str | None], part: Part) -> CheckedPart:
    try:
        # The whole part: an error of the storage must be told from damage, after which the part is deleted.
        content = parts.parts_folder.read(part.name)
        with opened(content, part) as parquet:
            if not is_whole(content, parquet.metadata):
                return CheckedPart(part, len(content), "has another checksum than it was written with, or none")
            return CheckedPart(part, len(content), check(part, parquet))
    except DamagedPart as error:
        return CheckedPart(part, len(content), f"can't be read: {error}")
    except OSError as error:
        raise SourceError(f"{parts.path(part)} can't be read: {error_text(error)}") from error
    except MemoryError as error:
        raise SourceError(f"{parts.path(part)} can't be read: there is too little memory") from error


def read_unordered(parts: Parts, schema: pa.Schema) -> pa.RecordBatchReader:
    """Some columns of all parts, in no order. Can be read once.

    A single Arrow dataset of all parts would keep what it has read of each one's footer: 30 kB, and 3 GB of 100,000 parts.
    """
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=checked)

    def open_fragment(part: Part, fragment: ds.ParquetFileFragment) -> ds.ParquetFileFragment:
        check_named(fragment.metadata, part)
        return fragment

    def batches() -> Iterator[pa.RecordBatch]:
        entries = iter(parts.entries())
        with ThreadPoolExecutor(_THREADS) as threads:
            while opened_entries := list(itertools.islice(entries, _OPEN_AT_A_TIME)):
                sizes = {parts.path(part): entry.size for part, entry in opened_entries}
                # With the sizes of the listing: else a store is asked for the size of each file first.
                file_system, place = storage.arrow_file_system(parts.parts_folder.path, sizes)
                unopened = (form.make_fragment(place(path), file_system) for path in sizes)
                fragments = list(threads.map(open_fragment, (part for part, _ in opened_entries), unopened))
                # Without the cache: footers of all parts would stay in memory, 30 kB each.
                yield from ds.FileSystemDataset(fragments, schema, form, file_system).to_batches(cache_metadata=False)

    return pa.RecordBatchReader.from_batches(schema, batches())


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
