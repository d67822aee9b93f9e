"""Deletes the session folders of private Rays, which Ray leaves in its temporary folder for ever.

A note in the folder names the process that it belongs to. The folder is deleted when that process is done with it, or by the
next of our processes on the same machine if that process has ended. Folders without a note are never touched.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipelines.data.storage.lease import Holder

_NOTE = "assay.json"
_TRIES, _PAUSE_S = 20, 0.1  # for 2 s, in which ending workers still write to their logs


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Mark a Ray's session folder during the block, and delete it at the end, when nothing of that Ray may run any more."""
    with suppress(OSError):
        for note in folder.parent.glob(f"session_*/{_NOTE}"):
            if Holder.read(note.read_bytes()).is_gone:
                _delete(note.parent)
        (folder / _NOTE).write_bytes(Holder.this_process().content)
    try:
        yield
    finally:
        _delete(folder)


def _delete(folder: Path) -> None:
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_PAUSE_S)
