"""The corpus as files: finds them, tells their kind and extent, and fingerprints them so that a change is noticed.

A position in a file is a byte offset for lines (of the decompressed bytes for gzip and zstd) and an ordinal for Parquet
and JSON arrays. A range of positions is what a row, a part and a unit of work all have in common.
"""

import datetime
import itertools
import shlex
import signal
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import SourceError
from actors.text.counted import first_of
from pipelines import storage
from pipelines.corpus.assay_folders import describe, results_below, rows_of_result
from pipelines.corpus.beginnings import Beginning, Layout, look_at
from pipelines.corpus.broken_files import UNPACKED_BYTES, raise_problems, unpack_beginning
from pipelines.storage import RESTORE, FileStatus, error_text, is_remote, written_to
from pipelines.storage.fingerprints import fingerprint, is_sampled, tagged

_START_BYTES = 65536  # read to tell what a file of JSON is
_DOCUMENT_BYTES = 64 * 2**20  # of a file that begins with a longer object
_COMPARED_FILES = 10  # with whose rows a document of a folder is compared
_THREADS = 32  # files are opened concurrently: in a store each one is a round trip, of 30 ms or so
_BATCH = 10_000  # files handed to the threads at a time: each call that waits takes 1 kB
_FOR_PROCESSES = 20_000
"""Files from which those that must be opened are opened in a process for each core. For a file in a store the client takes
2 ms of a core, and threads share one; a process takes 2 s to start."""
_MOST_PROCESSES = 16  # of 150 MB each
_PIECE = 500  # files that one of these processes opens at a time
_NOTE_EVERY_S = 10.0
_MAX_NAMED = 20  # file names in a message; a folder may hold thousands


class FileKind(StrEnum):
    """The format of an input file, which decides its reader."""

    JSONL = "jsonl"
    JSONL_GZIP = "jsonl.gz"
    JSONL_ZSTD = "jsonl.zst"
    ARRAY = "json"
    PARQUET = "parquet"

    @property
    def compression(self) -> str | None:
        """pyarrow's name of the compression."""
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
    """Positions from `start` up to, but not including, `end`."""

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
        """The fields that identify the file: all but `modified`."""
        return {name: value for name, value in asdict(self).items() if name != "modified"}


class Corpus(NamedTuple):
    """The files of a corpus, and the paths beside them that are not read.

    `left_out` holds files in input folders without a known suffix, and folders that a pattern matches and that contain a
    corpus file: a pattern selects files, and its folders are not entered.
    """

    files: list[InputFile]
    left_out: list[str]
    schemas: Mapping[str, pa.Schema] = MappingProxyType({})
    """The columns of the Parquet files that were opened, by path; equal ones are one object."""


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A file that is to be inspected: what is known of it before it is opened."""

    path: str
    index: int
    name: str
    listed: FileStatus | None = None
    """Its status if a store's listing has just given it."""
    earlier: InputFile | None = None
    """Its facts in an earlier session."""


class _Inspected(NamedTuple):
    """A file, the columns of a Parquet file that was opened, and the beginning of a JSON file that was."""

    file: InputFile
    schema: pa.Schema | None = None
    beginning: Beginning | None = None

    @property
    def keys(self) -> Collection[str]:
        """The names of a row's fields, as far as they are known."""
        return self.schema.names if self.schema is not None else self.beginning.keys if self.beginning is not None else ()


class _Look(NamedTuple):
    """What opening a file told, the file's time of change before, and the time of the look, in nanoseconds since 1970."""

    inspected: _Inspected
    changed: int | None
    at: int


_looks: dict[str, _Look] = {}
"""The last look of this process at each file that it opened. The members of an ensemble and the steps of a recipe have the
same files, and each file would be read for its fingerprint, or its footer fetched, for each of them. What other
processes open (`_FOR_PROCESSES` files and more) isn't kept."""
_SETTLED_NS = 10**9
"""A file that was changed so shortly before it was opened may have been changed again with the same time stamp."""


def find(inputs: Sequence[str], first_index: int = 0) -> list[InputFile]:
    """The files behind paths, globs and folders: `find_corpus` without what is left out."""
    return find_corpus(inputs, first_index).files


