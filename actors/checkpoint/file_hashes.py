"""Hashes of a model's files: every file in its folder counts, but those that no number depends on (`_HARMLESS`).

A file is read whole, and hashed by SHA-256: with a CPU's own instructions for it that is faster than BLAKE2, and the hub's
cache names large files by it already. What is read of a large file is kept in the user's cache (`_kept`).
"""

import fnmatch
import hashlib
import logging
import os
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_HARMLESS = (
    *("*.md", "readme*", "license*", "notice*", "citation*"),
    *("*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.pdf"),
    *("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"),  # vLLM passes over these five, too
)
"""Names, in lower case. Beside them, names that begin with a dot don't count (.gitattributes, .git, .cache)."""
_RESULT = "manifest.json"
"""In a folder inside that of the model: a run's output, which isn't the model's."""
_BLOB = re.compile(r"(?:\.\./)+blobs/([0-9a-f]{64})")
"""A link in the hub's cache to a large file. Its name is the SHA-256 that the hub has for it; small ones have a shorter hash."""
_HASH = re.compile(r"[0-9a-f]{64}")
_KEPT_BYTES = 64 * 2**20
"""Smaller files are read each time, in a twentieth of a second at most."""
_SETTLED_NS = 2 * 10**9
"""The hash of a file that was written less than two seconds ago isn't kept: the next change might have the same time, which
file systems count in steps of up to two seconds."""
_ANNOUNCED_BYTES = 4 * 2**30  # three seconds of one CPU, half a minute of a slow disk


def counted_files(folder: Path) -> dict[str, Path]:
    """The files that count, also those in folders inside, by their names relative to the folder, in order."""
    files, visited = dict[str, Path](), set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        real_place, is_inside = os.path.realpath(place), place != str(folder)
        if real_place in visited or (is_inside and _RESULT in names):
            folders.clear()  # a link may lead back
            continue
        visited.add(real_place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(place, name) for name in names if not _is_harmless(name)):
            if path.is_file():
                files[str(path.relative_to(folder))] = path
    return dict(sorted(files.items()))


def _is_harmless(name: str) -> bool:
    return name.startswith(".") or any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in _HARMLESS)


def hash_files(files: Mapping[str, Path]) -> str:
    """One hash of names and contents, in the order given. Reads what no hash is known of. Raises `OSError`."""
    hashes = {path: _known_hash(path) for path in files.values()}
    unread = [path for path, content_hash in hashes.items() if content_hash is None]
    if (size := sum(path.stat().st_size for path in unread)) >= _ANNOUNCED_BYTES:
        text = "reading %.1f GB of %s, to tell the model from others; the hashes are kept in %s"
        logging.getLogger(__name__).warning(text, size / 1e9, unread[0].parent, _cache())
    with ThreadPoolExecutor() as threads:
        hashes |= zip(unread, threads.map(_read_hash, unread), strict=True)
    digest = hashlib.sha256()
    for name, path in files.items():
        digest.update(os.fsencode(name) + f"\0{hashes[path]}\n".encode())
    return f"sha256:{digest.hexdigest()[:32]}"


def _known_hash(path: Path) -> str | None:
    """The SHA-256 of a file, by the hub's name for it or from the cache; None if it is to be read."""
    status = path.stat()
    # The hub's client makes the link last: a file that changed after that has the name of what it was.
    if path.is_symlink() and status.st_ctime_ns <= path.lstat().st_ctime_ns and (blob := _BLOB.fullmatch(os.readlink(path))):
        return blob[1]
    try:
        kept = _kept(path, status).read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    return kept if _HASH.fullmatch(kept) else None  # of a full disk, half a hash


def _read_hash(path: Path) -> str:
    with path.open("rb") as stream:
        status, now = os.fstat(stream.fileno()), time.time_ns()
        content_hash = hashlib.file_digest(stream, "sha256").hexdigest()
    is_settled = now - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED_NS
    if status.st_size >= _KEPT_BYTES and is_settled and _cache().is_absolute():  # else there is no home
        with suppress(OSError):  # without a place to write it is read again each time
            _cache().mkdir(parents=True, exist_ok=True)
            _kept(path, status).write_text(content_hash, encoding="ascii")
    return content_hash


def _kept(path: Path, status: os.stat_result) -> Path:
    """Where the hash of a file is kept: by its path, size, times and inode. A file whose times were set back has another
    time of change, which no program can set."""
    marks = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return _cache() / hashlib.sha256(os.fsencode(os.path.realpath(path)) + repr(marks).encode()).hexdigest()


def _cache() -> Path:
    """The folder of the hashes, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "assay", "hashes")
