"""Opens files of the corpus: what fails while one is read is damage of the file, or the storage's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import DamagedSource, SourceError
from pipelines.data import storage
from pipelines.data.corpus.beginnings import damage_advice
from pipelines.data.corpus.corpus_files import START_BYTES, InputFile
from pipelines.data.storage.object_store import BLOCK_BYTES
from pipelines.data.storage.patience import is_of_storage


@contextmanager
def opened(file: InputFile, block_bytes: int = BLOCK_BYTES) -> Iterator[IO[bytes]]:
    """Open a file for reading, as `storage.open_read`. Raises what fails in the block as `read_error_of`."""
    try:
        with storage.open_read(file.path, file.size, block_bytes) as stream:
            yield stream
    except MemoryError:  # before the others, since Arrow's is an `ArrowException` as well
        raise
    except (OSError, pa.ArrowException) as error:
        raise read_error_of(file, error) from error


def read_error_of(file: InputFile, error: Exception, place: str = "") -> SourceError:
    """A `DamagedSource`, unless the storage gave the error. In one line, by which the driver knows a worker's error."""
    problem = f"{file.path} can't be read to its end: {' '.join(str(error).split())}{place}"
    if isinstance(error, OSError) and is_of_storage(error):
        return SourceError(problem)
    advice = "It is damaged, or has a form that Arrow doesn't read: fetch it again, write it anew, or leave it out"
    if file.kind.compression is not None:
        advice = damage_advice(file.kind.compression)
    return DamagedSource(f"{problem}. {advice}; then start with --overwrite, or into another folder")


def parquet_metadata(file: InputFile) -> pq.FileMetaData:
    """The footer of a Parquet file. Raises `SourceError`, also if it isn't one any more."""
    # Footers of up to 64 KiB come with the first request; the default block of 4 MiB would read rows for nothing.
    with opened(file, START_BYTES) as stream:
        return pq.read_metadata(stream)
