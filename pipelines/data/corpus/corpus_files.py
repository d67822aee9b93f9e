"""The corpus as files: tells their kind and extent, and fingerprints them so that a change is noticed.

A position in a file is a byte offset for lines (of the decompressed bytes for gzip and zstd) and an ordinal for Parquet
and JSON arrays. A range of positions is what a row, a part and a unit of work all have in common.
"""

import itertools
import shlex
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import SourceError
from pipelines.data import storage
from pipelines.data.corpus.arrow_types import without_views
from pipelines.data.corpus.beginnings import IS_PARQUET, Beginning, Layout, damage_advice, look_at
from pipelines.data.storage import RESTORE, FileStatus, error_text, is_remote, written_to
from pipelines.data.storage.fingerprints import fingerprint, is_sampled, tag_in, tagged
from pipelines.data.storage.patience import is_of_storage

_SEEN_BYTES = 1024  # of a compressed file that can't be unpacked
_UNPACKED_BYTES = 2**20  # of a compressed file: takes 11 ms, and a small file is read to its end
START_BYTES = 65536  # read to tell what a file of JSON is
_DOCUMENT_BYTES = 64 * 2**20  # of a file that begins with a longer object
_THREADS = 32  # files are opened concurrently: in a store each one is a round trip, of 30 ms or so
_BATCH = 10_000  # files handed to the threads at a time: each call that waits takes 1 kB
# Files from which those that must be opened are opened in a process for each core. For a file in a store the client takes
# 2 ms of a core, and threads share one; a process takes 2 s to start.
_FOR_PROCESSES = 20_000
_MOST_PROCESSES = 16  # of 150 MB each
_PIECE = 500  # files that one of these processes opens at a time
_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}  # RFC 1952 and RFC 8878, at the start of a file


class FileKind(StrEnum):
    """The format of an input file, which decides its reader."""

    JSONL = "jsonl"
    JSONL_GZIP = "jsonl.gz"
    JSONL_ZSTD = "jsonl.zst"
    ARRAY = "json"
    PARQUET = "parquet"

    @property
    def compression(self) -> str | None:  # by pyarrow's names, which are those of the command line tools, too
        return {FileKind.JSONL_GZIP: "gzip", FileKind.JSONL_ZSTD: "zstd"}.get(self)

    @property
    def by_ordinal(self) -> bool:
        """Whether a position is a row number, so that a range of length n holds exactly n rows."""
        return self in (FileKind.ARRAY, FileKind.PARQUET)


_SUFFIXES = {
    ".jsonl": FileKind.JSONL,
    ".ndjson": FileKind.JSONL,
    ".jsonl.gz": FileKind.JSONL_GZIP,
    ".ndjson.gz": FileKind.JSONL_GZIP,
    ".jsonl.zst": FileKind.JSONL_ZSTD,
    ".ndjson.zst": FileKind.JSONL_ZSTD,
    ".json": FileKind.ARRAY,
    ".parquet": FileKind.PARQUET,
}


class Range(NamedTuple):
    """Positions from `start` up to, but not including, `end`: bytes of lines, and ordinals of rows in all other files."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of the corpus. Its positions are [0, `extent`), None if only reading the file to its end tells.

    `modified` is its modification time, in nanoseconds since 1970. It isn't part of the file's identity: where it differs,
    the contents are compared.
    """

    index: int
    name: str
    path: str
    kind: FileKind
    size: int
    fingerprint: str
    extent: int | None
    modified: int | None = None

    @property
    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "modified"}


class Inspected(NamedTuple):
    """A file, the columns of a Parquet file that was opened, and the beginning of a JSON file that was."""

    file: InputFile
    schema: pa.Schema | None = None
    beginning: Beginning | None = None

    @property
    def keys(self) -> Collection[str]:
        if self.schema is not None:
            return self.schema.names
        return self.beginning.keys if self.beginning is not None else ()


