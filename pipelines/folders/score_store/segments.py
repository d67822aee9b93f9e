"""Segments: immutable files of entries. A segment is there whole or not at all, and is trusted only if its digest is right.

A file's name holds the number of its entries and the SHA-256 of its bytes. So writers need not agree on anything: equal
content has an equal name, and different content another one.
"""

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import SourceError
from pipelines.data.storage import Folder
from pipelines.data.storage.patience import SHORT_S, waits_at_most
from pipelines.folders.score_store.entries import KEY_BYTES

_NAME = re.compile(r"(\d+)-([0-9a-f]{64})\.segment")  # not .parquet: a store inside a corpus' folder isn't read as rows
_KEY, _SCORES, _IDENTITY = "key", "scores", "assay_identity"
_SCHEMA = pa.schema([(_KEY, pa.binary(KEY_BYTES)), (_SCORES, pa.binary())])


class Segment(NamedTuple):
    """A segment that was just written: its name and its bytes."""

    name: str
    content: bytes


@waits_at_most(SHORT_S)
def write_segment(folder: Folder, identity: str, entries: Mapping[bytes, bytes]) -> Segment:
    """Write entries, by their keys, as a segment of an identity's folder; one of this name that was damaged is whole again.

    Raises `OSError`.
    """
    table = pa.table([list(entries), list(entries.values())], _SCHEMA.with_metadata({_IDENTITY: identity}))
    stream = io.BytesIO()
    # Without dictionaries: keys are all different.
    pq.write_table(table, stream, compression="zstd", use_dictionary=False)
    content = stream.getvalue()
    name = f"{len(entries)}-{hashlib.sha256(content).hexdigest()}.segment"
    # A name holds the hash of its content, so another content under it is damaged.
    if not folder.create(name, content) and folder.read(name) != content:
        folder.replace(name, content)
    return Segment(name, content)


@waits_at_most(SHORT_S)
def segment_names(folder: Folder) -> list[str]:
    """The names of the segments of an identity. Raises `OSError`."""
    return [entry.name for entry in folder.entries() if _NAME.fullmatch(entry.name)]


@waits_at_most(SHORT_S)
def read_content(folder: Folder, name: str) -> bytes:
    """The bytes of a segment. Raises `OSError`, and `SourceError` if they aren't those that were written under the name.

    Every segment is hashed when it is read, so a flipped bit costs work and never a number.
    """
    content = folder.read(name)
    match = _NAME.fullmatch(name)
    if match is None or hashlib.sha256(content).hexdigest() != match[2]:
        raise SourceError(f"{folder.file(name)} isn't what was written: its content has another SHA-256 than its name")
    return content


def keys_in(folder: Folder, name: str, identity: str, content: bytes) -> list[bytes]:
    """The keys in the bytes of a segment, in its order. Raises `SourceError` for a segment of something else.

    The identity stands in the file, too: a segment that was copied into another identity's folder never answers there.
    """
    try:
        with pq.ParquetFile(io.BytesIO(content)) as parquet:
            written_for = (parquet.schema_arrow.metadata or {}).get(_IDENTITY.encode(), b"").decode()
            if written_for != identity:
                raise SourceError(f"{folder.file(name)} holds the scores of another identity, {written_for or 'unnamed'}")
            keys: list[bytes] = parquet.read([_KEY]).column(_KEY).to_pylist()
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise SourceError(f"{folder.file(name)} is no segment of a score store: {error}") from error
    return keys


def entries_at(content: bytes, rows: Sequence[int]) -> list[tuple[bytes, bytes]]:
    """The keys and the stored scores at some rows of a segment's bytes. Raises `SourceError` if it hasn't so many.

    The key comes along with each: the index holds half of a key, and whoever asks compares the whole.
    """
    try:
        table = pq.read_table(io.BytesIO(content)).take(pa.array(rows, pa.int64()))
    except pa.ArrowException as error:
        raise SourceError(f"a segment of {len(content):,} bytes can't be read: {error}") from error
    return list(zip(table.column(_KEY).to_pylist(), table.column(_SCORES).to_pylist(), strict=True))
