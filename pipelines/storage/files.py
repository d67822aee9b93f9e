"""Files and folders on this machine, or in any store that fsspec knows (s3://, gs://, hf:// ...).

Two guarantees: a file that Assay writes is complete or absent, and of two writers that `create` the same name, the first
wins. On a local disk that takes a temporary file and a hard link; an object store does it with one put, conditional where
the store supports that.
"""

import functools
import glob
import io
import math
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, ParamSpec, Protocol, TypeVar

from actors.errors import SettingsError

P = ParamSpec("P")
T = TypeVar("T")

_BUFFER = 2**20
_TEMPORARY = ".tmp"
_JOBS = f"{os.sep}runtime_resources{os.sep}working_dir_files{os.sep}"
_LEFTOVER = re.compile(r"[0-9a-f]{32}\.tmp")
_LEFTOVER_AGE_S = 24 * 3600.0
"""Age from which a half-written file is deleted. A younger one may belong to another process that is still writing it."""

LEASE = "lease.json"
"""The file that says which process is writing a folder (`pipelines.storage.lease`). It doesn't count as content."""


class Entry(NamedTuple):
    """A file in a folder: its name, its size in bytes, and its time of writing in seconds, by the storage's clock.

    The time is only to be compared with that of other files in the same folder.
    """

    name: str
    size: int
    written: float


class FileStatus(NamedTuple):
    """A file's full path, its size in bytes, and the store's tag of its content (ETag), if it has one.

    `modified` is the modification time in nanoseconds since 1970; None where there is a tag or the time is unknown.
    """

    path: str
    size: int
    tag: str | None
    modified: int | None = None


class Folder(Protocol):
    """A folder that Assay writes. Small and picklable. Every method raises `OSError` if the storage refuses."""

    @property
    def path(self) -> str:
        """The absolute path or address."""

    def sub(self, name: str) -> "Folder":
        """A folder in it, which need not exist."""

    def file(self, name: str) -> str:
        """The full path of a file in it."""

    def make(self) -> None:
        """Create the folder, delete half-written files older than a day, and check that it can be written."""

    def clear(self) -> None:
        """Delete all half-written files, of any age. Only for a caller that is the folder's only writer."""

    def entries(self) -> list[Entry]:
        """The files directly in it; none if it doesn't exist."""

    def names(self) -> list[str]:
        """The names of files and folders directly in it, without half-written files and the lease; none if it doesn't exist.

        Raises `NotADirectoryError` for a file.
        """

    def is_empty(self) -> bool:
        """Whether it has no `names`. Raises `NotADirectoryError` for a file."""

    def read(self, name: str) -> bytes:
        """A file's content. Raises `FileNotFoundError` if it doesn't exist."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless it exists; returns whether this call wrote it. Of concurrent calls, one returns True."""

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, replacing an existing one in a single step."""

    def writing(self, name: str) -> Any:
        """A context with a stream, whose content becomes the file `name` at the end; an exception writes nothing."""

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    def delete_all(self) -> None:
        """Delete the folder and everything in it."""


def folder(path: str) -> Folder:
    """The folder at a path or address."""
    place = absolute(path)
    return _Remote(place) if is_remote(place) else _Local(place)


def is_remote(path: str) -> bool:
    """Whether it is the address of a store, and not a path of this machine."""
    return "://" in path


def absolute(path: str) -> str:
    """The absolute path, which every worker can use: a worker's current folder may differ from the driver's.

    Equivalent addresses are unified: `s3a://` becomes `s3://`, and `file://` a path of this machine. Raises `SettingsError`
    for a path in the folder that Ray unpacks for a job, because Ray deletes that folder and the results in it.
    """
    path = _canonical(path)
    if is_remote(path):
        return path.rstrip("/")
    place = os.path.abspath(Path(path).expanduser())
    if _JOBS in place:
        raise SettingsError(
            f"{path} lies in the folder that Ray unpacked for this job, and deletes when it likes; give an absolute path "
            "that every node sees, or an address such as s3://bucket/folder"
        )
    return place


def _canonical(path: str) -> str:
    """The path, or the address with the first of its protocol's names (`s3a` -> `s3`)."""
    protocol, mark, place = path.partition("://")
    if not mark or protocol in _NAMED_ONCE:
        return path
    from fsspec import get_filesystem_class

    try:
        system = get_filesystem_class(protocol)
    except (ValueError, ImportError):  # opening it reports the error
        return path
    if "file" in (names := [system.protocol] if isinstance(system.protocol, str) else list(system.protocol)):
        return str(system._strip_protocol(path))
    return f"{names[0]}://{place}" if protocol in names else path


