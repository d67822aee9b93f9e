"""The corpus as a Ray Data source: one read task per unit of work."""

import functools
from collections.abc import Iterable, Sequence

import pyarrow as pa
from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata

from pipelines.parts import Parts
from pipelines.readers import read
from pipelines.sources import Unit


class CorpusSource(Datasource):
    """Reads units of work. Where a file's end is known only from reading it, the read task notes it in the run's folder."""

    def __init__(self, units: Sequence[Unit], parts: Parts, max_record_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._units = units
        self._parts = parts
        self._max_record_bytes = max_record_bytes

    def estimate_inmemory_data_size(self) -> int:
        """Bytes on disk, which is of the right order."""
        return sum(_size(unit) for unit in self._units)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        """One task per unit, whatever parallelism is asked for: a unit is what can be read on its own."""
        return [
            ReadTask(
                functools.partial(_read, unit, self._max_record_bytes, self._parts),
                BlockMetadata(num_rows=None, size_bytes=_size(unit), exec_stats=None, input_files=(unit.file.path,)),
            )
            for unit in self._units
        ]


def _read(unit: Unit, max_record_bytes: int, parts: Parts) -> Iterable[pa.Table]:
    return read(unit, max_record_bytes, parts.end_seen)


def _size(unit: Unit) -> int:
    return unit.range.end - unit.range.start if unit.range else unit.file.size