def find_corpus(
    inputs: Sequence[str],
    first_index: int = 0,
    earlier: Mapping[str, InputFile] = MappingProxyType({}),
    notify: Callable[[str], None] = lambda text: None,
) -> Corpus:
    """The files behind paths, globs and folders, sorted by path.

    Raises `SourceError` for an input that matches nothing, and one for all files that can't be read, or whose paths aren't
    UTF-8: the parts of a run, which name each row by its file, hold no others.

    Files of a folder whose names begin with `.` or `_`, such as `_SUCCESS`, are skipped and not reported. `earlier` are the
    files of an earlier session by path: one that has the same tag in its store isn't opened again. `notify` receives a
    message every 10 s.
    """
    expanded = [_expand(text) for text in inputs]
    statuses = {path: status for expansion in expanded for path, status in expansion.statuses.items()}
    paths = sorted(_unique_paths([expansion.files for expansion in expanded]))
    raise_problems([_no_utf8(path) for path in paths if not is_utf8(path)])
    unread_files = {path for expansion in expanded for path in expansion.left_out} - set(paths)
    left_out = sorted(unread_files | set(_unread_folders(expanded, paths)))
    lookups = (
        _Lookup(path, index, name, statuses.get(path), earlier.get(path))
        for index, (path, name) in enumerate(zip(paths, _names(paths), strict=True), first_index)
    )
    inspected: list[_Inspected] = []
    schemas: dict[str, pa.Schema] = {}
    distinct: dict[Any, Any] = {}  # a million files have a few sets of columns
    next_note = time.monotonic() + _NOTE_EVERY_S
    problems: dict[str, SourceError] = {}
    for path, item in zip(paths, _inspect_all(lookups, len(paths)), strict=True):
        if isinstance(item, SourceError):
            problems[path] = item
            continue
        inspected.append(item._replace(beginning=distinct.setdefault(item.beginning, item.beginning)))
        if item.schema is not None:
            schemas[path] = distinct.setdefault(item.schema, item.schema)
        if time.monotonic() > next_note:
            notify(f"looked at {len(inspected):,} of {len(paths):,} files")
            next_note = time.monotonic() + _NOTE_EVERY_S
    arrow = next((path for path in left_out if path.endswith(".arrow")), None)
    if arrow is not None and all(item.beginning is not None and item.beginning.is_single for item in inspected):
        raise _unread(arrow)  # a dataset that was saved to disk: beside its rows there are documents only
    documents = _documents(inspected, expanded, earlier)
    for file, _, beginning in inspected:
        if beginning is not None and beginning.layout is Layout.OTHER and file.path not in documents:
            problems[file.path] = SourceError(f"{file.path} {beginning.problem}; or leave it out")
    raise_problems([problems[path] for path in sorted(problems)])
    files = [item.file for item in inspected if item.file.path not in documents]
    if documents:
        names = _names([file.path for file in files])
        files = [
            replace(file, index=at, name=name) for at, (file, name) in enumerate(zip(files, names, strict=True), first_index)
        ]
    return Corpus(files, sorted([*left_out, *documents.values()]), schemas)


def _documents(inspected: Sequence[_Inspected], expanded: Sequence["_Expansion"], earlier: Container[str]) -> dict[str, str]:
    """The files of folders that hold a document and no rows, by path, each as it is named where it is left out.

    Such a file is a single object, and most of its fields aren't those of the rows in the first other files.
    """
    singles = {
        item.file.path: item.beginning
        for item in inspected
        if item.beginning is not None and item.beginning.is_single and item.file.path not in earlier
    }
    compared = list(itertools.islice((item for item in inspected if item.file.path not in singles), _COMPARED_FILES))
    if not singles or not compared:
        return {}
    # A store's listing tells all of some files, or an earlier session does: these haven't been opened.
    opened = (item if item.keys else _inspect(_Lookup(item.file.path, item.file.index, item.file.name)) for item in compared)
    known_keys = [set(item.keys) for item in opened if item.keys]
    in_folders = {path for expansion in expanded if expansion.is_folder for path in expansion.files}
    return {
        path: f"{path} ({single.problem.partition(':')[0].removeprefix('is ')})"
        for path, single in singles.items()
        if path in in_folders
        and known_keys
        and not any(2 * len(keys.intersection(single.keys)) > len(single.keys) for keys in known_keys)
    }


