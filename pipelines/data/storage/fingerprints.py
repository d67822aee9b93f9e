"""Fingerprints of corpus files: the store's own tag of the content (ETag), or else a BLAKE2b hash.

A file of up to 64 MiB is hashed whole. Of a larger one only both ends (64 KiB each) and 16 samples of 4 KiB between them are
hashed, which detects another file or another order of rows, but not every changed byte. For these files the modification
time must be equal, too (`corpus_files.difference`).
"""

import hashlib
from typing import IO

from pipelines.data.storage.files import open_read
from pipelines.data.storage.protocol import FileStatus

_WHOLE_BYTES = 64 * 2**20  # about a tenth of a second
_END_BYTES = 64 * 1024
_SAMPLES, _SAMPLE_BYTES = 16, 4096
_PIECE = 2**20
_TAG, _WHOLE, _SAMPLED = "etag:", "blake2b:", "blake2b-of-samples:"


def fingerprint(status: FileStatus) -> str:
    """The fingerprint of a file. Raises `OSError` if it can't be read."""
    if status.tag is not None:
        return tagged(status.tag)
    digest = hashlib.blake2b(digest_size=16)
    with open_read(status.path) as stream:
        if status.size <= _WHOLE_BYTES:
            while piece := stream.read(_PIECE):
                digest.update(piece)
            return f"{_WHOLE}{digest.hexdigest()}"
        for start, length in _sample_ranges(status.size):
            digest.update(_read_at(stream, start, length))
    return f"{_SAMPLED}{digest.hexdigest()}"


def tagged(tag: str) -> str:
    """The fingerprint of a file that has a store's tag."""
    return f"{_TAG}{tag}"


def tag_in(fingerprint: str) -> str | None:
    """The store's tag in a fingerprint; None if it is a hash."""
    return fingerprint.removeprefix(_TAG) if fingerprint.startswith(_TAG) else None


def is_sampled(fingerprint: str) -> bool:
    """Whether a file may have changed although its size and this fingerprint are equal."""
    return fingerprint.startswith(_SAMPLED)


def _sample_ranges(size: int) -> list[tuple[int, int]]:
    """The (start, length) of the samples of a large file: both ends, and evenly spaced between them."""
    step = (size - 2 * _END_BYTES) // (_SAMPLES + 1)
    between = [(_END_BYTES + step * (i + 1), _SAMPLE_BYTES) for i in range(_SAMPLES)]
    return [(0, _END_BYTES), *between, (size - _END_BYTES, _END_BYTES)]


def _read_at(stream: IO[bytes], start: int, length: int) -> bytes:
    stream.seek(start)
    return stream.read(length)
