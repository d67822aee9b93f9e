"""The corpus as files: which there are, of which kind, how far they reach, and a fingerprint to know them again.

A position in a file is a byte offset for lines (of the decompressed bytes for gzip and zstd) and an ordinal for Parquet
and JSON arrays. A range of positions is what a row, a part and a unit of work all have in common.
"""

import datetime
import itertools
import json
import shlex
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from actors.errors import SourceError
from pipelines import storage
from pipelines.storage import Found, error_text, is_remote
from pipelines.storage.fingerprints import fingerprint, is_sampled, tagged

_START_BYTES = 65536
_LINES_LOOKED_AT = 20
_LOOKED_AT_TOGETHER = 8
_NAMED = 20  # of what may be thousands of files
_RESTORE = "once it is restored, the same command goes on; --overwrite starts again"


class FileKind(StrEnum):
    """How a file is read."""

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
        """Whether a position is the number of a row, so that a range holds as many rows as it is long."""
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


@dataclass(frozen=True)
class InputFile:
    """One file of the corpus. `extent` is where it ends, or None where only reading it to its end tells.

    `modified` is when it was last written, in nanoseconds since 1970. It is no part of what the file is: where it differs,
    the content is compared.
    """

    index: int
    name: str
    path: str
    kind: FileKind
    size: int
    fingerprint: str
    extent: int | None
    modified: int | None = None

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "index": self.index,
            "name": self.name,
            "path": self.path,
            "kind": self.kind.value,
            "size": self.size,
            "fingerprint": self.fingerprint,
            "extent": self.extent,
            "modified": self.modified,
        }

    @property
    def identity(self) -> dict[str, Any]:
        """What of it makes it another file if it differs."""
        return {name: value for name, value in self.as_json().items() if name != "modified"}


@dataclass(frozen=True)
class Unit:
    """What one read task reads: a range of a file (rows that start in it), less the ranges that are done already."""

    file: InputFile
    range: Range | None
    done: tuple[Range, ...] = ()


class Corpus(NamedTuple):
    """The files of a corpus, and the paths of what lies beside them and is none of it.

    Those are files in its folders without a known ending, and folders that a pattern matches, which are not read, where a
    corpus file lies below.
    """

    files: list[InputFile]
    left_out: list[str]


def find(inputs: Sequence[str], first_index: int = 0) -> list[InputFile]:
    """The files of `look_through`."""
    return look_through(inputs, first_index).files


def look_through(inputs: Sequence[str], first_index: int = 0) -> Corpus:
    """The files behind paths, globs and folders, in a stable order. Raises `SourceError` if one leads nowhere.

    Hidden files of a folder, and those that begin with an underscore, such as `_SUCCESS`, are nothing.
    """
    expanded = [_expand(text) for text in inputs]
    paths = sorted(_once([given.files for given in expanded]))
    left_out = sorted({path for others in expanded for path in others.left_out} - set(paths) | set(_unread(expanded, paths)))
    with ThreadPoolExecutor(_LOOKED_AT_TOGETHER) as threads:
        return Corpus(list(threads.map(_look_at, paths, itertools.count(first_index), _names(paths))), left_out)


def _once(inputs: Sequence[Sequence[str]]) -> set[str]:
    """The paths of several inputs, of which one may lead through a symbolic link to what another one does."""
    given: dict[str, tuple[int, str]] = {}
    once = set()
    for at, paths in enumerate(inputs):
        for path in paths:
            first, earlier = given.setdefault(storage.real(path), (at, path))
            if first == at or earlier == path:  # two links in one folder are two files
                once.add(path)
    return once


def _unread(expanded: Sequence["_Input"], paths: Sequence[str]) -> Iterable[str]:
    """The uppermost folders that patterns match and below which there is a corpus file that no input leads to.

    Also those that can't be listed: nobody knows what is in them.
    """
    folders = {folder.rstrip("/") for given in expanded for folder in given.folders}
    read = {storage.real(path) for path in paths} if folders else set()
    above = ""
    for folder in sorted(folders, key=lambda folder: f"{folder}/"):
        if above and folder.startswith(above):
            continue
        above = f"{folder}/"
        try:
            inside = [file.path for file in storage.files_below(folder)]
        except OSError:
            yield folder
            continue
        if any(_kind_of(path) and not _hidden(path[len(above) :]) and storage.real(path) not in read for path in inside):
            yield folder


