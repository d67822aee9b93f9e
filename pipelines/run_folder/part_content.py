"""The bytes of a part: written with checksums, and checked.

Each page has a checksum, which every reader verifies. One more, in the footer, is of the whole file, footer included:
SHA-256 with its own 64 digits taken as zeros. Files of earlier versions have the first, or neither.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

SHA_KEY, PLACE_KEY = "assay_sha256", "assay_place"
"""Keys in the footer: of the checksum, and of the part's file and range, so that a part under another's name is noticed."""

_GROUP_BYTES = 2**28
"""Bytes of a row group, decoded: Arrow can't read lists of strings of over 2 GiB at once. Few parts have a second group."""
_BATCH_ROWS = 4096
_ZEROS = "0" * 64
_PAGE_HEADER_BYTES = 64
_I32 = 0x15
"""In Thrift's compact protocol: a field whose number is one more than that of the field before, and which is an i32."""


class DamagedPart(Exception):
    """The bytes of a part, read in full, aren't a Parquet file, or not as it was written; the message is one line."""


def encode(table: pa.Table, metadata: Mapping[str, str], place: str) -> bytes:
    """A table as the bytes of a part, with `metadata` in place of its own."""
    content = io.BytesIO()
    marked = table.replace_schema_metadata(metadata)
    with pq.ParquetWriter(content, marked.schema, compression="zstd", write_page_checksum=True) as writer:
        writer.write_table(marked, max(1, marked.num_rows * _GROUP_BYTES // max(marked.nbytes, 1)))
        writer.add_key_value_metadata({PLACE_KEY: place, SHA_KEY: _ZEROS})
    zeroed = content.getvalue()
    # The footer comes last, and in it these keys after all others, whatever the columns hold.
    at = zeroed.index(_ZEROS.encode(), zeroed.rindex(SHA_KEY.encode()))
    return zeroed[:at] + _digest(zeroed) + zeroed[at + len(_ZEROS) :]


@contextmanager
def opened(content: bytes) -> Iterator[pq.ParquetFile]:
    """Open the bytes of a part, which the caller has read in full: storage that doesn't answer is no damage.

    The checksum of every page read is verified. Raises `DamagedPart`, also for what is read of it in the block, and
    `MemoryError`, which says nothing of the part.
    """
    try:
        with pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True) as parquet:
            yield parquet
    except MemoryError:  # before the others, since Arrow's is an `ArrowException` as well
        raise
    except (OSError, ValueError, KeyError, OverflowError, pa.ArrowException) as error:
        raise DamagedPart(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


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
    """Whether the checksum of the whole file is right, or the file is of an earlier version and has none."""
    digest = footer_note(metadata, SHA_KEY)
    if digest is None:
        return footer_note(metadata, PLACE_KEY) is None
    before, written, after = content.rpartition(digest.encode())
    return bool(written) and _digest(before + _ZEROS.encode() + after) == written


def has_checksums(content: bytes, metadata: pq.FileMetaData) -> bool:
    """Whether a file has a checksum of the whole, or its first page has one: then all pages do."""
    if footer_note(metadata, SHA_KEY) is not None or not metadata.num_row_groups:
        return True
    column = metadata.row_group(0).column(0)
    start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    header, at = content[start : start + _PAGE_HEADER_BYTES], 0
    # A header begins with its type and its two sizes, each a byte of `_I32` and the number in 7 bits a byte; then the
    # checksum, which is such a field, too. github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
    for _ in range(3):
        at += 1
        while header[at] & 0x80:
            at += 1
        at += 1
    return header[at] == _I32
