"""The commit log of a run: a part that exists is done.

    scored/
      manifest.json                                   what was done, and the summary at the end
      parts/000000-000000000000-000000065536-512-510-2-0-0a1b2c3d4e5f6071.parquet
             file   start        end          rows scored rejected failed run
      ends/000003-000001048576-0a1b2c3d4e5f6071       where a compressed file or an array turned out to end
      sessions/01792837482910283746-0a1b2c3d4e5f6071.json    how long a session worked (`run_timing`)

A part is there whole or not at all, and never twice (`pipelines.storage`).
Parts of a file tile it; names alone tell what is missing.

Every name ends with the run that it is of, which the manifest names: a hash of its identity, and some random digits. So
what a dead driver's late writer leaves is never taken for a part of the run that was started anew here. Folders of older
versions name no run, and neither do their parts: they are read as they are.
"""

import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import AuditError, OutputError, SourceError
from actors.records import Score, Status
from pipelines import storage
from pipelines.corpus.corpus_files import InputFile, Range
from pipelines.storage import Entry, Folder, error_text, open_read
from pipelines.storage.lease import Ticket

MANIFEST = "manifest.json"
RUN = r"[0-9a-f]{16}"
"""How a run is called."""
RUN_KEY = "assay_run"
"""Where a part's metadata has its run."""

_NAME = re.compile(rf"(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)(?:-({RUN}))?\.parquet")
_END_NAME = re.compile(rf"(\d+)-(\d+)(?:-({RUN}))?")
_BATCH_ROWS = 4096
_LEAST_BYTES = 12
"""Of a Parquet file: two marks and the length of its footer."""


class Counts(NamedTuple):
    """Input rows, and what became of their responses."""

    rows: int = 0
    scored: int = 0
    rejected: int = 0
    failed: int = 0

    @property
    def responses(self) -> int:
        """All responses, whatever became of them."""
        return self.scored + self.rejected + self.failed

    def __add__(self, other: object) -> "Counts":
        if not isinstance(other, Counts):
            return NotImplemented
        return Counts(*(mine + its for mine, its in zip(self, other, strict=True)))

    @classmethod
    def of(cls, rows: int, scores: Iterable[Score]) -> Self:
        """Count scores."""
        by_status = dict.fromkeys(Status, 0)
        for score in scores:
            by_status[score.status] += 1
        return cls(rows, *by_status.values())