_NAMED_ONCE = frozenset({"http", "https", "s3"})
"""Protocols that aren't renamed: fsspec lists http and https as names of one file system, but they are different places."""


def real(path: str) -> str:
    """The path with symbolic links resolved, equal for equal places; an address stays as it is."""
    path = _canonical(path)
    return path if is_remote(path) else os.path.realpath(path)


def is_folder(path: str) -> bool:
    """Whether there is a folder at a path of this machine, even an empty one; in a store, only one that holds something."""
    place = absolute(path)
    return bool(folder(place).names()) if is_remote(place) else os.path.isdir(place)


def is_in_job() -> bool:
    """Whether this runs in a folder that Ray unpacked for a job, as under `ray job submit --working-dir`."""
    return _JOBS in os.getcwd()


def overlap(path: str, other: str) -> bool:
    """Whether two folders are the same, or one is inside the other."""
    path, other = _canonical(path), _canonical(other)
    if is_remote(path) or is_remote(other):
        # With a trailing slash, so that `s3://b/run2` isn't inside `s3://b/run`.
        first, second = (absolute(address) + "/" for address in (path, other))
        return first.startswith(second) or second.startswith(first)
    resolved, other_resolved = Path(path).resolve(), Path(other).resolve()
    return resolved.is_relative_to(other_resolved) or other_resolved.is_relative_to(resolved)


def error_text(error: OSError) -> str:
    """The message of the operating system or the store, with the file name if there is one."""
    return f"{error.strerror} ({error.filename})" if error.strerror and error.filename else str(error.strerror or error)


def open_read(path: str) -> IO[bytes]:
    """Open a file for reading, as a seekable stream. Raises `OSError`."""
    path = _canonical(path)
    if not is_remote(path):
        return open(path, "rb")
    system, inner = _system(path)
    return io.BufferedReader(_as_os_error(system.open)(inner, "rb", block_size=4 * _BUFFER, cache_type="readahead"), _BUFFER)


def file_status(path: str) -> FileStatus:
    """The status of a file. Raises `OSError`."""
    path = _canonical(path)
    if not is_remote(path):
        status = os.stat(path)
        return FileStatus(path, status.st_size, None, status.st_mtime_ns)
    system, inner = _system(path)
    return _found(system, _as_os_error(system.info)(inner))


class Matches(NamedTuple):
    """The files behind a path or a pattern, and the folders that the pattern matches; `folders` is None for a path."""

    files: list[FileStatus]
    folders: list[str] | None = None


def find(text: str) -> Matches | None:
    """The file at a path, all files below a folder, or those that a pattern (* ? [] **) matches; None if there is no file.

    On this machine an existing file or folder of exactly this name is never read as a pattern. Raises `OSError`, also for a
    local folder that can't be listed, which must not count as empty.
    """
    path = absolute(text)
    if is_remote(path):
        return _find_remotely(path)
    if os.path.isdir(path):
        return Matches(files_below(path))
    if os.path.isfile(path):
        return Matches([file_status(path)])
    matches = glob.glob(path, recursive=True)
    files = [FileStatus(name, 0, None) for name in matches if os.path.isfile(name)]
    return Matches(files, [name for name in matches if os.path.isdir(name)]) if files else None


