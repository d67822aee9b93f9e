"""The folder of a private Ray, which Ray leaves in its temporary folder for ever: ours go, and nobody else's.

A note in the folder says which process it is of. It is deleted when that process is done with it, or by the next of ours on
the same machine if that process is gone.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipelines.storage.lease import Holder

_NOTE = "assay.json"
_TRIES, _PAUSE_S = 20, 0.1  # workers that end write their last lines meanwhile


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold the folder of a Ray for the length of the block, at whose end nothing of that Ray runs any more."""
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
