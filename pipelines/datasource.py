"""The corpus as a Ray Data source: one read task per unit of work."""

import functools
from collections.abc import Iterable, Sequence

import pyarrow as pa
from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata

from pipelines.parts import Part, Parts, read_tables
from pipelines.readers import read
from pipelines.sources import Unit
from pipelines.storage import Entry


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


class PartsSource(Datasource):
    """Reads parts of a scored folder, and checks their pages, which Ray's own reader doesn't."""

    def __init__(self, parts: Parts, entries: Sequence[tuple[Part, Entry]], schema: pa.Schema) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._parts = parts
        self._entries = entries
        self._schema = schema

    def estimate_inmemory_data_size(self) -> int:
        """Bytes on disk, which is of the right order."""
        return sum(entry.size for _, entry in self._entries)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        """One task per part."""
        return [
            ReadTask(
                functools.partial(read_tables, self._parts.path(part), self._schema.names),
                BlockMetadata(part.counts.responses, entry.size, input_files=(self._parts.path(part),), exec_stats=None),
                schema=self._schema,
            )
            for part, entry in self._entries
        ]


def _read(unit: Unit, max_record_bytes: int, parts: Parts) -> Iterable[pa.Table]:
    return read(unit, max_record_bytes, parts.end_seen)


def _size(unit: Unit) -> int:
    return unit.range.end - unit.range.start if unit.range else unit.file.size