def files_below(path: str) -> list[FileStatus]:
    """All files below a folder, at any depth; its name is never read as a pattern. Raises `OSError`.

    In a store, the path of a file gives the file. On this machine symbolic links to folders aren't followed (they may form
    cycles), and count as files.
    """
    if is_remote(path):
        system, inner = _system(path)
        return _files(system, _as_os_error(system.find)(inner, detail=True))
    walk = os.walk(path, onerror=_refuse)
    inside = ((where, [*names, *filter(lambda name: _is_link(where, name), folders)]) for where, folders, names in walk)
    return [FileStatus(os.path.join(where, name), 0, None) for where, names in inside for name in names]


def below(path: str, text: str) -> str:
    """The path of a file relative to the folder `text`, for which `find` returned it."""
    place = absolute(text)
    if is_remote(place):
        system, inner = _system(place)
        place = system.unstrip_protocol(inner).rstrip("/")
    return path[len(place) :].lstrip("/")


def _is_link(where: str, name: str) -> bool:
    return os.path.islink(os.path.join(where, name))


def _refuse(error: OSError) -> None:
    raise error


def _find_remotely(text: str) -> Matches | None:
    system, inner = _system(text)
    system.invalidate_cache()
    if not glob.has_magic(inner):
        return Matches(files) if (files := files_below(text)) else None
    infos = _as_os_error(system.glob)(inner, detail=True)
    folders = [system.unstrip_protocol(name).rstrip("/") for name, info in infos.items() if info["type"] == "directory"]
    return Matches(files, folders) if (files := _files(system, infos)) else None


def _files(system: Any, infos: dict[str, dict[str, Any]]) -> list[FileStatus]:
    return [_found(system, info) for info in infos.values() if info["type"] == "file"]


def _found(system: Any, info: dict[str, Any]) -> FileStatus:
    path, tag = system.unstrip_protocol(info["name"]), info.get("ETag")
    return FileStatus(path, info["size"], tag, None if tag else int(_written(info) * 1e9) or None)


def _system(path: str) -> tuple[Any, str]:
    """The fsspec file system of an address, and the path within it. Listings aren't cached, since others write, too."""
    from fsspec.core import url_to_fs

    try:
        system, inner = url_to_fs(path, use_listings_cache=False)
    except (ValueError, ImportError) as error:  # unknown protocol, or its package isn't installed
        raise OSError(f"{path}: {error}") from error
    return system, inner


def file_system(path: str) -> Any:
    """The fsspec file system of an address, for libraries that read through it."""
    return _system(path)[0]


def arrow_file_system(path: str) -> tuple[Any, Callable[[str], str]]:
    """The Arrow file system of a path or address, and a function from such paths to paths within it."""
    from pyarrow import fs

    if not is_remote(path):
        return fs.LocalFileSystem(), str
    return fs.PyFileSystem(fs.FSSpecHandler(file_system(path))), lambda address: _system(address)[1]