class Part(NamedTuple):
    """A committed stretch of a file. `run` is whose it is, which `Parts` sees to."""

    file: int
    range: Range
    counts: Counts
    run: str = ""

    @property
    def name(self) -> str:
        """The file name, which says it all."""
        place = f"{self.file:06d}-{self.range.start:012d}-{self.range.end:012d}"
        return f"{place}-{'-'.join(map(str, self.counts))}{_ending(self.run)}.parquet"

    @classmethod
    def parse(cls, name: str) -> "Part | None":
        """A part from its name; None for any other file."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        *numbers, run = match.groups()
        file, start, end, *counts = map(int, numbers)
        part = cls(file, Range(start, end), Counts(*counts), run or "")
        return part if part.name == name else None


@dataclass(frozen=True)
class Parts:
    """The parts of a run in its folder, and of no other run. Small and picklable: workers commit through it.

    Without `run` they are those of the run that the folder's manifest names at the time: enough to look at them. Whoever
    writes must know whose they are.
    """

    folder: str
    run: str | None = None
    ticket: Ticket | None = None
    """Of the lease under which parts are committed."""

    @property
    def parts_folder(self) -> Folder:
        """Where the parts are."""
        return storage.folder(self.folder).sub("parts")

    @property
    def _ends_folder(self) -> Folder:
        return storage.folder(self.folder).sub("ends")

    @property
    def sessions_folder(self) -> Folder:
        """Where sessions note how long they worked."""
        return storage.folder(self.folder).sub("sessions")

    def create(self) -> None:
        """Make the folders. Raises `OutputError` if they can't be made or written."""
        try:
            for folder in (self.parts_folder, self._ends_folder):
                folder.make()
        except OSError as error:
            raise OutputError(f"{self.folder} can't be written: {error_text(error)}") from error

    def delete(self) -> None:
        """Delete the run's parts. Raises `OutputError` if that fails: what stays would count as done in the next run."""
        try:
            for folder in (self.parts_folder, self._ends_folder, self.sessions_folder):
                folder.delete_all()
        except OSError as error:
            raise OutputError(f"the run in {self.folder} can't be deleted: {error_text(error)}") from error

    def commit(self, part: Part, table: pa.Table, metadata: Mapping[str, str]) -> bool:
        """Write a part, or leave the one of this name alone; returns whether it was written now.

        Raises `RunStopped` if the folder is held by another run by now: whose parts are cut elsewhere.
        """
        run, content = self._run(), io.BytesIO()
        marked = {**metadata, **({RUN_KEY: run} if run else {})}
        pq.write_table(table.replace_schema_metadata(marked), content, compression="zstd", write_page_checksum=True)
        if self.ticket is not None:
            self.ticket.check()
        return self.parts_folder.create(part._replace(run=run).name, content.getvalue())

    def listing(self) -> list[Part]:
        """All parts, by file and position."""
        return sorted(part for part, _ in self.entries())

    def entries(self) -> list[tuple[Part, Entry]]:
        """All parts, each with its file."""
        run, entries = self._run(), self.parts_folder.entries()
        return [(part, entry) for entry in entries if (part := Part.parse(entry.name)) is not None and part.run == run]

    def strays(self) -> list[str]:
        """The names of Parquet files beside the parts that are none of this run: of another one, copies, anything else."""
        run, names = self._run(), (entry.name for entry in self.parts_folder.entries())
        parsed = ((name, Part.parse(name)) for name in names if ".parquet" in name)
        return sorted(name for name, part in parsed if part is None or part.run != run)

    def runs(self) -> dict[str, list[Part]]:
        """All parts that there are, by the run that they are of."""
        found: dict[str, list[Part]] = {}
        for part in filter(None, (Part.parse(entry.name) for entry in self.parts_folder.entries())):
            found.setdefault(part.run, []).append(part)
        return found

    def path(self, part: Part) -> str:
        """Where a part is."""
        return self.parts_folder.file(part.name)

    def note_name(self, name: str, suffix: str = "") -> str:
        """The name of a note that belongs to the run."""
        return f"{name}{_ending(self._run())}{suffix}"

    def _run(self) -> str:
        return named_run(self.folder) if self.run is None else self.run

    def end_seen(self, file: InputFile, extent: int) -> None:
        """Note where a file ends that only reading to its end could tell."""
        self._ends_folder.create(self.note_name(f"{file.index:06d}-{extent:012d}"), b"")

    def extents(self, files: Sequence[InputFile]) -> dict[int, int | None]:
        """Where each file ends, as far as that is known."""
        run, names = self._run(), (_END_NAME.fullmatch(entry.name) for entry in self._ends_folder.entries())
        seen = {int(name[1]): int(name[2]) for name in names if name and (name[3] or "") == run}
        return {file.index: seen.get(file.index) if file.extent is None else file.extent for file in files}

    def repair(self) -> list[Part]:
        """Drop parts that overlap an older one (a dead driver's late writer), or are empty; returns them.

        What they leave is a gap.
        """
        entries = self.entries()
        dropped = [part for part, entry in entries if is_empty(entry)]
        for part in dropped:
            self.parts_folder.delete(part.name)
        written = {part: entry.written for part, entry in entries if not is_empty(entry)}
        for cluster in _clusters(sorted(written)):
            kept: list[Part] = []
            for part in sorted(cluster, key=lambda part: (written[part], part)) if len(cluster) > 1 else cluster:
                if any(part.range.start < other.range.end and other.range.start < part.range.end for other in kept):
                    self.parts_folder.delete(part.name)
                    dropped.append(part)
                else:
                    kept.append(part)
        return dropped


def read_tables(path: str, names: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of a part, in tables of a few thousand rows. Raises `SourceError` if it can't be read."""
    with open_part(path) as parquet:
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=names):
            yield pa.Table.from_batches([batch]).select(names)


def read_table(path: str) -> pa.Table:
    """A whole part. Raises `SourceError` if it can't be read."""
    with open_part(path) as parquet:
        return parquet.read()


