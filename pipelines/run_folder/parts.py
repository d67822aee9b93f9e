"""The commit log of a run: a part that exists is done.

    scored/
      manifest.json                                   what was done, and the summary at the end
      parts/000000-000000000000-000000065536-512-510-2-0-0a1b2c3d4e5f6071.parquet
             file   start        end          rows scored rejected failed run
      parts/000001to000017-000000000000-000000000456-170-170-0-0-0a1b2c3d4e5f6071.parquet
             from the start of file 1 to position 456 of file 17: small files share a part
      ends/000003-000001048576-0a1b2c3d4e5f6071       where a compressed file or an array turned out to end
      sessions/01792837482910283746-0a1b2c3d4e5f6071.json    how long a session worked (`run_timing`)

A part is complete or absent, and never written twice (`pipelines.storage`). The parts tile every file, so a listing of
names, without reading a file, tells what is missing.

Every name ends with its run, which the manifest names: eight hex digits of the hash of its identity, and eight random ones.
A late writer of a dead driver can therefore never add a part to a run that was started anew in the same folder. Folders of
older versions name no run, and neither do their parts; both are read as the run "".
"""

import hashlib
import heapq
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import AuditError, OutputError, SourceError
from actors.records import Score, Status
from pipelines import storage
from pipelines.corpus.corpus_files import InputFile, Range
from pipelines.run_folder.part_content import encode
from pipelines.storage import Entry, Folder, error_text, open_read
from pipelines.storage.lease import Ticket

MANIFEST = "manifest.json"
RUN = r"[0-9a-f]{16}"
"""The name of a run, as a pattern."""
RUN_KEY = "assay_run"
"""The key of the run's name in the metadata of a part."""

_NAME = re.compile(rf"(\d+)(?:to(\d+))?-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)(?:-({RUN}))?\.parquet")
_END_NAME = re.compile(rf"(\d+)-(\d+)(?:-({RUN}))?")
_BATCH_ROWS = 4096
_LEAST_BYTES = 12
"""Of a Parquet file: two magic numbers of 4 bytes, and the 4-byte length of its footer."""
_MARK_VERSION = 1
"""Another one where a summary holds more or other figures: all parts are read once more then."""


class Counts(NamedTuple):
    """Numbers of input rows, and of their responses by status."""

    rows: int = 0
    scored: int = 0
    rejected: int = 0
    failed: int = 0

    @property
    def responses(self) -> int:
        """All responses, of any status."""
        return self.scored + self.rejected + self.failed

    def __add__(self, other: object) -> "Counts":
        if not isinstance(other, Counts):
            return NotImplemented
        return Counts(*(left + right for left, right in zip(self, other, strict=True)))

    @classmethod
    def of(cls, rows: int, scores: Iterable[Score]) -> Self:
        """The counts of some rows and the scores of their responses."""
        by_status = dict.fromkeys(Status, 0)
        for score in scores:
            by_status[score.status] += 1
        return cls(rows, *by_status.values())