def named_left_out(paths: Sequence[str]) -> str:
    """What is said of files that are left out of a corpus."""
    few = ", ".join(paths[:_NAMED]) + (f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else "")
    return f"Left out, as Assay reads {_readable()} of a folder, and of what a pattern matches no folder: {few}"


def check_unchanged(files: Iterable[InputFile]) -> None:
    """Raise `SourceError` for a file that has changed since it was found; one that is gone will fail when it is read."""
    for file in files:
        if is_there(file.path):
            check_same(file)


def is_there(path: str) -> bool:
    """Whether there is such a file. Raises `SourceError` if that can't be told."""
    try:
        storage.look(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error_text(error)}") from error
    return True


def check_same(file: InputFile) -> Found:
    """What is known of a file now. Raises `SourceError` if it is gone, or isn't what it was when it was found."""
    now = _look(file.path)
    same = now.modified == file.modified if now.tag is None else tagged(now.tag) == file.fingerprint
    if now.size == file.size and same:
        return now
    if change := difference(file, _look_at(file.path, file.index, file.name)):
        raise SourceError(f"{file.path} {change}; {_RESTORE}")
    return now


def check_untouched(known: Found) -> None:
    """Raise `SourceError` if a file was written to since that was known of it, whatever it holds now."""
    if _look(known.path) != known:
        raise SourceError(f"{known.path} was written to while it was read; {_RESTORE}")


def difference(before: InputFile, now: InputFile) -> str | None:
    """How a file differs from what it was, as in "has changed ..."; None if it is the same."""
    if before.size != now.size:
        return f"has changed since its scoring started ({before.size:,} bytes then, {now.size:,} now)"
    if before.fingerprint != now.fingerprint:
        return "has changed since its scoring started (as many bytes, but other ones)"
    if before.modified == now.modified or not is_sampled(now.fingerprint):
        return None
    if before.modified is None or now.modified is None or is_remote(now.path):
        return "was written again since its scoring started, and is too large to be compared"
    return (
        f"was written to since its scoring started ({_moment(before.modified)} then, {_moment(now.modified)} now), and is "
        f"too large to be compared; if you know that it is what it was, give it its time back: "
        f"touch -d @{before.modified // 10**9}.{before.modified % 10**9:09d} {shlex.quote(now.path)}"
    )


def _moment(modified: int) -> str:
    return datetime.datetime.fromtimestamp(modified / 1e9, datetime.UTC).isoformat(" ", "milliseconds")


def cut(file: InputFile, remaining: Sequence[Range] | None, done: Sequence[Range], unit_bytes: int) -> list[Unit]:
    """The units of work in what remains of a file; `remaining` is None where the file's end isn't known yet."""
    if remaining is None:
        return [Unit(file, None, tuple(done))]
    if file.kind is FileKind.JSONL:
        return [Unit(file, piece) for gap in remaining for piece in _pieces(gap, unit_bytes)]
    if file.kind is FileKind.PARQUET:
        return [Unit(file, piece) for gap in remaining for piece in _row_groups(file, gap)]
    return [Unit(file, None, tuple(done))] if remaining else []


def _look(path: str) -> Found:
    """What is known of a file of the corpus. Raises `SourceError`."""
    try:
        return storage.look(path)
    except FileNotFoundError:
        raise SourceError(f"{path} isn't there any more; once it is back, the same command goes on") from None
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error_text(error)}") from error


class _Input(NamedTuple):
    """What is behind one input: files, those that are left out of a folder, and folders that a pattern matches."""

    files: list[str]
    left_out: Sequence[str] = ()
    folders: Sequence[str] = ()


