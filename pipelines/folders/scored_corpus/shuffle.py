"""A shuffle: brings the responses to equal prompts together, wherever in the corpus they are, in one pass over the parts.

1. `write`, a task for each group of neighbouring parts: reads the columns that are needed, puts each response into a bucket
   by the hash of its prompt, and writes one file with a stretch for each bucket.
2. `read`, a task for each bucket: reads its stretch of every file, and lets DuckDB sort it by prompt, which spills to disk
   what doesn't fit into memory.

So each response is read twice and written once, whatever the size of the corpus. There are at most `_TASKS` files and
buckets, so that a stretch isn't tiny: of a corpus of 1 TB they are of 1 GB each, and a stretch has about 1 MB.

The files are Arrow's, and lie in a folder that all workers reach. A file is complete or absent, and its name holds a digest
of the work: a job that was killed goes on with the files that are there, and files of other work are deleted.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from actors.errors import OutputError
from pipelines.data import storage
from pipelines.data.storage import Folder, error_text, open_read
from pipelines.data.storage.lease import Ticket
from pipelines.folders.run_folder.columns import PROMPT_HASH, ROW, Columns
from pipelines.folders.run_folder.part import Part
from pipelines.folders.scored_corpus import databases
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus, PartEntries, ResponsesOf

# Files and buckets at most: a stretch of one in the other is read by itself, so there are a million of these at most.
_TASKS = 1024
_PARTS = 4096  # parts of a group at most, where parts are tiny
# Bytes in memory, for each bucket, of the responses that `write` sorts by bucket at a time: a stretch shouldn't be tiny.
_STRETCH_BYTES = 2**17
_TABLE_BYTES = 2**23
"""Those bytes for all buckets together at least. With 2 buckets a job took a fifth more CPU with tables of 128 MiB than with
these: the system clears the memory of each table, and takes it back."""
_BLOCK_BYTES = 2**16  # bytes of a request to a store at least: no more than a small stretch
_BATCH_ROWS = 256
_MEMORY = "1GB"  # memory of DuckDB's sort, beyond which it spills to disk
_PLACE = "place"


@dataclass(frozen=True)
class Shuffle:
    """A shuffle of the columns `reads` into `buckets`, through files in `folder`. Small and picklable.

    `work` is the digest of all that decides what the files hold.
    """

    source: ResponsesOf
    columns: Columns
    reads: Sequence[str]
    buckets: int
    files: int
    folder: str
    work: str
    ticket: Ticket | None = None

    def open(self) -> None:
        """Create the folder, and delete what other work left in it. Raises `OSError`."""
        place = self._place
        place.make()
        for entry in list(place.entries()):
            if not entry.name.startswith(self.work):
                place.delete(entry.name)

    def missing(self) -> list[int]:
        """The numbers of the files that aren't written yet."""
        written = {entry.name for entry in self._place.entries()}
        return [number for number in range(self.files) if self._name(number) not in written]

    def close(self) -> None:
        self._place.delete_all()

    def write(self, number: int, parts: Sequence[Part]) -> None:
        """Write the file of a group. Idempotent: a retry writes the same.

        Raises `SourceError` if a part can't be read, and `OutputError` if the file can't be written.
        """
        try:
            with self._place.writing(self._name(number)) as stream:
                with pa.ipc.new_file(stream, self._schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
                    for table in self._gather_tables(parts):
                        for stretch in self._cut_by_bucket(table):
                            writer.write_batch(stretch)
                # Inside `writing`, which commits the file at its end: a run that has lost its lease must not.
                if self.ticket is not None:
                    self.ticket.check()
        except OSError as error:
            raise OutputError(
                f"{self.folder} can't be written: {error_text(error)}; --set spill=... names another folder for that"
            ) from error

    def read(self, bucket: int) -> Iterator[pa.Table]:
        """The responses in a bucket, by prompt, and in the order of the corpus within a prompt.

        Raises `RunStopped` if a file can't be read, or DuckDB can't sort.
        """
        # Columns are renamed c0, c1 ...: SQL names ignore case, so an input's `Prompt` and `prompt` would be one column.
        aliases, schema = {name: f"c{number}" for number, name in enumerate(self.reads)}, self._read_schema
        with databases.spilling("sort", _MEMORY, f"what was shuffled into {self.folder} can't be sorted") as connection:
            connection.register("responses", self._read_with_places(bucket, list(aliases.values())))
            # The place restores the order of the corpus within a prompt, on which ties and seeds depend.
            query = f"select * exclude ({_PLACE}) from responses order by {aliases[self._key]}, {_PLACE}"
            for batch in connection.sql(query).to_arrow_reader(_BATCH_ROWS):
                yield pa.Table.from_batches([batch]).rename_columns(self.reads).cast(schema)

    @property
    def _place(self) -> Folder:
        return storage.folder(self.folder)

    @property
    def _key(self) -> str:
        return self.columns.prefix + PROMPT_HASH

    @property
    def _read_schema(self) -> pa.Schema:
        return pa.schema([_without_dictionary(self.columns.schema.field(name)) for name in self.reads])

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([field.with_type(_held_type(field.type)) for field in self._read_schema])

    def _name(self, number: int) -> str:
        return f"{self.work}-{number:05d}.arrow"

    def _gather_tables(self, parts: Sequence[Part]) -> Iterator[pa.Table]:
        enough = max(_STRETCH_BYTES * self.buckets, _TABLE_BYTES)
        tables, size = list[pa.Table](), 0
        for table in itertools.chain.from_iterable(self.source.tables(part, self.reads) for part in parts):
            tables.append(table)
            size += table.nbytes
            if size >= enough:
                yield pa.concat_tables(tables)
                tables, size = [], 0
        if tables:
            yield pa.concat_tables(tables)

    def _cut_by_bucket(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        # A batch for each bucket, empty ones too, so that the number of a batch in the file tells its bucket.
        # In the chunks of its parts, `take` would join the chunks for each bucket: with 10 it took 8 times as long.
        for batch in table.cast(self._schema).combine_chunks().to_batches():
            buckets = self._bucket_of(batch)
            # Stable, so that responses stay in the order of the corpus within a bucket.
            order = np.argsort(buckets, kind="stable")
            edges = np.searchsorted(buckets[order], np.arange(self.buckets + 1))
            for first, end in itertools.pairwise(edges):
                yield batch.take(pa.array(order[first:end]))

    def _bucket_of(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
        # A rejected row may have no prompt hash: its bucket is that of the row itself.
        keys = pa.table({"key": batch.column(self._key), "row": batch.column(self.columns.prefix + ROW)})
        with databases.cursor() as connection:
            connection.register("keys", keys)
            # Of DuckDB's version; see `plan_shuffle`. Equal prompts have equal hashes on every machine.
            query = f"select (hash(coalesce(key, row)) % {self.buckets})::bigint as bucket from keys"
            return np.asarray(connection.sql(query).to_arrow_table().column("bucket").to_numpy())

    def _read_with_places(self, bucket: int, names: Sequence[str]) -> pa.RecordBatchReader:
        fields = [field.with_name(name) for field, name in zip(self._schema, names, strict=True)]
        named = pa.schema([*fields, (_PLACE, pa.int64())])

        def batches() -> Iterator[pa.RecordBatch]:
            count = 0
            for number in range(self.files):
                for batch in self._read_stretches(number, bucket):
                    places = pa.array(np.arange(count, count + batch.num_rows), pa.int64())
                    yield pa.RecordBatch.from_arrays([*batch.columns, places], schema=named)
                    count += batch.num_rows

        return pa.RecordBatchReader.from_batches(named, batches())

    def _read_stretches(self, number: int, bucket: int) -> Iterator[pa.RecordBatch]:
        with open_read(self._place.file(self._name(number)), None, _BLOCK_BYTES) as stream, pa.ipc.open_file(stream) as file:
            # `write` appends a batch for every bucket in turn, an empty one, too: of 1,024 buckets, bucket 5 has the batches
            # 5, 1,029, 2,053 and so on.
            for batch in range(bucket, file.num_record_batches, self.buckets):
                yield file.get_batch(batch)


def plan_shuffle(
    corpus: OpenedCorpus, reads: Sequence[str], bucket_bytes: int, *, folder: str, work: Any, ticket: Ticket | None
) -> tuple[Shuffle, list[list[Part]]]:
    """The shuffle of a corpus into buckets of about `bucket_bytes` of its parts, and the groups of parts for its files.

    `work` is anything that says, in JSON, what is shuffled.
    """
    entries = corpus.entries
    size = sum(entry.size for _, entry in entries)
    # By the compressed size of the parts, which a listing tells.
    buckets = min(math.ceil(size / bucket_bytes), _TASKS)
    groups = list(cut(entries, max(bucket_bytes, size // _TASKS), max(_PARTS, len(entries) // _TASKS)))
    # DuckDB's version, since its hash function cuts the buckets: another version's files must not be mixed with these.
    described = json.dumps([work, list(reads), buckets, [len(group) for group in groups], _TASKS, duckdb.__version__])
    digest = hashlib.sha256(described.encode()).hexdigest()[:16]
    shuffle = Shuffle(corpus.responses, corpus.manifest.columns, reads, buckets, len(groups), folder, digest, ticket)
    return shuffle, groups


def cut(entries: PartEntries, most_bytes: int, most_parts: int) -> Iterator[list[Part]]:
    """Groups of neighbouring parts, of at most so many bytes (but for a single part) and parts: what one task reads.

    The groups depend on the parts alone, so that a job that goes on finds the files of an earlier try.
    """
    group, size = list[Part](), 0
    for part, entry in entries:
        if group and (size + entry.size > most_bytes or len(group) == most_parts):
            yield group
            group, size = [], 0
        size += entry.size
        group.append(part)
    if group:
        yield group


def _without_dictionary(field: pa.Field) -> pa.Field:
    # An Arrow file can have one dictionary for a field, and each part has another.
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def _held_type(kind: pa.DataType) -> pa.DataType:
    # The type in which DuckDB holds the values of a type exactly, and from which a cast brings them back.
    # It has no float16, decimal256 or duration, rounds times to microseconds, and gives moments its own time zone.
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_duration(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_held_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_held_type(kind.key_type), _held_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_held_type(kind.value_type))
    return kind
