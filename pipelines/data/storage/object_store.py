"""Folders and files in a store that fsspec knows (s3://, gs://, hf:// ...).

A file is written with one put, which is complete or absent. Of two writers that `create` the same name the first wins,
where the store supports conditional puts.
"""

import errno
import glob
import io
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from pipelines.data.storage.patience import patiently
from pipelines.data.storage.protocol import LEASE, TEMPORARY, WRITE_BYTES, Entry, FileStatus, Folder, Matches

# Bytes of one request of a reader: at 30 ms a request, a thread reads 130 MB/s.
BLOCK_BYTES = 4 * 2**20
# Connections of a process to a store: as many as files of a corpus that are looked at concurrently.
MOST_CONNECTIONS = 32
# Arguments of a file system's `cat_file`, by protocol: s3fs asks for the size first, to read large objects in pieces.
_IN_ONE_REQUEST = {"s3": {"max_concurrency": 1}}
# What S3 answers a conditional request whose condition isn't met: the status, and the code.
_CONDITION_FAILED = 412, "PreconditionFailed"


class _RangeReader(io.RawIOBase):
    """An object of a known size, read by ranges: every `readinto` is a request.

    fsspec's own file objects ask for the size first, and a failure in the middle of a read isn't waited for there.
    """

    def __init__(self, system: Any, inner: str, size: int) -> None:
        super().__init__()
        self._system = system
        self._inner = inner
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        content = self.read_range(self._position, min(self._position + len(buffer), self._size))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def read_range(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        content = bytes(patiently(self._system.cat_file)(self._inner, start=start, end=end))
        # Stores answer a range beyond the end with what there is, which would read as the end of a complete file.
        if len(content) != end - start:
            raise OSError(errno.EIO, f"{self._inner} is shorter than it was when it was listed ({self._size:,} bytes)")
        return content


def open_read(address: str, size: int | None = None, block_bytes: int = BLOCK_BYTES) -> IO[bytes]:
    """See `files.open_read`. An object that isn't larger than a block is read whole, by one request, when it is opened."""
    system, inner = _resolve(address)
    if size is None:
        size = int(patiently(system.info)(inner)["size"])
    reader = _RangeReader(system, inner, size)
    return io.BufferedReader(reader, block_bytes) if size > block_bytes else io.BytesIO(reader.read_range(0, size))


def file_status(address: str) -> FileStatus:
    """See `files.file_status`."""
    system, inner = _resolve(address)
    return _status(system, patiently(system.info)(inner))


def find(address: str) -> Matches | None:
    """See `files.find`."""
    system, inner = _resolve(address)
    system.invalidate_cache()  # the client of hf:// caches listings whatever it is told
    is_pattern = glob.has_magic(inner)  # but what exists by exactly this name comes first
    with suppress(*([FileNotFoundError] if is_pattern else [])):
        if files := list(files_below(address)):
            return Matches(files)
    if not is_pattern:
        return None
    infos = patiently(system.glob)(inner, detail=True)
    folders = [system.unstrip_protocol(name).rstrip("/") for name, info in infos.items() if info["type"] == "directory"]
    return Matches(files, folders) if (files := _statuses(system, infos)) else None


def files_below(address: str) -> Iterator[FileStatus]:
    """See `files.files_below`."""
    system, inner = _resolve(address)
    is_empty = True
    for info in _listing(system, inner, deep=True):
        is_empty = False
        yield _status(system, info)
    if is_empty:  # there is no folder, and perhaps a file of this name
        yield from _statuses(system, patiently(system.find)(inner, detail=True))


def full_address(address: str) -> str:
    """The address as the store's listings give it, without a slash at the end."""
    system, inner = _resolve(address)
    return str(system.unstrip_protocol(inner)).rstrip("/")


def arrow_file_system(address: str, sizes: Mapping[str, int]) -> tuple[Any, Callable[[str], str]]:
    """See `files.arrow_file_system`."""
    import pyarrow as pa
    from pyarrow import fs

    system = _resolve(address)[0]
    path_and_size = {system._strip_protocol(path): (path, size) for path, size in sizes.items()}

    class Handler(fs.FSSpecHandler):
        # fsspec's handler asks the store twice what an object is before it opens it: two round trips for each part.
        def open_input_file(self, path: str) -> Any:
            if path not in path_and_size:
                return super().open_input_file(path)
            return pa.PythonFile(open_read(*path_and_size[path]), mode="r")

    return fs.PyFileSystem(Handler(system)), lambda address: str(system._strip_protocol(address))


@dataclass(frozen=True)
class StoreFolder:
    """A prefix of keys in a store. A put is atomic, so there are no temporary files."""

    path: str

    def sub(self, name: str) -> "StoreFolder":
        return StoreFolder(f"{self.path}/{name}")

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def make(self) -> None:
        # A prefix needs no creation; the put only shows that it can be written.
        probe = f"{uuid.uuid4().hex}{TEMPORARY}"
        self.replace(probe, b"")
        self.delete(probe)

    def clear(self) -> None:
        pass  # a put that didn't end left nothing

    def entries(self) -> Iterator[Entry]:
        system, inner = _resolve(self.path)
        with suppress(FileNotFoundError):
            for info in _listing(system, inner, deep=False):
                name = info["name"].removeprefix(f"{inner.rstrip('/')}/")
                if info["type"] == "file" and name and name != info["name"]:  # some stores list the folder itself, too
                    yield Entry(name, info["size"], _write_time(info))

    def names(self) -> list[str]:
        system, inner = _resolve(self.path)
        try:
            paths = patiently(system.ls)(inner, detail=False)
        except FileNotFoundError:
            return []
        names = [path.rstrip("/").rsplit("/", 1)[-1] for path in paths if path.rstrip("/") != inner.rstrip("/")]
        return [name for name in names if name != LEASE]

    def is_empty(self) -> bool:
        return not self.names()

    def read(self, name: str) -> bytes:
        system, inner = _resolve(self.file(name))
        return bytes(patiently(system.cat_file)(inner, **_IN_ONE_REQUEST.get(_protocol(system), {})))

    def create(self, name: str, content: bytes) -> bool:
        system, inner = _resolve(self.file(name))

        def put() -> bool:
            try:
                system.pipe_file(inner, content, mode="create")
            except OSError as error:
                # s3fs knows an object that exists by a field which AWS alone has in its answer.
                if not isinstance(error, FileExistsError) and not _is_answer(error, *_CONDITION_FAILED):
                    raise
                # An earlier put, of this loop or of the client's own, may have been done, and only its answer lost.
                return bool(system.cat_file(inner) == content)
            return True

        return patiently(put, writes=True)()

    def replace(self, name: str, content: bytes) -> None:
        system, inner = _resolve(self.file(name))
        patiently(system.pipe_file, writes=True)(inner, content)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        system, inner = _resolve(self.file(name))
        # Through a local file: the object appears with one put at the end, and an exception in the block uploads nothing.
        with tempfile.NamedTemporaryFile(suffix=TEMPORARY, buffering=WRITE_BYTES) as stream:
            yield stream
            stream.flush()
            patiently(system.put_file, writes=True)(stream.name, inner)

    def move(self, name: str, place: Folder) -> None:
        # Stores can't rename. The copy comes first, so that a kill in between leaves the file in both places, never in none.
        system, inner = _resolve(self.file(name))
        patiently(system.cp_file, writes=True)(inner, _resolve(place.file(name))[1])
        self.delete(name)

    def delete(self, name: str) -> None:
        system, inner = _resolve(self.file(name))
        with suppress(FileNotFoundError):
            patiently(system.rm_file, writes=True)(inner)

    def delete_all(self) -> None:
        system, inner = _resolve(self.path)
        with suppress(FileNotFoundError):
            patiently(system.rm, writes=True)(inner, recursive=True)


def _listing(system: Any, inner: str, *, deep: bool) -> Iterator[Mapping[str, Any]]:
    """The entries of fsspec of what is below a prefix; `deep`: of the files at any depth. Raises `OSError`."""
    if _protocol(system) != "s3" or system.version_aware:
        yield from patiently(system.find)(inner, detail=True).values() if deep else patiently(system.ls)(inner, detail=True)
        return
    # A page of 1,000 objects at a time: fsspec's `find` holds 1.2 kB of each until the end, of a million 1.2 GB.
    bucket, _, key = inner.partition("/")
    prefix = f"{key.rstrip('/')}/" if key else ""
    arguments = {**system.req_kw, "Bucket": bucket, "Prefix": prefix, **({} if deep else {"Delimiter": "/"})}
    while True:
        page = patiently(system.call_s3)("list_objects_v2", **arguments)
        for entry in page.get("Contents", ()):
            yield {**entry, "name": f"{bucket}/{entry['Key']}", "size": entry["Size"], "type": "file"}
        if not page.get("IsTruncated"):
            return
        arguments["ContinuationToken"] = page["NextContinuationToken"]


def _statuses(system: Any, infos: Mapping[str, Mapping[str, Any]]) -> list[FileStatus]:
    return [_status(system, info) for info in infos.values() if info["type"] == "file"]


def _status(system: Any, info: Mapping[str, Any]) -> FileStatus:
    path, tag = system.unstrip_protocol(info["name"]), info.get("ETag")
    return FileStatus(path, info["size"], tag, None if tag else int(_write_time(info) * 1e9) or None)


def _write_time(info: Mapping[str, Any]) -> float:
    # The time of writing of an object, in seconds since 1970; 0 for a store that has none.
    # The field's name differs: s3fs says LastModified, the API of GCS updated, fsspec's memory created.
    moment = next((info[name] for name in ("LastModified", "mtime", "created", "updated") if info.get(name)), 0.0)
    return float(moment.timestamp() if hasattr(moment, "timestamp") else moment)


def _resolve(address: str) -> tuple[Any, str]:
    """The fsspec file system of an address, and the path within it. Raises `OSError` without the package that it needs."""
    from fsspec.config import conf
    from fsspec.core import url_to_fs

    options: dict[str, Any] = {"use_listings_cache": False}  # other processes write into the same folders
    if (protocol := address.partition("://")[0]) in ("s3", "s3a"):
        # botocore's default is 10 connections, for which further threads would wait. It and s3fs would each try again.
        configured = conf.get(protocol, {}).get("config_kwargs", {})
        once = {"max_attempts": 0}
        options["config_kwargs"] = {"max_pool_connections": MOST_CONNECTIONS, "retries": once, **configured}
    try:
        system, inner = url_to_fs(address, **options)
    except ImportError as error:
        lacking = 'the package s3fs: pip install "assay[s3]"' if protocol in ("s3", "s3a") else f"a package: {error}"
        raise OSError(f"{address} needs {lacking}") from error
    except ValueError as error:  # unknown protocol
        raise OSError(f"{address}: {error}") from error
    if _protocol(system) == "s3":
        system.retries = 1  # `patiently` tries again, and knows how long a run may wait
    return system, inner


def _protocol(system: Any) -> str:
    return str(system.protocol if isinstance(system.protocol, str) else system.protocol[0])


def _is_answer(error: OSError, status: int, code: str) -> bool:
    # Whether an error is an answer of S3 with a status or, where an upload in pieces says it within its answer, a code.
    answer = getattr(error.__cause__, "response", {})
    return answer.get("ResponseMetadata", {}).get("HTTPStatusCode") == status or answer.get("Error", {}).get("Code") == code
