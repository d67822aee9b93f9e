"""Paths of this machine and addresses of stores: which is which, and which of them lead to the same place."""

import os
from pathlib import Path

from actors.errors import SettingsError

# Ray unpacks the working folder of a submitted job here, and deletes it when it needs the room.
_JOBS = f"{os.sep}runtime_resources{os.sep}working_dir_files{os.sep}"


def is_remote(path: str) -> bool:
    """Whether it is the address of a store (s3://, gs://, hf:// ...), and not a path of this machine.

    `file://` and `local://` count as remote until `canonical` has made paths of them.
    """
    return "://" in path


def absolute(path: str) -> str:
    """The absolute path, which every worker can use: a worker's current folder may differ from the driver's.

    Equivalent addresses are unified: `s3a://` becomes `s3://`, and `file://` a path of this machine. Raises `SettingsError`
    for a path in the folder that Ray unpacks for a job, because Ray deletes that folder and the results in it.
    """
    path = canonical(path)
    if is_remote(path):
        return path.rstrip("/")
    place = os.path.abspath(Path(path).expanduser())
    if _JOBS in place:
        raise SettingsError(
            f"{path} lies in the folder that Ray unpacked for this job, and deletes when it likes; give an absolute path "
            "that every node sees, or an address such as s3://bucket/folder"
        )
    return place


# Hadoop's and fsspec's second names. A folder must have one address, or two runs would both hold "its" lease.
_ALIASES = {"s3a://": "s3://", "gcs://": "gs://", "file://": "", "local://": ""}


def canonical(path: str) -> str:
    """The path, or the address by the first of its protocol's names (`s3a` -> `s3`)."""
    alias = next((alias for alias in _ALIASES if path.startswith(alias)), "")
    return _ALIASES.get(alias, "") + path.removeprefix(alias)


def real(path: str) -> str:
    """The path with symbolic links resolved, equal for equal places.

    An address stays as it is: stores have no links.
    """
    path = canonical(path)
    return path if is_remote(path) else os.path.realpath(path)


def is_in_job() -> bool:
    """Whether this runs in a folder that Ray unpacked for a job, as under `ray job submit --working-dir`."""
    return _JOBS in os.getcwd()


def overlap(path: str, other: str) -> bool:
    """Whether two folders are the same, or one is inside the other."""
    path, other = canonical(path), canonical(other)
    if is_remote(path) or is_remote(other):
        # With a trailing slash, so that `s3://b/run2` isn't inside `s3://b/run`.
        first, second = (absolute(address) + "/" for address in (path, other))
        return first.startswith(second) or second.startswith(first)
    resolved, other_resolved = Path(path).resolve(), Path(other).resolve()
    return resolved.is_relative_to(other_resolved) or other_resolved.is_relative_to(resolved)
