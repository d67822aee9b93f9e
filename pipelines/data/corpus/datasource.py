"""The corpus as a Ray Data source: one read task per group of units of work."""

import functools
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata

from pipelines.data.corpus.readers import EndSeen, read_group
from pipelines.data.corpus.units import Unit, group

Prepare = Callable[[pa.Table], pa.Table]  # makes tables of one schema of tables of raw rows


class CorpusSource(Datasource):
    """A Ray Data source whose read tasks read units: a large one, or neighbouring small ones of up to `task_bytes`.

    A read task calls `end_seen` with a file and its extent in bytes where the end is known only from reading the file. Its
    tables are `prepare`d before Ray joins them to blocks: raw rows of files with other types can't be joined.
    """

    def __init__(
        self, units: Sequence[Unit], end_seen: EndSeen, max_record_bytes: int, task_bytes: int, prepare: Prepare
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._groups = list(group(units, task_bytes))
        self._end_seen = end_seen
        self._max_record_bytes = max_record_bytes
        self._prepare = prepare

    @property
    def tasks(self) -> int:
        return len(self._groups)

    def estimate_inmemory_data_size(self) -> int:
        # Bytes on disk: Ray Data only asks for the order of magnitude of the rows in memory.
        return sum(map(_size, self._groups))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        # One task per group, whatever `parallelism` is: a unit is the smallest piece that can be read independently.
        return [
            ReadTask(
                functools.partial(_read, units, self._max_record_bytes, self._end_seen, self._prepare),
                # Of JSON only reading tells the number of rows, so Ray gets none.
                BlockMetadata(num_rows=None, size_bytes=_size(units), exec_stats=None, input_files=(units[0].file.path,)),
            )
            for units in self._groups
        ]


def _read(units: Sequence[Unit], max_record_bytes: int, end_seen: EndSeen, prepare: Prepare) -> Iterator[pa.Table]:
    return map(prepare, read_group(units, max_record_bytes, end_seen))


def _size(units: Sequence[Unit]) -> int:
    return sum(unit.size for unit in units)
