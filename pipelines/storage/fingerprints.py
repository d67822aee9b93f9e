"""What a file of the corpus is known again by: a store's own tag of its content, or a hash of it.

A file of up to 64 MiB is hashed whole. Of a larger one a hash covers samples at fixed places, which notice another file or
another order of rows, but not every single byte: there, the time of its last change has to be the same, too.
"""

import hashlib
from typing import IO

from pipelines.storage.files import Found, open_read

_WHOLE_BYTES = 64 * 2**20  # about a tenth of a second
_END_BYTES = 64 * 1024
_SAMPLES, _SAMPLE_BYTES = 16, 4096
_PIECE = 2**20
_TAG, _WHOLE, _SAMPLED = "etag:", "blake2b:", "blake2b-of-samples:"


def fingerprint(found: Found) -> str:
    """The fingerprint of a file. Raises `OSError` if it can't be read."""
    if found.tag is not None:
        return tagged(found.tag)
    content = hashlib.blake2b(digest_size=16)
    with open_read(found.path) as stream:
        if found.size <= _WHOLE_BYTES:
            while piece := stream.read(_PIECE):
                content.update(piece)
            return f"{_WHOLE}{content.hexdigest()}"
        for start, length in _places(found.size):
            content.update(_read_at(stream, start, length))
    return f"{_SAMPLED}{content.hexdigest()}"


def tagged(tag: str) -> str:
    """The fingerprint of a file of which a store keeps a tag."""
    return f"{_TAG}{tag}"


def is_sampled(fingerprint: str) -> bool:
    """Whether a file may have changed although its size and this are the same."""
    return fingerprint.startswith(_SAMPLED)


def _places(size: int) -> list[tuple[int, int]]:
    """Where the samples of a large file start, and how long they are: both ends, and evenly between them."""
    step = (size - 2 * _END_BYTES) // (_SAMPLES + 1)
    between = [(_END_BYTES + step * (at + 1), _SAMPLE_BYTES) for at in range(_SAMPLES)]
    return [(0, _END_BYTES), *between, (size - _END_BYTES, _END_BYTES)]


def _read_at(stream: IO[bytes], start: int, length: int) -> bytes:
    stream.seek(start)
    return stream.read(length)
