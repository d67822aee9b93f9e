"""Files and folders wherever they are: on this machine, or in any store that fsspec knows (s3://, gs://, hf:// ...).

A file of ours is there whole or not at all, and one that is made twice is the first one's. On a disk that takes a
temporary file and a link; an object store does it in one put, conditional where it can.
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
"""Half-written files are somebody else's who is at work, until they are older than anybody takes to write one."""

LEASE = "lease.json"
"""Tells who is writing a folder (`lease`). It isn't of what the folder holds."""


class Entry(NamedTuple):
    """A file in a folder: its name there, its size in bytes, and when it was written (to compare with its neighbours)."""

    name: str
    size: int
    written: float


class Found(NamedTuple):
    """A file: its full path, its size in bytes, and the store's own tag of its content, if it keeps one.

    Without a tag `modified` is when it was last written, in nanoseconds since 1970, if that is known.
    """

    path: str
    size: int
    tag: str | None
    modified: int | None = None


class Folder(Protocol):
    """A folder that files of ours go into. Small and picklable. Every method raises `OSError` if the storage refuses."""

    @property
    def path(self) -> str:
        """Where it is."""

    def sub(self, name: str) -> "Folder":
        """A folder in it, there or not."""

    def file(self, name: str) -> str:
        """The full path of a file in it."""

    def make(self) -> None:
        """Make sure that the folder is there, without leftovers of more than a day ago, and can be written."""

    def clear(self) -> None:
        """Delete half-written files, whosever they are: for who alone writes here."""

    def entries(self) -> list[Entry]:
        """The files right in it; none if it isn't there."""

    def names(self) -> list[str]:
        """The names of the files and folders right in it, but for half-written files and a lease; none if it isn't there.

        Raises `NotADirectoryError` for a file.
        """

    def is_empty(self) -> bool:
        """Whether it holds nothing but half-written files and a lease, or isn't there. Raises `NotADirectoryError`."""

    def read(self, name: str) -> bytes:
        """A file's content. Raises `FileNotFoundError` if it isn't there."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless it is there already; returns whether it was written now."""

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, in the place of one that may be there."""

    def writing(self, name: str) -> Any:
        """A context with a stream; what was written is the file `name` afterwards, or nothing after an exception."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""

    def delete_all(self) -> None:
        """Delete the folder with all that is in it."""


def folder(path: str) -> Folder:
    """The folder at a path or address."""
    place = absolute(path)
    return _Remote(place) if is_remote(place) else _Local(place)


def is_remote(path: str) -> bool:
    """Whether it is an address and not a path of this machine."""
    return "://" in path


def absolute(path: str) -> str:
    """The path as every worker can use it; a worker's own folder may be another one.

    One place has one address: `s3a://` is `s3://`, and `file://` a path of this machine. Raises `SettingsError` if it lies
    in the folder of a Ray job, where results would be lost without a word.
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
    """A path, or an address by the first of its protocol's names."""
    protocol, mark, place = path.partition("://")
    if not mark or protocol in _NAMED_ONCE:
        return path
    from fsspec import get_filesystem_class

    try:
        system = get_filesystem_class(protocol)
    except (ValueError, ImportError):  # whoever opens it says so
        return path
    if "file" in (names := [system.protocol] if isinstance(system.protocol, str) else list(system.protocol)):
        return str(system._strip_protocol(path))
    return f"{names[0]}://{place}" if protocol in names else path


_NAMED_ONCE = frozenset({"http", "https", "s3"})
"""Protocols to be left as they are: http is no other name of https."""


def real(path: str) -> str:
    """A path or address without symbolic links: the same for the same place."""
    path = _canonical(path)
    return path if is_remote(path) else os.path.realpath(path)


def in_a_job() -> bool:
    """Whether this runs in a folder that Ray unpacked for a job, as under `ray job submit --working-dir`."""
    return _JOBS in os.getcwd()


def overlap(path: str, other: str) -> bool:
    """Whether two folders are the same, or one is inside the other."""
    path, other = _canonical(path), _canonical(other)
    if is_remote(path) or is_remote(other):
        first, second = (absolute(first_path) + "/" for first_path in (path, other))
        return first.startswith(second) or second.startswith(first)
    first_path, other_path = Path(path).resolve(), Path(other).resolve()
    return first_path.is_relative_to(other_path) or other_path.is_relative_to(first_path)


def error_text(error: OSError) -> str:
    """What an error says, in the words of the system or the store."""
    return f"{error.strerror} ({error.filename})" if error.strerror and error.filename else str(error.strerror or error)


def open_read(path: str) -> IO[bytes]:
    """A file to read, from its start, with seek. Raises `OSError`."""
    path = _canonical(path)
    if not is_remote(path):
        return open(path, "rb")
    system, inner = _system(path)
    return io.BufferedReader(_as_os_error(system.open)(inner, "rb", block_size=4 * _BUFFER, cache_type="readahead"), _BUFFER)