@contextmanager
def open_part(path: str) -> Iterator[pq.ParquetFile]:
    """A part, of which every page that is read is checked. Raises `SourceError` if it can't be read."""
    try:
        with open_read(path) as stream, pq.ParquetFile(stream, page_checksum_verification=True) as parquet:
            yield parquet
    except (OSError, pa.ArrowException, KeyError) as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> SourceError:
    """What is said of a part that can't be read."""
    return SourceError(f"{path} can't be read: {error}; the command that scored the corpus makes this part again")


def is_empty(entry: Entry) -> bool:
    """Whether a part can't hold anything, by its size."""
    return entry.size < _LEAST_BYTES


def named_run(folder: str) -> str:
    """The run that a folder's manifest names; "" if it names none, as those of older versions, or isn't there."""
    try:
        document = json.loads(storage.folder(folder).read(MANIFEST))
    except (OSError, ValueError):
        return ""
    return str(document.get("run", "")) if isinstance(document, dict) else ""


def strays_message(names: Sequence[str]) -> str:
    """What is said of files beside a run's parts."""
    few = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"Left out of it all, as no part of this run: {len(names):,} file{'s' * (len(names) != 1)} among the parts: {few}"


def _ending(run: str) -> str:
    return f"-{run}" if run else ""


def by_file(parts: Iterable[Part]) -> dict[int, list[Part]]:
    """Parts grouped by file, in their order."""
    grouped: dict[int, list[Part]] = {}
    for part in parts:
        grouped.setdefault(part.file, []).append(part)
    return grouped


def _clusters(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Sorted parts, those together that overlap: of a million parts, few have to be compared."""
    cluster: list[Part] = []
    end = 0
    for part in parts:
        if cluster and (part.file != cluster[0].file or part.range.start >= end):
            yield cluster
            cluster = []
        end = max(end, part.range.end) if cluster else part.range.end
        cluster.append(part)
    if cluster:
        yield cluster


def gaps(done: Sequence[Range], extent: int) -> list[Range]:
    """What is missing from [0, extent). `done` is sorted and doesn't overlap."""
    edges = [Range(0, 0), *done, Range(extent, extent)]
    between = (Range(before.end, after.start) for before, after in itertools.pairwise(edges))
    return [gap for gap in between if gap.start < gap.end]


def merge_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Sorted ranges, those together that overlap: as `gaps` takes them."""
    apart: list[Range] = []
    for piece in ranges:
        if apart and piece.start < apart[-1].end:
            apart[-1] = Range(apart[-1].start, max(apart[-1].end, piece.end))
        else:
            apart.append(piece)
    return apart


def audit(files: Sequence[InputFile], extents: Mapping[int, int | None], parts: Sequence[Part]) -> Counts:
    """Prove from the names that every file is covered once and to its end. Raises `AuditError` naming what isn't."""
    grouped = by_file(parts)
    if strangers := grouped.keys() - {file.index for file in files}:
        raise AuditError(f"there are parts of files that the manifest doesn't know: {sorted(strangers)}")
    problems = [problem for file in files for problem in _problems(file, extents[file.index], grouped.get(file.index, []))]
    if problems:
        raise AuditError("the parts don't add up to the input:\n  " + "\n  ".join(problems[:20]))
    return sum((part.counts for part in parts), Counts())


def _problems(file: InputFile, extent: int | None, parts: Sequence[Part]) -> Iterable[str]:
    if extent is None:
        yield f"{file.name}: it wasn't read to its end"
        return
    position = 0
    for part in parts:
        length = part.range.end - part.range.start
        if length <= 0 or (file.kind.by_ordinal and part.counts.rows != length):
            yield f"{file.name}: {part.name} says that {length} positions hold {part.counts.rows} rows"
        if part.range.start < position:
            yield f"{file.name}: {part.range.start} to {position} is there twice ({part.name})"
        elif part.range.start > position:
            yield f"{file.name}: {position} to {part.range.start} is missing"
        position = max(position, part.range.end)
    if position < extent:
        yield f"{file.name}: {position} to {extent} is missing"
    elif position > extent:
        yield f"{file.name}: there are parts beyond its end at {extent}"
