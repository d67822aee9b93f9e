"""Folders and files of this machine.

A file is written under a temporary name, then linked or renamed to its own: so it is complete or absent, and of two writers
that `create` the same name, the first wins.
"""

import glob
import math
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipelines.data.storage.protocol import LEASE, TEMPORARY, WRITE_BYTES, Entry, FileStatus, Folder, Matches

_LEFTOVER = re.compile(r"[0-9a-f]{32}\.tmp")
# Age from which a half-written file is deleted. A younger one may belong to another process that is still writing it.
_LEFTOVER_AGE_S = 24 * 3600.0


def file_status(path: str) -> FileStatus:
    """The status of a file, without a tag: its modification time tells whether it was written to. Raises `OSError`."""
    status = os.stat(path)
    return FileStatus(path, status.st_size, None, status.st_mtime_ns)


def find(path: str) -> Matches | None:
    """See `files.find`."""
    # Before patterns, so that a name such as `part[1].jsonl` is the file that has it.
    if os.path.isdir(path):
        return Matches(list(files_below(path)))
    if os.path.isfile(path):
        return Matches([file_status(path)])
    matches = glob.glob(path, recursive=True)
    files = [FileStatus(name, 0, None) for name in matches if os.path.isfile(name)]
    return Matches(files, [name for name in matches if os.path.isdir(name)]) if files else None


def files_below(path: str) -> Iterator[FileStatus]:
    """See `files.files_below`. Their sizes aren't read, and are 0."""
    folders = [path]
    while folders:
        with os.scandir(folders.pop()) as listing:  # `os.walk` would hold all names of a folder
            for file in listing:
                if file.is_dir(follow_symlinks=False):
                    folders.append(file.path)
                else:
                    yield FileStatus(file.path, 0, None)


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine, or of a file system that several machines mount.

    `create` needs hard links, which NFS and the file systems of clusters have.
    """

    path: str

    def sub(self, name: str) -> "LocalFolder":
        return LocalFolder(os.path.join(self.path, name))

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def make(self) -> None:
        os.makedirs(self.path, exist_ok=True)
        self._clear(time.time() - _LEFTOVER_AGE_S)
        probe = self._temporary()  # permissions and full disks are noticed before an engine starts
        probe.touch()
        probe.unlink()

    def clear(self) -> None:
        self._clear(math.inf)

    def _clear(self, latest: float) -> None:
        for entry in list(self.entries()):
            if _LEFTOVER.fullmatch(entry.name) and entry.written < latest:
                self.delete(entry.name)

    def entries(self) -> Iterator[Entry]:
        with suppress(FileNotFoundError), os.scandir(self.path) as listing:
            yield from filter(None, (_entry(file) for file in listing if file.is_file()))

    def names(self) -> list[str]:
        if not os.path.exists(self.path):
            return []
        return [name for name in os.listdir(self.path) if not _LEFTOVER.fullmatch(name) and name != LEASE]

    def is_empty(self) -> bool:
        return not self.names()

    def read(self, name: str) -> bytes:
        return Path(self.path, name).read_bytes()

    def create(self, name: str, content: bytes) -> bool:
        temporary = self._temporary()
        try:
            with open(temporary, "wb") as stream:
                stream.write(content)
                _sync(stream)
            # A hard link fails if the name exists, and appears with its full content: `os.replace` would overwrite, and
            # an open with O_EXCL would show readers a half-written file.
            os.link(temporary, self.file(name))
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def replace(self, name: str, content: bytes) -> None:
        os.makedirs(self.path, exist_ok=True)
        with self.writing(name) as stream:
            stream.write(content)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        temporary = self._temporary()
        try:
            with open(temporary, "wb", WRITE_BYTES) as stream:
                yield stream
                _sync(stream)
            os.replace(temporary, self.file(name))
        finally:
            temporary.unlink(missing_ok=True)

    def move(self, name: str, place: Folder) -> None:
        os.makedirs(os.path.dirname(place.file(name)), exist_ok=True)
        os.replace(self.file(name), place.file(name))

    def delete(self, name: str) -> None:
        Path(self.path, name).unlink(missing_ok=True)

    def delete_all(self) -> None:
        if os.path.exists(self.path):  # `ignore_errors` would also hide what can't be deleted
            shutil.rmtree(self.path)

    def _temporary(self) -> Path:
        return Path(self.path, f"{uuid.uuid4().hex}{TEMPORARY}")


def _entry(file: os.DirEntry[str]) -> Entry | None:
    # The entry of a listed file; None if it no longer exists: other processes' temporary files come and go.
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return Entry(file.name, status.st_size, status.st_mtime_ns / 1e9)


def _sync(stream: IO[bytes]) -> None:
    # Flush to the disk. Without, a power cut could leave the name of a file whose content was only in the page cache.
    stream.flush()
    os.fsync(stream.fileno())
