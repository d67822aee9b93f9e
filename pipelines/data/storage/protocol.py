"""What a folder of Assay's promises, on this machine and in a store: `Folder`, and what it returns.

Two guarantees: a file that Assay writes is complete or absent, and of two writers that `create` the same name, the first
wins.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from actors.errors import SourceError

# Bytes written to a file at a time: a system call for every few rows took a twentieth of an export's time.
WRITE_BYTES = 2**20
TEMPORARY = ".tmp"
# Says which process is writing a folder (`pipelines.data.storage.lease`). A folder that holds nothing else is empty, so that
# a run which was killed at its very start leaves none that must be overwritten.
LEASE = "lease.json"
# The advice in every message about a file that changed during a run.
RESTORE = "restore the file and run the same command again to resume; --overwrite starts from scratch"


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


def written_to(path: str) -> SourceError:
    """The error for a file that changed while it was read.

    Its rows may be half old and half new, so none of them is scored.
    """
    return SourceError(f"{path} was written to while it was read; {RESTORE}")


class Folder(Protocol):
    """A folder that Assay writes. Small and picklable.

    Every method raises `OSError` if the storage refuses, and waits for a store that doesn't answer (`patience`).
    """

    @property
    def path(self) -> str: ...  # absolute, as workers run in other folders

    def sub(self, name: str) -> "Folder":
        """A folder in it, which need not exist."""

    def file(self, name: str) -> str: ...

    def make(self) -> None:
        """Create the folder, delete half-written files older than a day, and check that it can be written."""

    def clear(self) -> None:
        """Delete all half-written files, of any age. Only for a caller that is the folder's only writer."""

    def entries(self) -> Iterator[Entry]:
        """The files directly in it, in any order; none if it doesn't exist. Collect them before deleting any.

        Raises `OSError` while they are read.
        """

    def names(self) -> list[str]:
        """The names of files and folders directly in it, without half-written files and the lease; none if it doesn't exist.

        Raises `NotADirectoryError` for a file.
        """

    def is_empty(self) -> bool:
        """Whether it has no `names`. Raises `NotADirectoryError` for a file."""

    def read(self, name: str) -> bytes:
        """Raises `FileNotFoundError` if it doesn't exist."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless it exists; returns whether this call wrote it. Of concurrent calls, one returns True.

        In a store it is also True if the file has this content already: an answer that is lost can't be told from that.
        """

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, replacing an existing one in a single step."""

    def writing(self, name: str) -> Any:
        """A context with a stream, whose content becomes the file `name` at the end; an exception writes nothing."""

    def move(self, name: str, place: "Folder") -> None:
        """Move a file, at any depth, to another folder of this storage, created if need be. A kill may leave it in both."""

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    def delete_all(self) -> None: ...


class Matches(NamedTuple):
    """The files behind a path or a pattern, and the folders that the pattern matches; `folders` is None for a path."""

    files: list[FileStatus]
    folders: list[str] | None = None