def is_utf8(name: str) -> bool:
    """Whether a name can be written as UTF-8: those of files and the keys in JSON may hold lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_utf8(path: str) -> SourceError:
    return SourceError(f"the path {path!a} isn't valid UTF-8, as the names of rows must be; rename it")


def _unique_paths(inputs: Sequence[Sequence[str]]) -> set[str]:
    """The paths of several inputs, without a file that a second input reaches again through a symbolic link."""
    first_seen: dict[str, tuple[int, str]] = {}
    unique = set()
    for number, paths in enumerate(inputs):
        for path in paths:
            first, earlier = first_seen.setdefault(storage.real(path), (number, path))
            if first == number or earlier == path:  # within one input both are kept: two links in one folder are two files
                unique.add(path)
    return unique


def _unread_folders(expanded: Sequence["_Expansion"], paths: Sequence[str]) -> Iterable[str]:
    """The topmost folders that patterns match and that contain a corpus file which no input reads.

    A folder that can't be listed is among them, because what it contains is unknown.
    """
    folders = {folder.rstrip("/") for expansion in expanded for folder in expansion.folders}
    read = {storage.real(path) for path in paths} if folders else set()
    parent = ""
    # Sorted with a trailing slash, so that what is below a folder follows it directly. Without the slash `a-b` would come
    # between `a` and `a/b`, because "-" sorts before "/".
    for folder in sorted(folders, key=lambda folder: f"{folder}/"):
        if parent and folder.startswith(parent):
            continue
        parent = f"{folder}/"
        try:
            paths_below = [file.path for file in storage.files_below(folder)]
        except OSError:
            yield folder
            continue
        candidates = (path for path in paths_below if _kind_of(path) and not _is_hidden(path[len(parent) :]))
        if any(storage.real(path) not in read for path in candidates):
            yield folder


def left_out_message(paths: Sequence[str]) -> str:
    """The message about files that are left out of a corpus."""
    return (
        f"Left out, as Assay reads rows in {_readable_suffixes()} of a folder, and of what a pattern matches no folder: "
        f"{first_of(paths, _MAX_NAMED)}"
    )


def check_unchanged(files: Iterable[InputFile]) -> None:
    """Raise `SourceError` for a file that has changed since it was found. A missing file passes: reading it will fail."""
    for file in files:
        if file_exists(file.path):
            check_same(file)


def file_exists(path: str) -> bool:
    """Whether the file exists. Raises `SourceError` if the storage doesn't answer."""
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
    if changed := difference(file, _inspect(_Lookup(file.path, file.index, file.name)).file):
        raise SourceError(f"{file.path} {changed}; {RESTORE}")
    return now


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
    if earlier.modified is None or now.modified is None or is_remote(now.path):
        return "was rewritten since its scoring started, and is too large to compare its content"
    return (
        f"was written to since its scoring started ({_time_text(earlier.modified)} then, {_time_text(now.modified)} now), "
        f"and is too large to be compared; if you know that it is what it was, give it its time back: "
        f"touch -d @{earlier.modified // 10**9}.{earlier.modified % 10**9:09d} {shlex.quote(now.path)}"
    )


def _time_text(modified: int) -> str:
    return datetime.datetime.fromtimestamp(modified / 1e9, datetime.UTC).isoformat(" ", "milliseconds")


def _status(path: str) -> FileStatus:
    """The current status of a corpus file. Raises `SourceError`."""
    try:
        return storage.file_status(path)
    except FileNotFoundError:
        raise SourceError(f"{path} is missing; put it back and run the same command again to resume") from None
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error_text(error)}") from error


class _Expansion(NamedTuple):
    """What one input expands to: files to read, files of a folder that are left out, folders that a pattern matches."""

    files: list[str]
    left_out: Sequence[str] = ()
    folders: Sequence[str] = ()
    is_folder: bool = False
    statuses: Mapping[str, FileStatus] = MappingProxyType({})
    """What a store's listing says of the files: it spares a request for each of them."""


def _expand(text: str) -> _Expansion:
    try:
        matches = storage.find(text)
    except OSError as error:
        # A folder that can't be listed must not count as an empty one.
        raise SourceError(f"{text} can't be read: {error_text(error)}") from error
    if matches is None:
        raise SourceError(f"no file, folder or pattern match for {text}")
    paths = [file.path for file in matches.files]
    # Without a tag a listing may leave out the time of writing, too, by which the file will be compared.
    statuses = {file.path: file for file in matches.files if file.tag is not None}
    if matches.folders is not None:
        shown_folders = [
            folder for folder in matches.folders if not _is_hidden(Path(folder).name) or _is_hidden(Path(text).name)
        ]
        return _Expansion(paths, folders=shown_folders, statuses=statuses)
    if paths == [storage.absolute(text)]:
        return _Expansion(paths, statuses=statuses)
    if (rows := rows_of_result(text, paths)) is not None:
        return _Expansion(rows, statuses=statuses)
    outputs = results_below(text, paths)
    shown = [
        path
        for path in paths
        if not _is_hidden(storage.below(path, text)) and not any(path.startswith(f"{output}/") for output in outputs)
    ]
    readable = [path for path in shown if _kind_of(path)]
    left_out = [f"{output} ({describe(output).removeprefix('is ')})" for output in outputs]
    left_out += [path for path in shown if not _kind_of(path)]
    if not readable:
        held = f"; it holds {first_of(left_out, _MAX_NAMED)}" if left_out else ""
        raise SourceError(f"the folder {text} holds no corpus file{held}. Assay reads {_readable_suffixes()}")
    return _Expansion(readable, left_out, is_folder=True, statuses=statuses)