def _expand(text: str) -> _Input:
    try:
        found = storage.find(text)
    except OSError as error:
        # A folder that can't be listed must not count as an empty one.
        raise SourceError(f"{text} can't be read: {error_text(error)}") from error
    if found is None:
        raise SourceError(f"there is no file, folder or match for {text}")
    paths = [file.path for file in found.files]
    if found.folders is not None:
        shown_folders = [folder for folder in found.folders if not _hidden(Path(folder).name) or _hidden(Path(text).name)]
        return _Input(paths, folders=shown_folders)
    if paths == [storage.absolute(text)]:
        return _Input(paths)
    shown = [path for path in paths if not _hidden(storage.below(path, text))]
    known = [path for path in shown if _kind_of(path)]
    if not known:
        raise SourceError(f"the folder {text} holds no corpus file; Assay reads {_readable()}")
    return _Input(known, [path for path in shown if not _kind_of(path)])


def _names(paths: Sequence[str]) -> list[str]:
    """The paths without the folders that all of them have in common."""
    folders = [path.split("/")[:-1] for path in paths]
    common = sum(1 for _ in itertools.takewhile(lambda level: len(set(level)) == 1, zip(*folders, strict=False)))
    return ["/".join(path.split("/")[common:]) for path in paths]


def _hidden(relative: str) -> bool:
    return any(piece.startswith((".", "_")) for piece in Path(relative).parts)


def _kind_of(path: str) -> FileKind | None:
    return next((kind for suffix, kind in _SUFFIXES.items() if path.lower().endswith(suffix)), None)


def _readable() -> str:
    return ", ".join(_SUFFIXES)


def _look_at(path: str, index: int, name: str) -> InputFile:
    kind = _kind_of(path)
    if kind is None:
        raise SourceError(f"{path} has no ending that Assay knows; it reads {_readable()}")
    try:
        found = storage.look(path)
        known_by, size = fingerprint(found), found.size
        if kind is FileKind.ARRAY and not _start(path).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            kind = _lines_or_refuse(path)
        extent = {FileKind.JSONL: size, FileKind.PARQUET: _rows(path) if kind is FileKind.PARQUET else None}.get(kind)
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error.strerror or error}") from error
    return InputFile(index, name, path, kind, size, known_by, extent, found.modified)


def _lines_or_refuse(path: str) -> FileKind:
    """Many a .json file holds one object per line. One that is a single document would come out as broken lines."""
    with storage.open_read(path) as stream:
        first = list(itertools.islice((line for line in stream if line.strip()), _LINES_LOOKED_AT))
    if first and not any(map(_is_object, first)):
        raise SourceError(
            f"{path} is neither a JSON array nor one object per line; leave it out, or name it .jsonl to judge its lines"
        )
    return FileKind.JSONL


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _start(path: str) -> bytes:
    with storage.open_read(path) as stream:
        return stream.read(_START_BYTES)


def _rows(path: str) -> int:
    try:
        return int(_metadata(path).num_rows)
    except ValueError as error:  # pyarrow's ArrowInvalid is one
        raise SourceError(f"{path} is no Parquet file: {error}") from error


def _metadata(path: str) -> pq.FileMetaData:
    with storage.open_read(path) as stream:
        return pq.read_metadata(stream)


def _pieces(gap: Range, size: int) -> Iterable[Range]:
    for start in range(gap.start, gap.end, size):
        yield Range(start, min(start + size, gap.end))


def _row_groups(file: InputFile, gap: Range) -> Iterable[Range]:
    metadata = _metadata(file.path)
    start = 0
    for group in range(metadata.num_row_groups):
        end = start + metadata.row_group(group).num_rows
        piece = Range(max(start, gap.start), min(end, gap.end))
        if piece.start < piece.end:
            yield piece
        start = end


def limited(files: Sequence[InputFile], ends: Sequence[int | None]) -> list[InputFile]:
    """The files cut off at the given ends (None: as they are)."""
    return [file if end is None else replace(file, extent=end) for file, end in zip(files, ends, strict=True)]
