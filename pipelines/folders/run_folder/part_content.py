"""The bytes of a part: written with checksums, and checked.

Each page has a checksum, which every reader verifies. One more, in the footer, is of the whole file, footer included:
SHA-256 with its own 64 digits taken as zeros. The footer also says which part it is: whoever opens it compares that with the
name, or a file that was copied over another one would give its rows twice, and lose the other's.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.folders.run_folder.examples import KEY as EXAMPLES_KEY
from pipelines.folders.run_folder.part import Part

# In the footer: the checksum of the file, its files and range, and the run.
SHA_KEY, PLACE_KEY, RUN_KEY = "assay_sha256", "assay_place", "assay_run"

# Bytes of a row group, decoded: Arrow can't read lists of strings of over 2 GiB at once. Few parts have a second group.
_GROUP_BYTES = 2**28
_BATCH_ROWS = 4096
_ZEROS = "0" * 64


class DamagedPart(Exception):
    """The bytes of a part, read in full, aren't a Parquet file, or not as it was written; the message is one line."""


def encode(table: pa.Table, metadata: Mapping[str, str], place: str) -> bytes:
    """A table as the bytes of a part, with `metadata` and the table's examples in place of the table's metadata."""
    content = io.BytesIO()
    notes = {EXAMPLES_KEY: note} if (note := (table.schema.metadata or {}).get(EXAMPLES_KEY.encode())) else {}
    marked = table.replace_schema_metadata({**notes, **metadata})
    with pq.ParquetWriter(content, marked.schema, compression="zstd", write_page_checksum=True) as writer:
        # So many rows have `_GROUP_BYTES`, by the mean size of a row; one row may be larger than that.
        writer.write_table(marked, max(1, marked.num_rows * _GROUP_BYTES // max(marked.nbytes, 1)))
        writer.add_key_value_metadata({PLACE_KEY: place, SHA_KEY: _ZEROS})
    zeroed = content.getvalue()
    # The footer comes last, and in it these keys after all others, whatever the columns hold.
    position = zeroed.index(_ZEROS.encode(), zeroed.rindex(SHA_KEY.encode()))
    return zeroed[:position] + _digest(zeroed) + zeroed[position + len(_ZEROS) :]


@contextmanager
def opened(content: bytes, part: Part) -> Iterator[pq.ParquetFile]:
    """Open the bytes of a part, which the caller has read in full: storage that doesn't answer is no damage.

    The checksum of every page read is verified. Raises `DamagedPart`, also for what is read of it in the block, and
    `MemoryError`, which says nothing of the part.
    """
    try:
        with pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True) as parquet:
            check_named(parquet.metadata, part)
            yield parquet
    except MemoryError:  # before the others, since Arrow's is an `ArrowException` as well
        raise
    except (OSError, ValueError, KeyError, OverflowError, pa.ArrowException) as error:
        raise DamagedPart(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def check_named(metadata: pq.FileMetaData, part: Part) -> None:
    """Raise `DamagedPart` unless a file holds the part that its name says: the run, the place and as many responses."""
    # Run and place before the counts: a copy of another part may have as many responses.
    notes = metadata.metadata or {}  # made anew at each access
    run, place = (notes.get(key.encode(), b"").decode(errors="replace") for key in (RUN_KEY, PLACE_KEY))
    if (run, place) != (part.run, part.place):
        raise DamagedPart(f"it was written as {place or 'no part'} of the run {run or '(none)'}, and is named {part.name}")
    if metadata.num_rows != part.counts.responses:
        raise DamagedPart(f"it holds {metadata.num_rows} responses, and its name says {part.counts.responses}")


def batches(parquet: pq.ParquetFile, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Some columns of a part, or all, in batches of up to 4,096 rows, each within a row group (`_GROUP_BYTES`)."""
    for group in range(parquet.num_row_groups):
        yield from parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def footer_note(metadata: pq.FileMetaData, key: str) -> str | None:
    """What the footer says under a key."""
    value = (metadata.metadata or {}).get(key.encode())
    return None if value is None else value.decode(errors="replace")


def is_whole(content: bytes, metadata: pq.FileMetaData) -> bool:
    """Whether the file has the checksum of the whole file, and it is right.

    Page checksums leave out the footer: a flipped bit in its statistics would be noticed by this one only.
    """
    digest = footer_note(metadata, SHA_KEY)
    if digest is None:
        return False
    before, written, after = content.rpartition(digest.encode())
    return bool(written) and _digest(before + _ZEROS.encode() + after) == written