def look(path: str) -> Found:
    """What is known of a file. Raises `OSError`."""
    path = _canonical(path)
    if not is_remote(path):
        status = os.stat(path)
        return Found(path, status.st_size, None, status.st_mtime_ns)
    system, inner = _system(path)
    return _found(system, _as_os_error(system.info)(inner))


class Matches(NamedTuple):
    """The files behind a path or a pattern, and the folders that a pattern matches, too; None where it isn't one."""

    files: list[Found]
    folders: list[str] | None = None


def find(text: str) -> Matches | None:
    """The files behind a path, or a pattern with * ? [] **, or all those below a folder; None if there is no file.

    What is there under this very name is no pattern on this machine. Raises `OSError`. A folder on this machine that can't
    be listed is an error and not an empty one.
    """
    path = absolute(text)
    if is_remote(path):
        return _find_remotely(path)
    if os.path.isdir(path):
        return Matches(files_below(path))
    if os.path.isfile(path):
        return Matches([look(path)])
    matches = glob.glob(path, recursive=True)
    files = [Found(name, 0, None) for name in matches if os.path.isfile(name)]
    return Matches(files, [name for name in matches if os.path.isdir(name)]) if files else None


def files_below(path: str) -> list[Found]:
    """All files below a folder, whatever characters its name holds; a file itself, in a store. Raises `OSError`.

    On this machine a link to a folder in it counts as a file, for it isn't followed.
    """
    if is_remote(path):
        system, inner = _system(path)
        return _files(system, _as_os_error(system.find)(inner, detail=True))
    walk = os.walk(path, onerror=_refuse)
    inside = ((where, [*names, *filter(lambda name: _is_link(where, name), folders)]) for where, folders, names in walk)
    return [Found(os.path.join(where, name), 0, None) for where, names in inside for name in names]


def below(path: str, text: str) -> str:
    """Where a file that `find` gave for a folder is in it."""
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


def _files(system: Any, infos: dict[str, dict[str, Any]]) -> list[Found]:
    return [_found(system, info) for info in infos.values() if info["type"] == "file"]


def _found(system: Any, info: dict[str, Any]) -> Found:
    path, tag = system.unstrip_protocol(info["name"]), info.get("ETag")
    return Found(path, info["size"], tag, None if tag else int(_written(info) * 1e9) or None)


def _system(path: str) -> tuple[Any, str]:
    """The file system behind an address, and what it calls the place. Listings are never remembered between calls."""
    from fsspec.core import url_to_fs

    try:
        system, inner = url_to_fs(path, use_listings_cache=False)
    except (ValueError, ImportError) as error:  # a protocol that nobody knows, or whose package isn't installed
        raise OSError(f"{path}: {error}") from error
    return system, inner


def file_system(path: str) -> Any:
    """The file system behind an address, as others need to be given it to read there."""
    return _system(path)[0]


def arrow_file_system(path: str) -> tuple[Any, Callable[[str], str]]:
    """The file system of a path or address as Arrow wants it, and what gives it a path there."""
    from pyarrow import fs

    if not is_remote(path):
        return fs.LocalFileSystem(), str
    return fs.PyFileSystem(fs.FSSpecHandler(file_system(path))), lambda address: _system(address)[1]


def _as_os_error(function: Callable[P, T]) -> Callable[P, T]:
    """The function, with the errors of its client (no credentials, no connection) as `OSError`."""

    @functools.wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except OSError:
            raise
        except Exception as error:
            raise OSError(str(error) or type(error).__name__) from error

    return called


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
            with os.scandir(self.path) as found:
                return [entry for one in found if one.is_file() and (entry := _entry(one)) is not None]
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


def _entry(one: os.DirEntry[str]) -> Entry | None:
    """None if it has gone since: others write here, and their temporary files come and go."""
    try:
        status = one.stat()
    except FileNotFoundError:
        return None
    return Entry(one.name, status.st_size, status.st_mtime_ns / 1e9)


def _sync(stream: IO[bytes]) -> None:
    """What survives only in a cache would be a name without its rows after a power cut."""
    stream.flush()
    os.fsync(stream.fileno())


@dataclass(frozen=True)
class _Remote:
    """A prefix of keys. Nothing is ever half there, so there are no temporary files."""

    path: str

    def sub(self, name: str) -> "_Remote":
        return _Remote(f"{self.path}/{name}")

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def make(self) -> None:
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
            found = _as_os_error(system.ls)(inner, detail=False)
        except FileNotFoundError:
            return []
        names = [path.rstrip("/").rsplit("/", 1)[-1] for path in found if path.rstrip("/") != inner.rstrip("/")]
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
    """When a store says that an object was written; stores call it by different names, and some don't say."""
    moment = next((info[name] for name in ("LastModified", "mtime", "created", "updated") if info.get(name)), 0.0)
    return float(moment.timestamp() if hasattr(moment, "timestamp") else moment)