def is_utf8(name: str) -> bool:
    """Whether a name can be written as UTF-8, as Parquet's columns and texts must be.

    Those of files and the keys in JSON may hold lone surrogates.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_unchanged(files: Iterable[InputFile]) -> None:
    """Raise `SourceError` for a file that has changed since it was found. A missing file passes: reading it will fail."""
    for file in files:
        if file_exists(file.path):
            check_same(file)


def file_exists(path: str) -> bool:
    """Whether the file exists. Raises `SourceError` if the storage doesn't answer, or refuses to tell."""
    try:
        storage.file_status(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error_text(error)}") from error
    return True


def check_same(file: InputFile) -> FileStatus:
    """The current status of a file. Raises `SourceError` if it is missing, or differs from what it was when it was found."""
    now = _status(file.path)
    unmodified = now.modified == file.modified if now.tag is None else tagged(now.tag) == file.fingerprint
    # Without a tag, an equal time stamp spares reading the file again; only where it differs are the contents compared.
    if now.size == file.size and unmodified:
        return now
    if changed := difference(file, inspect(file.path).file):
        raise SourceError(f"{file.path} {changed}; {RESTORE}")
    return now


def status_before(file: InputFile) -> FileStatus:
    """The status with which a file is to be read to its end: a store's tag, or that of now, by `check_same`."""
    tag = tag_in(file.fingerprint)
    return check_same(file) if tag is None else FileStatus(file.path, file.size, tag)


def check_untouched(before: FileStatus) -> None:
    """Raise `SourceError` if a file was written to since `before` was read, even if its content is the same again."""
    if _status(before.path) != before:
        raise written_to(before.path)


def difference(earlier: InputFile, now: InputFile) -> str | None:
    """How a file differs from its earlier state, a clause that begins with "has" or "was"; None if it is the same."""
    if earlier.size != now.size:
        return f"has changed since its scoring started ({earlier.size:,} bytes then, {now.size:,} now)"
    if earlier.fingerprint != now.fingerprint:
        return "has changed since its scoring started (its size is the same, its content isn't)"
    if earlier.modified == now.modified or not is_sampled(now.fingerprint):
        return None
    changed = "was written to since its scoring started, and is too large to be compared"
    if earlier.modified is None or is_remote(now.path):
        return changed
    return (
        f"{changed}; if you know that it is what it was, give it its time back: "
        f"touch -d @{earlier.modified // 10**9}.{earlier.modified % 10**9:09d} {shlex.quote(now.path)}"
    )


def _status(path: str) -> FileStatus:
    try:
        return storage.file_status(path)
    except FileNotFoundError:
        raise SourceError(f"{path} is missing; put it back and run the same command again to resume") from None
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error_text(error)}") from error


def kind_of(path: str) -> FileKind | None:
    """The kind that a path's extension names; None for one that isn't read.

    Of `.json` files only the content tells whether they hold lines, which `inspect` finds out.
    """
    return next((kind for suffix, kind in _SUFFIXES.items() if path.lower().endswith(suffix)), None)


# How the rows of files that aren't read become Parquet.
_WAYS = {
    ".arrow": "datasets.load_from_disk(FOLDER).to_parquet('rows.parquet')",
    ".csv": "duckdb.sql(\"copy (from 'rows.csv') to 'rows.parquet'\")",
}


def unread(path: str) -> SourceError:
    """The error for a file that only its extension keeps from being read."""
    way = _WAYS.get(Path(path).suffix, "")
    way = way and f". In Python, `{way}` writes the rows of such a file"
    return SourceError(f"{path} has a file name extension that Assay doesn't read; it reads {readable_suffixes()}{way}")


def readable_suffixes() -> str:
    """The extensions that are read, for a message; capital letters are read, too."""
    return ", ".join(_SUFFIXES)