class Part(NamedTuple):
    """A committed range of a file, or of neighbouring files: from a position in the first to one in the last of them.

    `run` is the name of its run, which `Parts` sets when it commits.
    """

    file: int
    range: Range
    counts: Counts
    run: str = ""
    further: int = 0
    """The number of files after `file` in which the part has rows; `range.end` is a position in the last of them."""

    @property
    def name(self) -> str:
        """The file name, which holds every field."""
        return f"{self.place}-{'-'.join(map(str, self.counts))}{_run_suffix(self.run)}.parquet"

    @property
    def place(self) -> str:
        """The files and the range, as the name begins."""
        last = f"to{self.last_file:06d}" if self.further else ""
        return f"{self.file:06d}{last}-{self.range.start:012d}-{self.range.end:012d}"

    @property
    def last_file(self) -> int:
        """The file in which the part ends."""
        return self.file + self.further

    @property
    def begin(self) -> tuple[int, int]:
        """The first position: file and position in it. Positions of a corpus are ordered."""
        return self.file, self.range.start

    @property
    def end(self) -> tuple[int, int]:
        """The position behind the last one."""
        return self.last_file, self.range.end

    def pieces(self, extents: Mapping[int, int | None]) -> Iterator[tuple[int, Range]]:
        """The range of each file that the part covers; `extents` are those of all files, by index.

        Of several files those that are empty, or aren't in `extents`, have none.
        """
        if not self.further:
            yield self.file, self.range
            return
        if self.last_file not in extents:
            return
        for index in range(self.file, self.last_file + 1):
            start = self.range.start if index == self.file else 0
            end = self.range.end if index == self.last_file else extents.get(index) or 0
            if start < end:
                yield index, Range(start, end)

    def report(self) -> dict[str, int]:
        """The part as a row of a table, without its run."""
        return {
            "file": self.file,
            "further": self.further,
            "start": self.range.start,
            "end": self.range.end,
            **self.counts._asdict(),
        }

    @classmethod
    def of_report(cls, report: Mapping[str, Any], run: str = "") -> Self:
        """The part of a row that `report` made."""
        counts = Counts(*(report[name] for name in Counts._fields))
        return cls(report["file"], Range(report["start"], report["end"]), counts, run, report["further"])

    @classmethod
    def parse(cls, name: str) -> "Part | None":
        """A part from its name; None for any other file."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        first, last, *numbers, run = match.groups()
        start, end, *counts = map(int, numbers)
        # Interned: a million parts hold one text of their run, and not a million equal ones.
        run = sys.intern(run or "")
        part = cls(int(first), Range(start, end), Counts(*counts), run, int(last or first) - int(first))
        return part if part.further >= 0 and part.name == name else None


@dataclass(frozen=True)
class Parts:
    """The parts of one run in its folder; parts of other runs are ignored. Small and picklable: workers commit through it.

    Without `run` they are those of the run that the manifest names at the time of each call, which is enough to read them.
    A writer must have a `run`, since the manifest may be replaced while it writes.
    """

    folder: str
    run: str | None = None
    ticket: Ticket | None = None
    """The ticket of the lease under which parts are committed; None for a reader."""

    @property
    def parts_folder(self) -> Folder:
        """The folder of the parts."""
        return storage.folder(self.folder).sub("parts")

    @property
    def _ends_folder(self) -> Folder:
        return storage.folder(self.folder).sub("ends")

    @property
    def sessions_folder(self) -> Folder:
        """The folder of the sessions' timing notes."""
        return storage.folder(self.folder).sub("sessions")

    def create(self) -> None:
        """Create the folders. Raises `OutputError` if they can't be created or written."""
        try:
            for folder in (self.parts_folder, self._ends_folder):
                folder.make()
        except OSError as error:
            raise OutputError(f"{self.folder} can't be written: {error_text(error)}") from error

    def delete(self) -> None:
        """Delete all parts, ends and sessions. Raises `OutputError` if that fails: what remains could be taken for done."""
        try:
            for folder in (self.parts_folder, self._ends_folder, self.sessions_folder):
                folder.delete_all()
        except OSError as error:
            raise OutputError(f"the run in {self.folder} can't be deleted: {error_text(error)}") from error

    def commit(self, part: Part, table: pa.Table, metadata: Mapping[str, str]) -> bool:
        """Write a part unless one of this name exists; returns whether this call wrote it.

        Raises `RunStopped` if another run holds the folder by now: it cuts its parts elsewhere, so they would overlap.
        """
        run = self._run()
        content = self._encoded(part, run, table, metadata)
        return self.parts_folder.create(part._replace(run=run).name, content)

    def replace(self, old: Part, part: Part, table: pa.Table, metadata: Mapping[str, str]) -> None:
        """Put a part of the same range, rows and responses in the place of `old`, of which no more have failed.

        Killed between its two steps, it leaves both, of which all readers take the one with fewer failures (`entries`).
        Raises as `commit` does.
        """
        run = self._run()
        content = self._encoded(part, run, table, metadata)
        name = part._replace(run=run).name
        self.parts_folder.replace(name, content)
        if name != old.name:
            self.parts_folder.delete(old.name)

    def _encoded(self, part: Part, run: str, table: pa.Table, metadata: Mapping[str, str]) -> bytes:
        """A part's content, of which a check of the lease has just said that it may be written."""
        content = encode(table, {**metadata, **({RUN_KEY: run} if run else {})}, part.place)
        # Directly before the write: the lease may be lost while the part is compressed.
        if self.ticket is not None:
            self.ticket.check()
        return content

    def listing(self) -> list[Part]:
        """All parts of the run, sorted by file and position."""
        return sorted(part for part, _ in self.entries())

    def entries(self) -> list[tuple[Part, Entry]]:
        """All parts of the run, each with its directory entry, in no order; without those that a retry has replaced."""
        return _without_replaced(self._all_entries())

    def mark(self) -> str:
        """A hash of the names, sizes and times of writing of all parts: equal as long as nobody adds or changes one."""
        digest = hashlib.sha256(json.dumps(_MARK_VERSION).encode())
        for entry in sorted(entry for _, entry in self.entries()):
            digest.update(json.dumps(entry).encode())
        return digest.hexdigest()

    def _all_entries(self) -> list[tuple[Part, Entry]]:
        run, entries = self._run(), self.parts_folder.entries()
        return [(part, entry) for entry in entries if (part := Part.parse(entry.name)) is not None and part.run == run]

    def sizes(self) -> dict[Part, int]:
        """The size in bytes of each part, sorted by file and position."""
        return dict(sorted((part, entry.size) for part, entry in self.entries()))

    def strays(self) -> list[str]:
        """The names of Parquet files in the folder that aren't parts of this run: parts of other runs, copies, others."""
        run, names = self._run(), (entry.name for entry in self.parts_folder.entries())
        parsed = ((name, Part.parse(name)) for name in names if ".parquet" in name)
        return sorted(name for name, part in parsed if part is None or part.run != run)

    def runs(self) -> dict[str, list[Part]]:
        """The parts of every run in the folder, by run."""
        by_run: dict[str, list[Part]] = {}
        for part in filter(None, (Part.parse(entry.name) for entry in self.parts_folder.entries())):
            by_run.setdefault(part.run, []).append(part)
        return by_run

    def path(self, part: Part) -> str:
        """The path of a part."""
        return self.parts_folder.file(part.name)

    def note_name(self, name: str, suffix: str = "") -> str:
        """A file name that is marked with the run."""
        return f"{name}{_run_suffix(self._run())}{suffix}"

    def _run(self) -> str:
        return named_run(self.folder) if self.run is None else self.run

    def end_seen(self, file: InputFile, extent: int) -> None:
        """Record the extent of a file, as an empty file whose name holds it. May be called more than once."""
        self._ends_folder.create(self.note_name(f"{file.index:06d}-{extent:012d}"), b"")

    def extents(self, files: Sequence[InputFile]) -> dict[int, int | None]:
        """The extent of each file by its index; None while it isn't known."""
        run, names = self._run(), (_END_NAME.fullmatch(entry.name) for entry in self._ends_folder.entries())
        extents_by_index = {int(name[1]): int(name[2]) for name in names if name and (name[3] or "") == run}
        return {file.index: extents_by_index.get(file.index) if file.extent is None else file.extent for file in files}

    def repair(self) -> list[Part]:
        """Delete parts that are empty or overlap an older part, which a dead driver's late writer can leave; returns them.

        Each leaves a gap, which the next pass fills. Parts that a retry has replaced are deleted, too: nobody reads them.
        """
        listed = self._all_entries()
        entries = _without_replaced(listed)
        if len(entries) < len(listed):
            for part in {part for part, _ in listed} - {part for part, _ in entries}:
                self.parts_folder.delete(part.name)
        dropped = [part for part, entry in entries if is_empty(entry)]
        # Oldest first within a cluster of overlapping parts, so that a late writer's part never displaces one that was there
        # before. A younger part stays only if it overlaps none that stays.
        for cluster in _clusters(sorted((part, entry) for part, entry in entries if not is_empty(entry))):
            kept: list[Part] = []
            for part, _ in sorted(cluster, key=lambda member: (member[1].written, member[0])):
                if any(part.begin < other.end and other.begin < part.end for other in kept):
                    dropped.append(part)
                else:
                    kept.append(part)
        for part in dropped:
            self.parts_folder.delete(part.name)
        return dropped


