"""The corpus as a Ray Data source: one read task per unit of work."""

import functools
from collections.abc import Sequence

from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata

from pipelines.corpus.corpus_files import Unit
from pipelines.corpus.readers import EndSeen, read


class CorpusSource(Datasource):
    """A Ray Data source whose read tasks read units of work.

    A read task calls `end_seen` with a file and its extent in bytes where the end is known only from reading the file.
    """

    def __init__(self, units: Sequence[Unit], end_seen: EndSeen, max_record_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._units = units
        self._end_seen = end_seen
        self._max_record_bytes = max_record_bytes

    def estimate_inmemory_data_size(self) -> int:
        """Bytes on disk, which is of the right order of magnitude for the rows in memory."""
        return sum(_size(unit) for unit in self._units)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        """One task per unit, whatever `parallelism` is: a unit is the smallest piece that can be read independently."""
        return [
            ReadTask(
                functools.partial(read, unit, self._max_record_bytes, self._end_seen),
                BlockMetadata(num_rows=None, size_bytes=_size(unit), exec_stats=None, input_files=(unit.file.path,)),
            )
            for unit in self._units
        ]


def _size(unit: Unit) -> int:
    return unit.range.end - unit.range.start if unit.range else unit.file.size
