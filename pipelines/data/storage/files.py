"""Files and folders behind a path or an address: what callers use, wherever the bytes are.

`local_files` has them on this machine, `object_store` in any store that fsspec knows (s3://, gs://, hf:// ...).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from pipelines.data.storage import local_files, object_store
from pipelines.data.storage.addresses import absolute, canonical, is_remote
from pipelines.data.storage.local_files import LocalFolder
from pipelines.data.storage.object_store import BLOCK_BYTES, StoreFolder
from pipelines.data.storage.protocol import FileStatus, Folder, Matches


def folder(path: str) -> Folder:
    """The folder at a path or address, which need not exist.

    Raises `SettingsError` for a path in the folder of a job (`addresses.absolute`).
    """
    place = absolute(path)
    return StoreFolder(place) if is_remote(place) else LocalFolder(place)


def is_folder(path: str) -> bool:
    """Whether there is a folder at a path of this machine, even an empty one; in a store, only one that holds something."""
    place = absolute(path)
    return bool(folder(place).names()) if is_remote(place) else os.path.isdir(place)


def open_read(path: str, size: int | None = None, block_bytes: int = BLOCK_BYTES) -> IO[bytes]:
    """Open a file for reading, as a seekable stream. Raises `OSError`.

    In a store, opening is one request unless the size in bytes is given; then each `block_bytes` that are read are one.
    """
    path = canonical(path)
    return object_store.open_read(path, size, block_bytes) if is_remote(path) else open(path, "rb")


def file_status(path: str) -> FileStatus:
    """The status of a file.

    Raises `FileNotFoundError` if it doesn't exist, and another `OSError` if the storage doesn't tell.
    """
    path = canonical(path)
    return object_store.file_status(path) if is_remote(path) else local_files.file_status(path)


def find(text: str) -> Matches | None:
    """The file at a path, all files below a folder, or those that a pattern (* ? [] **) matches; None if there is no file.

    An existing file or folder of exactly this name is never read as a pattern, nor are the existing folders that a pattern
    begins with. Raises `OSError`, also for a local folder that can't be listed, which must not count as empty.
    """
    path = absolute(text)
    return object_store.find(path) if is_remote(path) else local_files.find(path)


def files_below(path: str) -> Iterator[FileStatus]:
    """All files below a folder, at any depth; its name is never read as a pattern. Raises `OSError` while they are read.

    In a store, the path of a file gives the file. On this machine symbolic links to folders aren't followed (they may form
    cycles), and count as files.
    """
    return object_store.files_below(path) if is_remote(path) else local_files.files_below(path)


def below(path: str, text: str) -> str:
    """The path of a file relative to the folder `text`, for which `find` returned it.

    It begins without a slash, also where the folder was given with one.
    """
    place = absolute(text)
    if is_remote(place):  # listings may spell a bucket in another way than the user did
        place = object_store.full_address(place)
    return path[len(place) :].lstrip("/")


def arrow_file_system(path: str, sizes: Mapping[str, int]) -> tuple[Any, Callable[[str], str]]:
    """The Arrow file system of a path or address, and a function from such paths to paths within it.

    `sizes` are those of the files to be read, in bytes by path: in a store, they spare a request for each file opened.
    """
    from pyarrow import fs

    return object_store.arrow_file_system(path, sizes) if is_remote(path) else (fs.LocalFileSystem(), str)


def error_text(error: OSError) -> str:
    """The message of the operating system or the store, with the file name if there is one.

    Errors of stores have no `strerror`: of these it is the whole text.
    """
    return f"{error.strerror} ({error.filename})" if error.strerror and error.filename else str(error.strerror or error)