def inspect_all(
    paths: Sequence[str], listed: Mapping[str, FileStatus], earlier: Mapping[str, InputFile]
) -> Iterator[Inspected | SourceError]:
    """Inspect files in their order, a batch at a time. Those that must be opened are opened concurrently.

    `listed` are statuses that a store's listing has just given, `earlier` the facts of files in an earlier session, by path.
    A file that can't be read gives its error. Raises `SourceError` if a store doesn't answer.
    """
    with ThreadPoolExecutor(_THREADS) as threads, ExitStack() as stack:
        processes: Any = None
        for start in range(0, len(paths), _BATCH):
            batch = paths[start : start + _BATCH]
            unopened = [_inspect_unopened(path, listed.get(path), earlier.get(path)) for path in batch]
            to_open = [(path, listed.get(path)) for path, file in zip(batch, unopened, strict=True) if file is None]
            # `map` cancels what is waiting when one of them raises.
            if len(paths) < _FOR_PROCESSES or len(to_open) <= _PIECE:
                opened = threads.map(_inspect_or_error, *zip(*to_open, strict=True)) if to_open else iter(())
            else:
                processes = processes or stack.enter_context(_start_processes())
                pieces = [to_open[first : first + _PIECE] for first in range(0, len(to_open), _PIECE)]
                opened = itertools.chain.from_iterable(processes.map(_inspect_piece, pieces))
            yield from (next(opened) if file is None else file for file in unopened)


def _start_processes() -> Any:
    # An executor with a process for each core. Unlike the standard library's, it doesn't run the user's script in them.
    from loky import ProcessPoolExecutor, cpu_count  # 60 ms, for corpora of many files only

    return ProcessPoolExecutor(min(_MOST_PROCESSES, cpu_count()), initializer=_ignore_interrupts)


def _ignore_interrupts() -> None:  # the terminal sends Ctrl-C to all processes, and this one ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _inspect_piece(files: Sequence[tuple[str, FileStatus | None]]) -> list[Inspected | SourceError]:
    # Equal columns become one object, which is pickled once.
    with ThreadPoolExecutor(_THREADS) as threads:
        all_inspected = list(threads.map(_inspect_or_error, *zip(*files, strict=True)))
    distinct: dict[pa.Schema | None, pa.Schema | None] = {}
    return [
        inspected
        if isinstance(inspected, SourceError)
        else inspected._replace(schema=distinct.setdefault(inspected.schema, inspected.schema))
        for inspected in all_inspected
    ]


def _inspect_unopened(path: str, listed: FileStatus | None, earlier: InputFile | None) -> Inspected | None:
    # A file of which a store's listing, or an earlier session, tells everything; None if it must be opened.
    if listed is None or listed.tag is None:
        return None
    mark = tagged(listed.tag)
    if earlier is not None and (earlier.size, earlier.fingerprint) == (listed.size, mark):
        return Inspected(replace(earlier, modified=listed.modified))
    kind = kind_of(path)
    if kind in (None, FileKind.ARRAY, FileKind.PARQUET) or (kind.compression and not listed.size):
        return None
    extent = listed.size if kind is FileKind.JSONL else None
    return Inspected(InputFile(0, "", path, kind, listed.size, mark, extent, listed.modified))


def _inspect_or_error(path: str, listed: FileStatus | None) -> Inspected | SourceError:
    try:
        return inspect(path, listed)
    except SourceError as error:
        if is_remote(path) and isinstance(error.__cause__, OSError):  # each of a million requests would wait for it
            raise
        return error


def inspect(path: str, listed: FileStatus | None = None) -> Inspected:
    """Determine a file's kind, fingerprint, extent and columns, opening it. Its number and name are the corpus' to give.

    `listed` is its status, if that is known. Raises `SourceError`.
    """
    kind = kind_of(path)
    if kind is None:
        raise unread(path)
    try:
        status = listed or storage.file_status(path)  # before the content: a write in between is noticed by this status
        mark, size = fingerprint(status), status.size
        extent: int | None
        schema = beginning = None
        if kind is FileKind.PARQUET:
            footer = _parquet_footer(status)
            # Without its metadata: that of pandas holds the number of rows, so that no two schemas would be equal.
            extent, schema = int(footer.num_rows), without_views(footer.schema.to_arrow_schema())
        else:
            kind, beginning = _look_at(status, kind)
            extent = size if kind is FileKind.JSONL else None
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error.strerror or error}; make it readable, or leave it out") from error
    file = InputFile(0, "", path, kind, size, mark, extent, status.modified)
    return Inspected(file, schema, beginning)


