"""The commit log of a run: a part that exists is done.

    scored/
      manifest.json                                   what was done, and the summary at the end
      parts/000000-000000000000-000000065536-512-510-2-0-0a1b2c3d4e5f6071.parquet
             file   start        end          rows scored rejected failed run
      parts/000001to000017-000000000000-000000000456-170-170-0-0-0a1b2c3d4e5f6071.parquet
             from the start of file 1 to position 456 of file 17: small files share a part
      ends/000003-000001048576-0a1b2c3d4e5f6071       where a compressed file or an array turned out to end
      sessions/01792837482910283746-0a1b2c3d4e5f6071.json    how long a session worked (`run_timing`)
      set-aside/20261127T221200Z/other.parquet        what lay among the parts of this run when it ended, and isn't its

A part is complete or absent, and never written twice (`pipelines.data.storage`). The parts tile every file, so a listing of
names, without reading a file, tells what is missing.

Every name ends with its run, which the manifest names: eight hex digits of the hash of its identity, and eight random ones.
A late writer of a dead driver can therefore never add a part to a run that was started anew in the same folder.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import OutputError, SourceError
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.data.storage import Entry, Folder, error_text, open_read
from pipelines.data.storage.lease import Ticket
from pipelines.data.storage.protocol import TEMPORARY
from pipelines.folders.run_folder.endpoint_notes import endpoint_notes
from pipelines.folders.run_folder.folder_state import FolderState
from pipelines.folders.run_folder.part import RUN, Part
from pipelines.folders.run_folder.part_content import RUN_KEY, DamagedPart, batches, check_named, encode
from pipelines.folders.run_folder.part_list import PackedEntries, PartList

MANIFEST = "manifest.json"

# NUMBER OF A FILE, EXTENT, RUN: of a compressed file or an array only its reader learns where it ends.
_END_NAME = re.compile(rf"(\d+)-(\d+)-({RUN})")
_LEAST_BYTES = 12  # of a Parquet file: the magic number twice, 4 bytes each, and 4 bytes for the footer's length


@dataclass(frozen=True)
class Parts:
    """The parts of one run in its folder; parts of other runs are ignored. Small and picklable: workers commit through it.

    Without `run` they are those of the run that the manifest names at the time of each call, which is enough to read them.
    A writer must have a `run`, since the manifest may be replaced while it writes.
    """

    folder: str
    run: str | None = None
    ticket: Ticket | None = None  # of the lease under which parts are committed; None for a reader

    @property
    def parts_folder(self) -> Folder:
        return storage.folder(self.folder).sub("parts")

    @property
    def _ends_folder(self) -> Folder:
        return storage.folder(self.folder).sub("ends")

    @property
    def sessions_folder(self) -> Folder:
        return storage.folder(self.folder).sub("sessions")

    def create(self) -> None:
        """Create the folders. Raises `OutputError` if they can't be created or written."""
        try:
            for folder in (self.parts_folder, self._ends_folder):
                folder.make()
        except OSError as error:
            raise OutputError(f"{self.folder} can't be written: {error_text(error)}") from error

    def delete(self) -> None:
        """Delete all parts, ends, sessions and what an endpoint was asked for.

        Raises `OutputError` if that fails: what remains could be taken for done.
        """
        try:
            for folder in (self.parts_folder, self._ends_folder, self.sessions_folder, endpoint_notes(self.folder)):
                folder.delete_all()
        except OSError as error:
            raise OutputError(f"the run in {self.folder} can't be deleted: {error_text(error)}") from error

    def commit(self, part: Part, table: pa.Table, metadata: Mapping[str, str]) -> bool:
        """Write a part unless one of this name exists; returns whether this call wrote it.

        Raises `RunStopped` if another run holds the folder by now: it cuts its parts elsewhere, so they would overlap.
        """
        run = self._run()
        content = self._encoded(part, run, table, metadata)
        # Never over a part that is there: two workers may score one block, as Ray repeats a call whose answer was lost.
        return self.parts_folder.create(part._replace(run=run).name, content)

    def replace(self, old: Part, part: Part, table: pa.Table, metadata: Mapping[str, str]) -> None:
        """Put a part of the same range, rows and responses in the place of `old`, of which no more have failed.

        Killed between its two steps, it leaves both, of which all readers take the one with fewer failures (`entries`).
        Raises as `commit` does.
        """
        run = self._run()
        content = self._encoded(part, run, table, metadata)
        name = part._replace(run=run).name
        # The new part first: killed before the deletion, no row is missing, and `_without_replaced` passes over the old one.
        self.parts_folder.replace(name, content)
        if name != old.name:
            self.parts_folder.delete(old.name)

    def _encoded(self, part: Part, run: str, table: pa.Table, metadata: Mapping[str, str]) -> bytes:
        content = encode(table, {**metadata, RUN_KEY: run}, part.place)
        self._check_lease()  # directly before the write: the lease may be lost while the part is compressed
        return content

    def _check_lease(self) -> None:
        if self.ticket is not None:
            self.ticket.check()

    def listing(self) -> PartList:
        """All parts of the run, sorted by file and position; without those that a retry has replaced."""
        return _without_replaced(self._all_parts())

    def entries(self) -> PackedEntries:
        return self.listing().entries

    def _all_parts(self) -> PartList:
        return PartList.of(self._run(), self.parts_folder.entries())

    def strays(self) -> list[str]:
        """The files among the parts, in folders inside, too, that are none of this run: of other runs, copies, others."""
        run, folder = self._run(), self.parts_folder.path
        with suppress(FileNotFoundError):
            # One by one: the names of a million parts would take 100 MB. A temporary name is a writer's at work.
            names = (storage.below(file.path, folder) for file in storage.files_below(folder))
            parsed = ((name, Part.parse(name)) for name in names if not name.endswith(TEMPORARY))
            return sorted(name for name, part in parsed if part is None or part.run != run)
        return []

    def set_strays_aside(self, notify: Callable[[str], None]) -> None:
        """Move the strays to a folder beside the parts, and say so. Raises `OutputError`, and as `commit` does.

        All our commands pass over them, but not who reads `parts/*.parquet`, or the whole folder.
        """
        aside = storage.folder(self.folder).sub("set-aside").sub(time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        try:
            # Listed before the lease is looked at: of a store that takes minutes, in which another run may have taken the
            # folder.
            strays = self.strays()
            self._check_lease()
            for name in strays:
                self.parts_folder.move(name, aside)
        except OSError as error:
            raise OutputError(f"{self.folder} can't be written: {error_text(error)}") from error
        if strays:
            few = ", ".join(strays[:3]) + (", ..." if len(strays) > 3 else "")
            notify(f"{len(strays):,} files among the parts weren't of this run: {few}; moved to {aside.path}")

    def runs(self) -> dict[str, list[Part]]:
        """The parts of every run in the folder, by run."""
        by_run: dict[str, list[Part]] = {}
        for part in filter(None, (Part.parse(entry.name) for entry in self.parts_folder.entries())):
            by_run.setdefault(part.run, []).append(part)
        return by_run

    def path(self, part: Part) -> str:
        return self.parts_folder.file(part.name)

    def note_name(self, name: str, suffix: str = "") -> str:
        return f"{name}-{self._run()}{suffix}"

    def _run(self) -> str:
        return named_run(self.folder) if self.run is None else self.run

    def end_seen(self, file: InputFile, extent: int) -> None:
        # An empty file, whose name says it all: a million of them cost a listing and no read.
        self._ends_folder.create(self.note_name(f"{file.index:06d}-{extent:012d}"), b"")

    def extents(self, files: Sequence[InputFile]) -> dict[int, int | None]:
        """The extent of each file by its index; None while it isn't known."""
        run, names = self._run(), (_END_NAME.fullmatch(entry.name) for entry in self._ends_folder.entries())
        # Ends of another run don't count: a file of its index may be another one there.
        extents_by_index = {int(name[1]): int(name[2]) for name in names if name and name[3] == run}
        return {file.index: extents_by_index.get(file.index) if file.extent is None else file.extent for file in files}

    def state(self, files: Sequence[InputFile]) -> FolderState:
        return FolderState(files, self.listing(), self.extents(files))

    def repair(self, files: Sequence[InputFile], notify: Callable[[str], None]) -> FolderState:
        """Delete parts that are empty or overlap an older part, which a dead driver's late writer can leave.

        Each leaves a gap, which the next pass fills, and `notify` gets a message for each. Parts that a retry has replaced
        are deleted, too: nobody reads them. Returns what the folder holds then.
        """
        listed = self._all_parts()
        parts = _without_replaced(listed)
        if len(parts) < len(listed):
            # Whole parts that a killed retry left beside those that replaced them.
            for part in set(listed) - set(parts):
                self.parts_folder.delete(part.name)
        dropped = {part for part, entry in parts.entries if is_empty(entry)}
        # Oldest first within a cluster of overlapping parts, so that a late writer's part never displaces one that was there
        # before. A younger part stays only if it overlaps none that stays.
        for cluster in _clusters((part, entry) for part, entry in parts.entries if not is_empty(entry)):
            kept: list[Part] = []
            for part, _ in sorted(cluster, key=lambda member: (member[1].written, member[0])):
                if any(part.begin < other.end and other.begin < part.end for other in kept):
                    dropped.add(part)
                else:
                    kept.append(part)
        for part in sorted(dropped):
            self.parts_folder.delete(part.name)
            notify(f"{part.name} overlapped an older part or was empty, and is dropped; its rows are scored again")
        if dropped:
            parts = parts.where(np.fromiter((part not in dropped for part in parts), bool, len(parts)))
        return FolderState(files, parts, self.extents(files))


def read_tables(path: str, names: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of a part, in tables of up to 4,096 rows. Raises `SourceError` if it can't be read.

    Each is within a row group, so that no column of strings exceeds the 2 GiB that Arrow reads at once.
    """
    with open_part(path) as parquet:
        for batch in batches(parquet, names):
            yield pa.Table.from_batches([batch]).select(names)


def read_table(path: str) -> pa.Table:
    """A whole part as one table. Raises `SourceError` if it can't be read."""
    with open_part(path) as parquet:
        return pa.Table.from_batches(batches(parquet), parquet.schema_arrow)


@contextmanager
def open_part(path: str) -> Iterator[pq.ParquetFile]:
    """Open a part; the checksum of every page read is verified.

    Raises `SourceError` if it can't be read, whether it is damaged, another part, or the storage doesn't give it.
    """
    part = Part.parse(path.rpartition("/")[2])
    try:
        with open_read(path) as stream, pq.ParquetFile(stream, page_checksum_verification=True) as parquet:
            if part is not None:
                check_named(parquet.metadata, part)
            yield parquet
    except (OSError, pa.ArrowException, KeyError, DamagedPart) as error:
        raise unreadable(path, f"can't be read: {error}") from error


def unreadable(path: str, problem: str) -> SourceError:
    """The error for a part that can't be used; `problem` is a clause about it that begins with a verb."""
    folder = path.rpartition("/parts/")[0]
    return SourceError(
        f"{path} {problem}; `assay verify {folder} --repair` deletes what is damaged, and the command that "
        "scored the corpus scores this part again"
    )


def is_empty(entry: Entry) -> bool:
    """Whether a part is too small to be a Parquet file, such as an empty file.

    `repair` drops such a file as it drops a part that overlaps, and its rows are scored again.
    """
    return entry.size < _LEAST_BYTES


def named_run(folder: str) -> str:
    """The run that a folder's manifest names; "" if it can't be read, as no part's run is named.

    So a folder whose manifest can't be read has no parts, rather than those of any run.
    """
    try:
        document = json.loads(storage.folder(folder).read(MANIFEST))
    except (OSError, ValueError):
        return ""
    return str(document.get("run", "")) if isinstance(document, dict) else ""


def _without_replaced(parts: PartList) -> PartList:
    # The parts without those of which another one has the same range, rows and responses, and fewer that have failed.
    # That other one is by a retry, which was killed before it deleted the part that it had replaced. Both are whole.
    has_failed = parts.failed > 0
    if not has_failed.any():
        return parts
    failed = {_work(part) for part in parts.where(has_failed)}  # only these are ever replaced
    # By place, rows and responses: parts that agree in these are of the same work, and differ in what failed.
    fewest: dict[tuple[str, int, int], int] = {}
    for part, entry in parts.entries:
        if not is_empty(entry) and (work := _work(part)) in failed:
            fewest[work] = min(part.counts.failed, fewest.get(work, part.counts.failed))
    is_kept = (part.counts.failed <= fewest.get(_work(part), part.counts.failed) for part in parts)
    return parts.where(np.fromiter(is_kept, bool, len(parts)))


def _work(part: Part) -> tuple[str, int, int]:
    return part.place, part.counts.rows, part.counts.responses


def _clusters(entries: Iterable[tuple[Part, Entry]]) -> Iterator[list[tuple[Part, Entry]]]:
    cluster: list[tuple[Part, Entry]] = []
    end = (0, 0)
    for part, entry in entries:
        if cluster and part.begin >= end:
            yield cluster
            cluster = []
        # The furthest end so far, not the last one: a long part may cover several short ones after it.
        end = max(end, part.end) if cluster else part.end
        cluster.append((part, entry))
    if cluster:
        yield cluster