def read_tables(path: str, names: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of a part, in tables of up to 4,096 rows. Raises `SourceError` if it can't be read."""
    with open_part(path) as parquet:
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=names):
            yield pa.Table.from_batches([batch]).select(names)


def read_table(path: str) -> pa.Table:
    """A whole part as one table. Raises `SourceError` if it can't be read."""
    with open_part(path) as parquet:
        return parquet.read()


@contextmanager
def open_part(path: str, size: int | None = None) -> Iterator[pq.ParquetFile]:
    """Open a part; the checksum of every page read is verified. Raises `SourceError` if it can't be read.

    `size` is its size in bytes if a listing has told it, which spares a request to a store.
    """
    try:
        with open_read(path, size) as stream, pq.ParquetFile(stream, page_checksum_verification=True) as parquet:
            yield parquet
    except (OSError, pa.ArrowException, KeyError) as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> SourceError:
    """The error for a part that can't be read."""
    return SourceError(f"{path} can't be read: {error}; run the command that scored the corpus to score this part again")


def is_empty(entry: Entry) -> bool:
    """Whether a part is too small to be a Parquet file, such as an empty file."""
    return entry.size < _LEAST_BYTES


def named_run(folder: str) -> str:
    """The run that a folder's manifest names; "" if it names none (older versions), or can't be read."""
    try:
        document = json.loads(storage.folder(folder).read(MANIFEST))
    except (OSError, ValueError):
        return ""
    return str(document.get("run", "")) if isinstance(document, dict) else ""