def _as_os_error(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that its client's own exceptions (no credentials, no connection) become `OSError`."""

    @functools.wraps(function)
    def wrapper(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except OSError:
            raise
        except Exception as error:
            raise OSError(str(error) or type(error).__name__) from error

    return wrapper


@dataclass(frozen=True)
class _Local:
    path: str

    def sub(self, name: str) -> "_Local":
        return _Local(os.path.join(self.path, name))

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def make(self) -> None:
        os.makedirs(self.path, exist_ok=True)
        self._clear(time.time() - _LEFTOVER_AGE_S)
        probe = self._temporary()
        probe.touch()
        probe.unlink()

    def clear(self) -> None:
        self._clear(math.inf)

    def _clear(self, latest: float) -> None:
        for entry in self.entries():
            if _LEFTOVER.fullmatch(entry.name) and entry.written < latest:
                self.delete(entry.name)

    def entries(self) -> list[Entry]:
        try:
            with os.scandir(self.path) as listing:
                return [entry for file in listing if file.is_file() and (entry := _entry(file)) is not None]
        except FileNotFoundError:
            return []

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
            self._write(temporary, content)
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
        temporary = self._temporary()
        try:
            self._write(temporary, content)
            os.replace(temporary, self.file(name))
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        temporary = self._temporary()
        try:
            with open(temporary, "wb") as stream:
                yield stream
                _sync(stream)
            os.replace(temporary, self.file(name))
        finally:
            temporary.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        Path(self.path, name).unlink(missing_ok=True)

    def delete_all(self) -> None:
        if os.path.exists(self.path):
            shutil.rmtree(self.path)

    def _temporary(self) -> Path:
        return Path(self.path, f"{uuid.uuid4().hex}{_TEMPORARY}")

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        with open(path, "wb") as stream:
            stream.write(content)
            _sync(stream)


def _entry(file: os.DirEntry[str]) -> Entry | None:
    """The entry of a listed file; None if it no longer exists: other processes' temporary files come and go."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return Entry(file.name, status.st_size, status.st_mtime_ns / 1e9)


def _sync(stream: IO[bytes]) -> None:
    """Flush to the disk. Without, a power cut could leave the name of a file whose content was only in the page cache."""
    stream.flush()
    os.fsync(stream.fileno())


@dataclass(frozen=True)
class _Remote:
    """A prefix of keys in a store. A put is atomic, so there are no temporary files."""

    path: str

    def sub(self, name: str) -> "_Remote":
        return _Remote(f"{self.path}/{name}")

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def make(self) -> None:
        # A prefix needs no creation; the put only shows that it can be written.
        probe = f"{uuid.uuid4().hex}{_TEMPORARY}"
        self.replace(probe, b"")
        self.delete(probe)

    def clear(self) -> None:
        pass

    def entries(self) -> list[Entry]:
        system, inner = _system(self.path)
        try:
            infos = _as_os_error(system.ls)(inner, detail=True)
        except FileNotFoundError:
            return []
        files = (info for info in infos if info["type"] == "file" and info["name"].rstrip("/") != inner.rstrip("/"))
        return [Entry(info["name"].rsplit("/", 1)[1], info["size"], _written(info)) for info in files]

    def names(self) -> list[str]:
        system, inner = _system(self.path)
        try:
            paths = _as_os_error(system.ls)(inner, detail=False)
        except FileNotFoundError:
            return []
        names = [path.rstrip("/").rsplit("/", 1)[-1] for path in paths if path.rstrip("/") != inner.rstrip("/")]
        return [name for name in names if name != LEASE]

    def is_empty(self) -> bool:
        return not self.names()

    def read(self, name: str) -> bytes:
        system, inner = _system(self.file(name))
        return bytes(_as_os_error(system.cat_file)(inner))

    def create(self, name: str, content: bytes) -> bool:
        system, inner = _system(self.file(name))
        try:
            _as_os_error(system.pipe_file)(inner, content, mode="create")
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, content: bytes) -> None:
        system, inner = _system(self.file(name))
        _as_os_error(system.pipe_file)(inner, content)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        system, inner = _system(self.file(name))
        # Through a local file: the object appears with one put at the end, and an exception in the block uploads nothing.
        with tempfile.NamedTemporaryFile(suffix=_TEMPORARY) as stream:
            yield stream
            stream.flush()
            _as_os_error(system.put_file)(stream.name, inner)

    def delete(self, name: str) -> None:
        system, inner = _system(self.file(name))
        try:
            _as_os_error(system.rm_file)(inner)
        except FileNotFoundError:
            return

    def delete_all(self) -> None:
        system, inner = _system(self.path)
        try:
            _as_os_error(system.rm)(inner, recursive=True)
        except FileNotFoundError:
            return


def _written(info: dict[str, Any]) -> float:
    """The time of writing of an object, in seconds since 1970; 0 for a store that has none. Its name differs by store."""
    moment = next((info[name] for name in ("LastModified", "mtime", "created", "updated") if info.get(name)), 0.0)
    return float(moment.timestamp() if hasattr(moment, "timestamp") else moment)
