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
        return sum(entry.size for _, entry in self._entries)  # bytes on disk, which is of the right order

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        path, tasks = self._responses.parts.path, list[ReadTask]()
        for part, entry in self._entries:
            # Of what a filter kept, only the worker that reads a part will know how many rows it has.
            rows = part.counts.responses if self._responses.kept is None else None
            metadata = BlockMetadata(rows, entry.size, input_files=(path(part),), exec_stats=None)
            read = functools.partial(self._responses.tables, part, self._schema.names)
            tasks.append(ReadTask(read, metadata, schema=self._schema))
        return tasks
