"""The corpus as files: which there are, of which kind, how far they reach, and a fingerprint to know them again.

A position in a file is a byte offset for lines (of the decompressed bytes for gzip and zstd) and an ordinal for Parquet
and JSON arrays. A range of positions is what a row, a part and a unit of work all have in common.
"""

import glob
import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from actors.errors import SourceError
from pipelines import storage
from pipelines.storage import told

_SAMPLE_BYTES = 65536
_LINES_LOOKED_AT = 20


class Kind(StrEnum):
    """How a file is read."""

    JSONL = "jsonl"
    JSONL_GZIP = "jsonl.gz"
    JSONL_ZSTD = "jsonl.zst"
    ARRAY = "json"
    PARQUET = "parquet"

    @property
    def compression(self) -> str | None:
        """pyarrow's name of the compression."""
        return {Kind.JSONL_GZIP: "gzip", Kind.JSONL_ZSTD: "zstd"}.get(self)

    @property
    def by_ordinal(self) -> bool:
        """Whether a position is the number of a row, so that a range holds as many rows as it is long."""
        return self in (Kind.ARRAY, Kind.PARQUET)


_SUFFIXES = {
    ".jsonl": Kind.JSONL,
    ".ndjson": Kind.JSONL,
    ".jsonl.gz": Kind.JSONL_GZIP,
    ".ndjson.gz": Kind.JSONL_GZIP,
    ".jsonl.zst": Kind.JSONL_ZSTD,
    ".ndjson.zst": Kind.JSONL_ZSTD,
    ".json": Kind.ARRAY,
    ".parquet": Kind.PARQUET,
}


class Range(NamedTuple):
    """Positions from `start` up to, but not including, `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class InputFile:
    """One file of the corpus. `extent` is where it ends, or None where only reading it to its end tells."""

    index: int
    name: str
    path: str
    kind: Kind
    size: int
    fingerprint: str
    extent: int | None

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
        }


@dataclass(frozen=True)
class Unit:
    """What one read task reads: a range of a file (rows that start in it), less the ranges that are done already."""

    file: InputFile
    range: Range | None
    done: tuple[Range, ...] = ()


def find(inputs: Sequence[str], first_index: int = 0) -> list[InputFile]:
    """The files behind paths, globs and folders, in a stable order. Raises `SourceError` if one leads nowhere."""
    paths = sorted({path for text in inputs for path in _expand(text)})
    names = _names(paths)
    return [_look_at(path, index, name) for index, (path, name) in enumerate(zip(paths, names, strict=True), first_index)]


def check_unchanged(files: Iterable[InputFile]) -> None:
    """Raise `SourceError` for a file that has changed since it was found; one that is gone will fail when it is read."""
    for file in files:
        if _is_there(file.path):
            now = _look_at(file.path, file.index, file.name)
            if (now.size, now.fingerprint) != (file.size, file.fingerprint):
                raise SourceError(f"{file.path} has changed since its scoring started; restore it, or start again")


def _is_there(path: str) -> bool:
    try:
        storage.look(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SourceError(f"{path} can't be read: {told(error)}") from error
    return True


def cut(file: InputFile, remaining: Sequence[Range] | None, done: Sequence[Range], unit_bytes: int) -> list[Unit]:
    """The units of work in what remains of a file; `remaining` is None where the file's end isn't known yet."""
    if remaining is None:
        return [Unit(file, None, tuple(done))]
    if file.kind is Kind.JSONL:
        return [Unit(file, piece) for gap in remaining for piece in _pieces(gap, unit_bytes)]
    if file.kind is Kind.PARQUET:
        return [Unit(file, piece) for gap in remaining for piece in _row_groups(file, gap)]
    return [Unit(file, None, tuple(done))] if remaining else []


def _expand(text: str) -> list[str]:
    try:
        found = storage.find(text)
    except OSError as error:
        # A folder that can't be listed must not count as an empty one.
        raise SourceError(f"{text} can't be read: {told(error)}") from error
    if found is None:
        raise SourceError(f"there is no file, folder or match for {text}")
    paths = [one.path for one in found]
    if paths == [storage.absolute(text)] or glob.has_magic(text):
        return paths
    known = [path for path in paths if _kind_of(path) and not _hidden(path[len(storage.absolute(text)) + 1 :])]
    if not known:
        raise SourceError(f"the folder {text} holds no corpus file; Assay reads {_readable()}")
    return known


def _names(paths: Sequence[str]) -> list[str]:
    """The paths without the folders that all of them have in common."""
    folders = [path.split("/")[:-1] for path in paths]
    common = sum(1 for _ in itertools.takewhile(lambda level: len(set(level)) == 1, zip(*folders, strict=False)))
    return ["/".join(path.split("/")[common:]) for path in paths]


def _hidden(relative: str) -> bool:
    return any(piece.startswith((".", "_")) for piece in Path(relative).parts)


def _kind_of(path: str) -> Kind | None:
    return next((kind for suffix, kind in _SUFFIXES.items() if path.lower().endswith(suffix)), None)


def _readable() -> str:
    return ", ".join(_SUFFIXES)


def _look_at(path: str, index: int, name: str) -> InputFile:
    kind = _kind_of(path)
    if kind is None:
        raise SourceError(f"{path} has no ending that Assay knows; it reads {_readable()}")
    try:
        found = storage.look(path)
        size, ends = found.size, _ends(path, found.size)
        if kind is Kind.ARRAY and not ends.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            kind = _lines_or_refuse(path)
        extent = {Kind.JSONL: size, Kind.PARQUET: _rows(path) if kind is Kind.PARQUET else None}.get(kind)
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error.strerror or error}") from error
    fingerprint = f"etag:{found.tag}" if found.tag else f"sha256-of-ends:{hashlib.sha256(ends).hexdigest()[:32]}"
    return InputFile(index, name, path, kind, size, fingerprint, extent)


def _lines_or_refuse(path: str) -> Kind:
    """Many a .json file holds one object per line. One that is a single document would come out as broken lines."""
    with storage.open_read(path) as stream:
        first = list(itertools.islice((line for line in stream if line.strip()), _LINES_LOOKED_AT))
    if first and not any(map(_is_object, first)):
        raise SourceError(
            f"{path} is neither a JSON array nor one object per line; leave it out, or name it .jsonl to judge its lines"
        )
    return Kind.JSONL


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _ends(path: str, size: int) -> bytes:
    """The first and the last 64 KiB: with the size, enough to notice that a corpus isn't the same any more."""
    with storage.open_read(path) as stream:
        start = stream.read(_SAMPLE_BYTES)
        stream.seek(max(len(start), size - _SAMPLE_BYTES))
        return start + stream.read(_SAMPLE_BYTES)


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
