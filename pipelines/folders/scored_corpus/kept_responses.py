"""Which responses of a scored corpus the result of a filter holds, so that later commands read exactly these.

`kept/_responses/00000.parquet` belongs to the output of that number, and has a row for each part that was read for it:

    part   the name of the part
    rows   the number of input rows with a response that is held
    at     the indices in the part of the responses that are held, ascending

A part never changes, so an index in it identifies a response. Outputs hold neighbouring parts: the first part of each, which
the document of the result lists, tells in which file a part is. About four bytes a response, read by whoever reads the part.
"""

import bisect
import functools
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from actors.errors import OutputError, SourceError
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import SELECTION
from pipelines.data.storage import error_text, open_read
from pipelines.folders.run_folder.part import Part

Indices = NDArray[np.int64]

_SCHEMA = pa.schema([("part", pa.string()), ("rows", pa.int64()), ("at", pa.list_(pa.int32()))])


class KeptInPart(NamedTuple):
    """The responses of a part that are held, by their indices, ascending; and the number of their input rows.

    `at` has 64-bit indices into the rows of the part; `rows` counts input rows that have at least one of them.
    """

    at: Indices
    rows: int


@dataclass(frozen=True)
class KeptResponses:
    """The responses that the result of a filter in `folder` holds, `total` of them. Small and picklable.

    `about` says what they are, for messages; `mark` changes whenever the result is written anew. `firsts` are the first
    parts of its outputs.
    """

    folder: str
    about: str
    mark: str
    total: int
    firsts: tuple[Part, ...]

    def of_part(self, part: Part) -> KeptInPart:
        """The responses of a part that are held. Raises `SourceError` if the note can't be read."""
        # Outputs hold neighbouring parts: that of a part is the last one that begins at it or before.
        path = note_path(self.folder, bisect.bisect_right(self.firsts, part) - 1)
        try:
            return _read(path, self.mark)[part.name]
        except (OSError, pa.ArrowException, KeyError) as error:
            raise SourceError(
                f"{path}, which says what responses {self.folder} holds, can't be read ({error}); run the same `filter` "
                "again with --overwrite"
            ) from error

    def tables(self, part: Part, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        positions, first = self.of_part(part).at, 0
        for table in tables:
            # Indices are those of the whole part, of which this table begins at `first`.
            low, high = np.searchsorted(positions, [first, first + table.num_rows])
            yield table.take(pa.array(positions[low:high] - first))
            first += table.num_rows


@functools.lru_cache(2)
def _read(path: str, mark: str) -> Mapping[str, KeptInPart]:
    # The note at a path, by part. `mark` tells a new note from an old one.
    # A worker reads neighbouring parts, so two notes in memory are enough.
    with open_read(path) as stream:
        table = pq.read_table(stream, schema=_SCHEMA, page_checksum_verification=True)
    parts, rows = table.column("part").to_pylist(), table.column("rows").to_pylist()
    indices = (position.values.to_numpy().astype(np.int64) for position in table.column("at"))
    return {part: KeptInPart(position, count) for part, position, count in zip(parts, indices, rows, strict=True)}


def note_path(folder: str, number: int) -> str:
    """The path of the note of an output."""
    return storage.folder(folder).sub(SELECTION).file(f"{number:05d}.parquet")


def write_note(folder: str, number: int, kept_by_part: Sequence[tuple[Part, KeptInPart]]) -> None:
    """Write the note of an output in one step, replacing an earlier one. Raises `OutputError`.

    Written before the output counts as done, so that what is done can always be read back.
    """
    columns = [
        [part.name for part, _ in kept_by_part],
        [kept_in_part.rows for _, kept_in_part in kept_by_part],
        [kept_in_part.at for _, kept_in_part in kept_by_part],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    content = io.BytesIO()
    pq.write_table(pa.table(arrays, schema=_SCHEMA), content, compression="zstd", write_page_checksum=True)
    place, _, name = note_path(folder, number).rpartition("/")
    try:
        storage.folder(place).replace(name, content.getvalue())
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error_text(error)}") from error
