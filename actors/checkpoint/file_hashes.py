"""Hashes of a model's files: every file in its folder counts, but those that no number depends on (`_HARMLESS`).

Files are read whole, by SHA-256, for which CPUs have instructions (1.4 GB/s a core; BLAKE2 1.1).
"""

import glob
import hashlib
import logging
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

# Names in lower case. Beside them, what begins with a dot doesn't count (.gitattributes, .git, .cache).
_HARMLESS = (
    *("*.md", "readme*", "license*", "notice*", "citation*"),
    *("*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.pdf"),
    *("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"),  # vLLM passes over these five, too
)
# With this the `manifest.json` of a scored folder begins. Other programs have files of that name, too.
_RUN_MARK = b'{\n  "assay": '
_LARGE_BYTES = 2**28  # smaller files are read each time, in a fifth of a second at most
_SETTLED_NS = 2 * 10**9  # file systems count time in steps of up to two seconds: a younger file may yet change unseen


def counted_files(folder: Path) -> list[str]:
    """The names of the files that count, also of those in folders inside, relative to the folder. Raises `OSError`."""
    names = [name for name in glob.glob("**", root_dir=folder, recursive=True) if folder.joinpath(name).is_file()]
    manifests = (name for name in names if name.endswith("/manifest.json"))
    runs = (name for name in manifests if folder.joinpath(name).read_bytes().startswith(_RUN_MARK))
    results = tuple(name.removesuffix("manifest.json") for name in runs)
    harmless = {name for name in names for kind in _HARMLESS if fnmatch(os.path.basename(name).lower(), kind)}
    return sorted(name for name in names if name not in harmless and not name.startswith(results))


def content_hashes(files: Iterable[Path]) -> list[str]:
    """The SHA-256 of each file. Those of large ones are kept in the user's cache. Raises `OSError`.

    Looked up by path, size, inode and times, so that a model of 100 GB is read once and not at each start.
    """
    with ThreadPoolExecutor() as threads:
        return list(threads.map(_content_hash, files))


def _content_hash(path: Path) -> str:
    status, now = path.stat(), time.time_ns()
    # Programs can set the first time back, and not the second.
    marks = (os.path.realpath(path), status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    key = hashlib.sha256(repr(marks).encode()).hexdigest()
    kept = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "assay", "hashes", key)
    with suppress(OSError, ValueError):
        if len(content_hash := kept.read_text(encoding="ascii")) == len(key):  # a full disk leaves half of one
            return content_hash
    if is_large := status.st_size >= _LARGE_BYTES:
        logging.getLogger(__name__).warning("hashing %s (%.1f GB), to know the model again", path, status.st_size / 1e9)
    with path.open("rb") as stream:
        content_hash = hashlib.file_digest(stream, "sha256").hexdigest()
    if is_large and now - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED_NS:
        with suppress(OSError):  # without a place for it, the file is read again each time
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(content_hash, encoding="ascii")
    return content_hash