def strays_message(names: Sequence[str]) -> str:
    """The message about files beside a run's parts."""
    few = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"Ignored, as they aren't parts of this run: {len(names):,} file{'s' * (len(names) != 1)} among the parts: {few}"


def _without_replaced(entries: list[tuple[Part, Entry]]) -> list[tuple[Part, Entry]]:
    """The parts without those of which another one has the same range, rows and responses, and fewer that have failed.

    That other one is by a retry, which was killed before it deleted the part that it had replaced. Both are whole.
    """
    failed = {_work(part) for part, _ in entries if part.counts.failed}  # only these are ever replaced
    if not failed:
        return entries
    fewest: dict[tuple[str, int, int], int] = {}
    for part, entry in entries:
        if not is_empty(entry) and (work := _work(part)) in failed:
            fewest[work] = min(part.counts.failed, fewest.get(work, part.counts.failed))
    return [(part, entry) for part, entry in entries if part.counts.failed <= fewest.get(_work(part), part.counts.failed)]


def _work(part: Part) -> tuple[str, int, int]:
    return part.place, part.counts.rows, part.counts.responses


def _run_suffix(run: str) -> str:
    return f"-{run}" if run else ""


class Piece(NamedTuple):
    """What a part covers of one file."""

    part: Part
    range: Range


def by_file(parts: Iterable[Part], extents: Mapping[int, int | None]) -> dict[int, list[Piece]]:
    """What parts cover of each file, by its index, sorted by position; `extents` are those of all files."""
    return {index: list(pieces) for index, pieces in file_by_file(sorted(parts), extents)}


def file_by_file(parts: Iterable[Part], extents: Mapping[int, int | None]) -> Iterator[tuple[int, Iterator[Piece]]]:
    """What sorted parts cover of each file of which they cover something, as `by_file`, in the order of files.

    Holds only what parts cover of files that come later. The pieces of a file are to be taken before the next file.
    """
    grouped = itertools.groupby(_pieces(parts, extents), key=lambda piece: piece[0])
    return ((index, (piece for _, _, piece in pieces)) for index, pieces in grouped)


def _pieces(parts: Iterable[Part], extents: Mapping[int, int | None]) -> Iterator[tuple[int, int, Piece]]:
    """The pieces of sorted parts, in the order of files and then of parts, each with both numbers."""
    later: list[tuple[int, int, Piece]] = []  # a heap of what parts of several files cover behind their first file
    for number, part in enumerate(parts):
        # Earlier parts come first, also in the file in which this one begins.
        while later and later[0][0] <= part.file:
            yield heapq.heappop(later)
        for index, piece in part.pieces(extents):
            entry = (index, number, Piece(part, piece))
            if index == part.file:
                yield entry
            else:
                heapq.heappush(later, entry)
    while later:
        yield heapq.heappop(later)