def _look_at(status: FileStatus, kind: FileKind) -> tuple[FileKind, Beginning]:
    """The kind of a JSON file by its content, and its beginning. Raises `SourceError` for one that its name doesn't fit.

    Of files of lines only their first ones tell: what is broken after some rows is so row by row.
    """
    path = status.path
    if kind.compression is not None:
        start = _unpack_beginning(path, status.size, kind.compression)
        beginning = look_at(start, len(start) < _UNPACKED_BYTES, path)
    else:
        beginning = _look_at_start(status, START_BYTES) or _look_at_start(status, _DOCUMENT_BYTES)
    beginning = beginning or Beginning(None, f"begins with an object of more than {_DOCUMENT_BYTES:,} bytes")
    if kind is FileKind.ARRAY:
        if beginning.layout is None:
            raise SourceError(f"{path} {beginning.problem}; leave it out")
        return FileKind.JSONL if beginning.layout is Layout.LINES else kind, beginning
    if beginning.layout is Layout.VALUES:
        unpack = "unpack it and " if kind.compression else ""
        raise SourceError(
            f"{path} holds JSON arrays, or objects over several lines, and of a .jsonl file Assay reads an object in each "
            f"line; {unpack}name it .json to read them, or leave it out"
        )
    return kind, beginning._replace(is_single=False)


def _unpack_beginning(path: str, size: int, compression: str) -> bytes:
    """The first mebibyte of a compressed file's content. Raises `SourceError` if it can't be unpacked.

    `compression` is pyarrow's name of it: gzip or zstd. A larger file that is cut off is noticed only where it is read.
    """
    with storage.open_read(path, size) as stream:
        start = stream.read(_SEEN_BYTES)
        if not start:  # as a full disk or a failed upload leaves it; Arrow would unpack it to no lines
            raise SourceError(f"{path} is empty, as no file of {compression} is: fetch it again, or leave it out")
        stream.seek(0)
        try:
            return bytes(pa.CompressedInputStream(stream, compression).read(_UNPACKED_BYTES))
        except OSError as error:
            if is_of_storage(error):
                raise
            read_to = f"can't be read to its end: {error_text(error)} (it has {size:,} bytes on disk)"
            problem = f"{read_to}. {damage_advice(compression)}"
            if not start.startswith(_MAGIC[compression]):
                beginning = look_at(start, size <= _SEEN_BYTES, path)
                other = beginning is not None and beginning.layout is Layout.OTHER and beginning.problem
                problem = f"{other or f'is not compressed with {compression}: name it .jsonl or .json'}, or leave it out"
            raise SourceError(f"{path} {problem}") from error


def _look_at_start(status: FileStatus, count: int) -> Beginning | None:
    with storage.open_read(status.path, status.size, START_BYTES) as stream:
        return look_at(stream.read(count), count >= status.size, status.path)


def _parquet_footer(status: FileStatus) -> pq.FileMetaData:
    try:
        with storage.open_read(status.path, status.size, START_BYTES) as stream:
            return pq.read_metadata(stream)
    except ValueError as error:  # pyarrow's ArrowInvalid is one
        beginning = _look_at_start(status, START_BYTES)
        problem = beginning.problem if beginning is not None and beginning.layout is Layout.OTHER else ""
        if problem == IS_PARQUET:  # by its mark: it was cut off, and the footer is gone
            problem = ""
        reason = problem or f"isn't a valid Parquet file: {str(error).rstrip('.')}; fetch it again"
        raise SourceError(f"{status.path} {reason}, or leave it out") from error


def limit_files(files: Sequence[InputFile], ends: Sequence[int | None]) -> list[InputFile]:
    """The files with their extents replaced by `ends` (None: unchanged), of which one is given for each file.

    By this `--limit` ends the corpus: what lies behind an end isn't read, and isn't missing.
    """
    return [file if end is None else replace(file, extent=end) for file, end in zip(files, ends, strict=True)]