def _names(paths: Sequence[str]) -> list[str]:
    """The paths relative to the deepest folder that all of them are in."""
    folders = [path.split("/")[:-1] for path in paths]
    common = sum(1 for _ in itertools.takewhile(lambda level: len(set(level)) == 1, zip(*folders, strict=False)))
    return ["/".join(path.split("/")[common:]) for path in paths]


def _is_hidden(relative: str) -> bool:
    return any(piece.startswith((".", "_")) for piece in Path(relative).parts)


def _kind_of(path: str) -> FileKind | None:
    return next((kind for suffix, kind in _SUFFIXES.items() if path.lower().endswith(suffix)), None)


def _unread(path: str) -> SourceError:
    """The error for a file that only its extension keeps from being read."""
    way = ". `datasets.load_from_disk(FOLDER).to_parquet('rows.parquet')` writes rows of such a file"
    return SourceError(
        f"{path} has a file name extension that Assay doesn't read; it reads {_readable_suffixes()}"
        f"{way if path.endswith('.arrow') else ''}"
    )


def _readable_suffixes() -> str:
    return ", ".join(_SUFFIXES)


def _inspect_all(lookups: Iterator[_Lookup], count: int) -> Iterator[_Inspected | SourceError]:
    """Inspect `count` files in their order, a batch at a time. Those that must be opened are opened concurrently.

    A file that can't be read gives its error. Raises `SourceError` if a store doesn't answer.
    """
    with ThreadPoolExecutor(_THREADS) as threads, ExitStack() as stack:
        processes: Any = None
        while batch := list(itertools.islice(lookups, _BATCH)):
            unopened = [_inspect_unopened(lookup) for lookup in batch]
            to_open = [lookup for lookup, file in zip(batch, unopened, strict=True) if file is None]
            # `map` cancels what is waiting when one of them raises.
            if count < _FOR_PROCESSES or len(to_open) <= _PIECE:
                opened = threads.map(_inspect_or_error, to_open)
            else:
                processes = processes or stack.enter_context(_start_processes())
                pieces = [to_open[at : at + _PIECE] for at in range(0, len(to_open), _PIECE)]
                opened = itertools.chain.from_iterable(processes.map(_inspect_piece, pieces))
            yield from (next(opened) if file is None else file for file in unopened)


def _start_processes() -> Any:
    """An executor with a process for each core. Unlike the standard library's, it doesn't run the user's script in them."""
    from loky import ProcessPoolExecutor, cpu_count  # 60 ms, for corpora of many files only

    return ProcessPoolExecutor(min(_MOST_PROCESSES, cpu_count()), initializer=_ignore_interrupts)


def _ignore_interrupts() -> None:
    """In another process: Ctrl-C is for this one, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _inspect_piece(lookups: Sequence[_Lookup]) -> list[_Inspected | SourceError]:
    """Inspect some files, in another process. Equal columns are one object, which is sent once."""
    with ThreadPoolExecutor(_THREADS) as threads:
        all_inspected = list(threads.map(_inspect_or_error, lookups))
    _looks.clear()  # this process never looks at a file again, and a million looks would be gigabytes
    distinct: dict[pa.Schema | None, pa.Schema | None] = {}
    return [
        inspected
        if isinstance(inspected, SourceError)
        else inspected._replace(schema=distinct.setdefault(inspected.schema, inspected.schema))
        for inspected in all_inspected
    ]


def _inspect_unopened(lookup: _Lookup) -> _Inspected | None:
    """A file of which a store's listing, or an earlier session, tells everything; None if it must be opened."""
    listed, earlier = lookup.listed, lookup.earlier
    if listed is None or listed.tag is None:
        return None
    if (inspected := _recall(lookup, listed)) is not None:
        return inspected
    mark = tagged(listed.tag)
    if earlier is not None and (earlier.size, earlier.fingerprint) == (listed.size, mark):
        return _Inspected(replace(earlier, index=lookup.index, name=lookup.name, modified=listed.modified))
    kind = _kind_of(lookup.path)
    if kind in (None, FileKind.ARRAY, FileKind.PARQUET):
        return None
    extent = listed.size if kind is FileKind.JSONL else None
    return _Inspected(InputFile(lookup.index, lookup.name, lookup.path, kind, listed.size, mark, extent, listed.modified))


