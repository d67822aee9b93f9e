"""Files and folders on this machine, or in any store that fsspec knows (s3://, gs://, hf:// ...)."""

import glob
import io
import os
from collections.abc import Callable
from typing import IO, Any

from pipelines.storage.addresses import absolute, canonical, is_remote
from pipelines.storage.local_files import LocalFolder
from pipelines.storage.object_store import StoreFolder, as_os_error, file_system, files_of, object_status, resolve
from pipelines.storage.protocol import FileStatus, Folder, Matches

_BUFFER = 2**20


def folder(path: str) -> Folder:
    """The folder at a path or address."""
    place = absolute(path)
    return StoreFolder(place) if is_remote(place) else LocalFolder(place)


def error_text(error: OSError) -> str:
    """The message of the operating system or the store, with the file name if there is one."""
    return f"{error.strerror} ({error.filename})" if error.strerror and error.filename else str(error.strerror or error)


def open_read(path: str) -> IO[bytes]:
    """Open a file for reading, as a seekable stream. Raises `OSError`."""
    path = canonical(path)
    if not is_remote(path):
        return open(path, "rb")
    system, inner = resolve(path)
    return io.BufferedReader(as_os_error(system.open)(inner, "rb", block_size=4 * _BUFFER, cache_type="readahead"), _BUFFER)


def file_status(path: str) -> FileStatus:
    """The status of a file. Raises `OSError`."""
    path = canonical(path)
    if not is_remote(path):
        status = os.stat(path)
        return FileStatus(path, status.st_size, None, status.st_mtime_ns)
    system, inner = resolve(path)
    return object_status(system, as_os_error(system.info)(inner))


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
        system, inner = resolve(path)
        return files_of(system, as_os_error(system.find)(inner, detail=True))
    walk = os.walk(path, onerror=_refuse)
    inside = ((where, [*names, *filter(lambda name: _is_link(where, name), folders)]) for where, folders, names in walk)
    return [FileStatus(os.path.join(where, name), 0, None) for where, names in inside for name in names]


def below(path: str, text: str) -> str:
    """The path of a file relative to the folder `text`, for which `find` returned it."""
    place = absolute(text)
    if is_remote(place):
        system, inner = resolve(place)
        place = system.unstrip_protocol(inner).rstrip("/")
    return path[len(place) :].lstrip("/")


def _is_link(where: str, name: str) -> bool:
    return os.path.islink(os.path.join(where, name))


def _refuse(error: OSError) -> None:
    raise error


def _find_remotely(text: str) -> Matches | None:
    system, inner = resolve(text)
    system.invalidate_cache()
    if not glob.has_magic(inner):
        return Matches(files) if (files := files_below(text)) else None
    infos = as_os_error(system.glob)(inner, detail=True)
    folders = [system.unstrip_protocol(name).rstrip("/") for name, info in infos.items() if info["type"] == "directory"]
    return Matches(files, folders) if (files := files_of(system, infos)) else None


def arrow_file_system(path: str) -> tuple[Any, Callable[[str], str]]:
    """The Arrow file system of a path or address, and a function from such paths to paths within it."""
    from pyarrow import fs

    if not is_remote(path):
        return fs.LocalFileSystem(), str
    return fs.PyFileSystem(fs.FSSpecHandler(file_system(path))), lambda address: resolve(address)[1]
