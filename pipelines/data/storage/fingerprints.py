"""Fingerprints of corpus files: the store's own tag of the content (ETag), or else a BLAKE2b hash.

A file of up to 64 MiB is hashed whole. Of a larger one only both ends (64 KiB each) and 16 samples of 4 KiB between them are
hashed, which detects another file or another order of rows, but not every changed byte. For these files the modification
time must be equal, too (`corpus_files.difference`).
"""

import hashlib

from pipelines.data.storage.files import open_read
from pipelines.data.storage.protocol import FileStatus

_WHOLE_BYTES = 64 * 2**20  # about a tenth of a second
_END_BYTES = 64 * 1024  # an appended row or another first row changes an end
_SAMPLES, _SAMPLE_BYTES = 16, 4096  # 64 KiB, whatever the file's size: 16 seeks are 0.2 s on a spinning disk
_PIECE = 2**20
# The kind is part of the text, and the text of a run's identity: fingerprints of two kinds are never equal.
_TAG, _WHOLE, _SAMPLED = "etag:", "blake2b:", "blake2b-of-samples:"


def fingerprint(status: FileStatus) -> str:
    """The fingerprint of a file, of 32 hexadecimal digits after its kind, or of the store's tag.

    Raises `OSError` if the file can't be read. Nothing is read where the store gave a tag.
    """
    if status.tag is not None:
        return tagged(status.tag)
    digest = hashlib.blake2b(digest_size=16)
    with open_read(status.path) as stream:
        if status.size <= _WHOLE_BYTES:
            while piece := stream.read(_PIECE):
                digest.update(piece)
            return f"{_WHOLE}{digest.hexdigest()}"
        # 18 ranges: both ends, and 16 samples evenly spaced between them.
        step = (status.size - 2 * _END_BYTES) // (_SAMPLES + 1)
        samples = [(_END_BYTES + step * number, _SAMPLE_BYTES) for number in range(1, _SAMPLES + 1)]
        for start, length in ((0, _END_BYTES), *samples, (status.size - _END_BYTES, _END_BYTES)):
            stream.seek(start)
            digest.update(stream.read(length))
    return f"{_SAMPLED}{digest.hexdigest()}"


def tagged(tag: str) -> str:
    """The fingerprint of a file that has a store's tag (ETag).

    Of an upload in pieces the tag isn't a hash of the content, but another content has another tag all the same.
    """
    return f"{_TAG}{tag}"


def tag_in(fingerprint: str) -> str | None:
    """The store's tag in a fingerprint; None if it is a hash."""
    return fingerprint.removeprefix(_TAG) if fingerprint.startswith(_TAG) else None


def is_sampled(fingerprint: str) -> bool:
    """Whether a file may have changed although its size and this fingerprint are equal."""
    return fingerprint.startswith(_SAMPLED)
