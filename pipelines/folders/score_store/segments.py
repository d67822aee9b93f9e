"""Segments: immutable files of entries. A segment is there whole or not at all, and is trusted only if its digest is right.

A file's name holds the number of its entries and the SHA-256 of its bytes. So writers need not agree on anything: equal
content has an equal name, and different content another one.
"""

import hashlib
import io
import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import SourceError
from pipelines.data.storage import Folder
from pipelines.data.storage.patience import SHORT_S, waits_at_most
from pipelines.folders.score_store.entries import KEY_BYTES

_NAME = re.compile(r"(\d+)-([0-9a-f]{64})\.segment")  # not .parquet: a store inside a corpus' folder isn't read as rows
_KEY, _SCORES, _IDENTITY = "key", "scores", "assay_identity"
_SCHEMA = pa.schema([(_KEY, pa.binary(KEY_BYTES)), (_SCORES, pa.binary())])


@waits_at_most(SHORT_S)
def write_segment(folder: Folder, identity: str, entries: Mapping[bytes, bytes]) -> str:
    """Write entries, by their keys, as a segment of an identity's folder, and return its name.

    A segment of this name that was damaged is whole again then. Raises `OSError`.
    """
    table = pa.table([list(entries), list(entries.values())], _SCHEMA.with_metadata({_IDENTITY: identity}))
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd", use_dictionary=False)
    content = stream.getvalue()
    name = f"{len(entries)}-{hashlib.sha256(content).hexdigest()}.segment"
    if not folder.create(name, content) and folder.read(name) != content:
        folder.replace(name, content)
    return name


@waits_at_most(SHORT_S)
def segment_names(folder: Folder) -> list[str]:
    """The names of the segments of an identity. Raises `OSError`."""
    return [entry.name for entry in folder.entries() if _NAME.fullmatch(entry.name)]


@waits_at_most(SHORT_S)
def read_content(folder: Folder, name: str) -> bytes:
    """The bytes of a segment. Raises `OSError`, and `SourceError` if they aren't those that were written under the name."""
    content = folder.read(name)
    match = _NAME.fullmatch(name)
    if match is None or hashlib.sha256(content).hexdigest() != match[2]:
        raise SourceError(f"{folder.file(name)} isn't what was written: its content has another SHA-256 than its name")
    return content


def entries_in(folder: Folder, name: str, identity: str, content: bytes) -> dict[bytes, bytes]:
    """The stored scores in the bytes of a segment, by key. Raises `SourceError` for a segment of something else."""
    try:
        table = pq.read_table(io.BytesIO(content))
        written_for = (table.schema.metadata or {}).get(_IDENTITY.encode(), b"").decode()
        if written_for != identity:
            raise SourceError(f"{folder.file(name)} holds the scores of another identity, {written_for or 'unnamed'}")
        return dict(zip(table.column(_KEY).to_pylist(), table.column(_SCORES).to_pylist(), strict=True))
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise SourceError(f"{folder.file(name)} is no segment of a score store: {error}") from error