def _clusters(entries: Iterable[tuple[Part, Entry]]) -> Iterator[list[tuple[Part, Entry]]]:
    """Group sorted parts into clusters that overlap transitively, so that `repair` compares few pairs of a million parts."""
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


def gaps(done: Sequence[Range], extent: int) -> list[Range]:
    """The ranges that `done` leaves open in [0, extent). `done` must be sorted and without overlaps (`merge_ranges`)."""
    # Empty ranges at both ends turn the first and the last gap into gaps between neighbours.
    edges = [Range(0, 0), *done, Range(extent, extent)]
    between = (Range(before.end, after.start) for before, after in itertools.pairwise(edges))
    return [gap for gap in between if gap.start < gap.end]


def merge_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Sorted ranges with overlapping ones merged, as `gaps` takes them. Ranges that only touch stay apart."""
    merged: list[Range] = []
    for piece in ranges:
        if merged and piece.start < merged[-1].end:
            merged[-1] = Range(merged[-1].start, max(merged[-1].end, piece.end))
        else:
            merged.append(piece)
    return merged


def audit(
    files: Sequence[InputFile], extents: Mapping[int, int | None], parts: Sequence[Part], *, partial: bool = False
) -> Counts:
    """Prove from the names that every file is covered exactly once, to its end; returns the total counts.

    With `partial` something may be missing, but nothing may be there twice or beyond an end that is known. `parts` are
    sorted. Raises `AuditError`, naming up to 20 gaps, overlaps and contradictions.
    """
    files_by_index = {file.index: file for file in files}
    if strangers := {index for part in parts for index in (part.file, part.last_file)} - files_by_index.keys():
        raise AuditError(f"some parts belong to files that the manifest doesn't list: {sorted(strangers)}")
    problems = itertools.chain(
        _all_problems(files, extents, parts, partial),
        (problem for part in parts for problem in _wrong_rows(part, files_by_index, extents)),
    )
    if named := list(itertools.islice(problems, 20)):
        raise AuditError("the parts don't add up to the input:\n  " + "\n  ".join(named))
    return sum((part.counts for part in parts), Counts())


def _all_problems(
    files: Sequence[InputFile], extents: Mapping[int, int | None], parts: Sequence[Part], partial: bool
) -> Iterator[str]:
    covered = file_by_file(parts, extents)
    index, pieces = next(covered, (-1, iter(())))
    for file in sorted(files, key=lambda file: file.index):
        if file.index == index:
            yield from _problems(file, extents[index], pieces, partial)
            index, pieces = next(covered, (-1, iter(())))
        elif not partial:
            yield from _problems(file, extents[file.index], (), partial)


def _problems(file: InputFile, extent: int | None, pieces: Iterable[Piece], partial: bool) -> Iterator[str]:
    if extent is None and not partial:
        yield f"{file.name}: not all of its rows are in the parts"
        return
    covered = 0
    for part, piece in pieces:
        if piece.start < covered:
            yield f"{file.name}: {piece.start} to {covered} is there twice ({part.name})"
        elif piece.start > covered and not partial:
            yield f"{file.name}: {covered} to {piece.start} is missing"
        covered = max(covered, piece.end)  # max, so that a part inside an earlier one is reported once
    if extent is None:
        return
    if covered < extent and not partial:
        yield f"{file.name}: {covered} to {extent} is missing"
    elif covered > extent:
        yield f"{file.name}: there are parts beyond its end at {extent}"


def _wrong_rows(part: Part, files: Mapping[int, InputFile], extents: Mapping[int, int | None]) -> Iterable[str]:
    """What is impossible about a part's number of rows.

    A position of Parquet and arrays is a row, so there the number must equal the length. Of lines only an empty range is
    impossible.
    """
    lengths = {index: piece.end - piece.start for index, piece in part.pieces(extents)}
    length = sum(lengths.values())
    by_ordinal = all(files[index].kind.by_ordinal for index in lengths)
    if length <= 0 or (by_ordinal and part.counts.rows != length):
        yield f"{files[part.file].name}: {part.name} says that {length} positions hold {part.counts.rows} rows"
