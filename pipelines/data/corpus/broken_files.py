"""Input files that can't be read, told before a run starts: all of them in one message, each with what to do about it."""

from collections.abc import Sequence

import pyarrow as pa

from actors.errors import SourceError
from pipelines.data import storage
from pipelines.data.corpus.beginnings import Layout, look_at

_SEEN_BYTES = 1024
_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
UNPACKED_BYTES = 2**20  # of a compressed file: takes 11 ms, and a small file is read to its end
_MAX_NAMED = 20  # files in a message; a folder may hold thousands


def unpack_beginning(path: str, size: int, compression: str) -> bytes:
    """The first mebibyte of a compressed file's content. Raises `SourceError` if it can't be unpacked.

    `compression` is pyarrow's name of it: gzip or zstd. A larger file that is cut off is noticed only where it is read.
    """
    with storage.open_read(path, size) as stream:
        start = stream.read(_SEEN_BYTES)
        stream.seek(0)
        try:
            return bytes(pa.CompressedInputStream(stream, compression).read(UNPACKED_BYTES))
        except OSError as error:
            read_to = f"can't be read to its end: {storage.error_text(error)} (it has {size:,} bytes on disk)"
            problem = f"{read_to}. {damage_advice(compression)}"
            if not start.startswith(_MAGIC[compression]):
                beginning = look_at(start, size <= _SEEN_BYTES, path)
                other = beginning is not None and beginning.layout is Layout.OTHER and beginning.problem
                problem = f"{other or f'is not compressed with {compression}: name it .jsonl or .json'}, or leave it out"
            raise SourceError(f"{path} {problem}") from error


def damage_advice(compression: str) -> str:
    """What to do with a compressed file that breaks off, as the end of a message."""
    return (
        f"It is cut off or damaged (`{compression} -t` says so, too): fetch it again, or leave it out, or save the "
        f"lines that are whole with `{compression} -dc` into another file and give that"
    )


def raise_problems(problems: Sequence[SourceError]) -> None:
    """Raise a single error for all files that can't be read, if there are any. The first 20 are named."""
    if len(problems) == 1:
        raise problems[0]
    if not problems:
        return
    more = len(problems) - _MAX_NAMED
    raise SourceError(
        "\n  ".join(
            [
                f"{len(problems):,} input files can't be read:",
                *map(str, problems[:_MAX_NAMED]),
                *([f"and {more:,} more"] if more > 0 else []),
            ]
        )
    ) from problems[0]