def _inspect_or_error(lookup: _Lookup) -> _Inspected | SourceError:
    try:
        return _inspect(lookup)
    except SourceError as error:
        if is_remote(lookup.path) and isinstance(error.__cause__, OSError):  # each of a million requests would wait for it
            raise
        return error


def _inspect(lookup: _Lookup) -> _Inspected:
    """Determine a file's kind, fingerprint, extent and columns, opening it. Raises `SourceError`."""
    path = lookup.path
    kind = _kind_of(path)
    if kind is None:
        raise _unread(path)
    at = time.time_ns()
    try:
        status = lookup.listed or storage.file_status(path)
        if (inspected := _recall(lookup, status)) is not None:
            return inspected
        changed = storage.change_time(path)
        mark, size = fingerprint(status), status.size
        extent: int | None
        schema = beginning = None
        if kind is FileKind.PARQUET:
            footer = _parquet_footer(status)
            # Without its metadata: that of pandas holds the number of rows, so that no two schemas would be equal.
            extent, schema = int(footer.num_rows), footer.schema.to_arrow_schema().remove_metadata()
        else:
            kind, beginning = _look_at(status, kind)
            extent = size if kind is FileKind.JSONL else None
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error.strerror or error}; make it readable, or leave it out") from error
    file = InputFile(lookup.index, lookup.name, path, kind, size, mark, extent, status.modified)
    inspected = _Inspected(file, schema, beginning)
    _looks[path] = _Look(inspected, changed, at)
    return inspected


def _recall(lookup: _Lookup, status: FileStatus) -> _Inspected | None:
    """What this process knows of a file of such a status from opening it; None if it hasn't, or the file may be another."""
    look = _looks.get(lookup.path)
    if look is None or look.inspected.file.size != status.size:
        return None
    file = look.inspected.file
    if status.tag is not None:
        is_same = tagged(status.tag) == file.fingerprint
    elif look.changed is None or look.changed > look.at - _SETTLED_NS:
        is_same = False
    else:  # by its time of change, too: anybody can set that of the last write
        is_same = (status.modified, storage.change_time(lookup.path)) == (file.modified, look.changed)
    return look.inspected._replace(file=replace(file, index=lookup.index, name=lookup.name)) if is_same else None


def _look_at(status: FileStatus, kind: FileKind) -> tuple[FileKind, Beginning]:
    """The kind of a JSON file by its content, and its beginning. Raises `SourceError` for one that its name doesn't fit.

    Of files of lines only their first ones tell: what is broken after some rows is so row by row.
    """
    path = status.path
    if kind.compression is not None:
        start = unpack_beginning(path, status.size, kind.compression)
        beginning = look_at(start, len(start) < UNPACKED_BYTES, path)
    else:
        beginning = _look_at_start(status, _START_BYTES) or _look_at_start(status, _DOCUMENT_BYTES)
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


def _look_at_start(status: FileStatus, count: int) -> Beginning | None:
    with storage.open_read(status.path, status.size, _START_BYTES) as stream:
        return look_at(stream.read(count), count >= status.size, status.path)


def _parquet_footer(status: FileStatus) -> pq.FileMetaData:
    try:
        return parquet_metadata(status.path, status.size)
    except ValueError as error:  # pyarrow's ArrowInvalid is one
        beginning = _look_at_start(status, _START_BYTES)
        problem = beginning.problem if beginning is not None and beginning.layout is Layout.OTHER else ""
        reason = problem or f"isn't a valid Parquet file: {str(error).rstrip('.')}; fetch it again"
        raise SourceError(f"{status.path} {reason}, or leave it out") from error


def parquet_metadata(path: str, size: int) -> pq.FileMetaData:
    """The footer of a Parquet file of a size in bytes. Raises `OSError`, and `ValueError` if it isn't one."""
    with storage.open_read(path, size, _START_BYTES) as stream:
        return pq.read_metadata(stream)


def limit_files(files: Sequence[InputFile], ends: Sequence[int | None]) -> list[InputFile]:
    """The files with their extents replaced by `ends` (None: unchanged)."""
    return [file if end is None else replace(file, extent=end) for file, end in zip(files, ends, strict=True)]
