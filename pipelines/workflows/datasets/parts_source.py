"""The parts of a scored folder as a Ray Data source: one read task per part."""

import functools
from collections.abc import Sequence

import pyarrow as pa
from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata

from pipelines.data.storage import Entry
from pipelines.folders.run_folder.part import Part
from pipelines.folders.scored_corpus.scored_folder import ResponsesOf


class PartsSource(Datasource):
    """Reads parts of a scored folder, and checks their pages, which Ray's own reader doesn't."""

    def __init__(self, responses: ResponsesOf, entries: Sequence[tuple[Part, Entry]], schema: pa.Schema) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._responses = responses
        self._entries = entries
        self._schema = schema

    def estimate_inmemory_data_size(self) -> int:
        """Bytes on disk, which is of the right order."""
        return sum(entry.size for _, entry in self._entries)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        """One task per part."""
        path = self._responses.parts.path
        return [
            ReadTask(
                functools.partial(self._responses.tables, part, self._schema.names),
                BlockMetadata(self._count(part), entry.size, input_files=(path(part),), exec_stats=None),
                schema=self._schema,
            )
            for part, entry in self._entries
        ]

    def _count(self, part: Part) -> int | None:
        """The number of rows of a block; None where only the worker that reads it will know."""
        return part.counts.responses if self._responses.kept is None else None
