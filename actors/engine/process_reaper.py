"""Kills an engine's processes when the process that started them has ended, in whatever way.

vLLM's processes don't end by themselves: after the `os._exit`, or the SIGKILL, of their parent they wait for ever and hold
the GPU that the next engine needs. So a helper process reads a pipe whose other end only the parent has. When that end
closes, it kills every process with the parent's mark and removes their shared memory: neither vLLM would, nor Python's
resource tracker, which is killed with them. A process started by exec has the mark in its environment; a forked process,
whose later environment /proc doesn't show, has it as the name of an open memfd. Linux only; elsewhere it does nothing.
"""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

VARIABLE = "ASSAY_TETHER"
# Shared memory as Python and vLLM name it. Other files in /dev/shm, such as a model's weights, are the user's.
_SHARED = re.compile(r"/dev/shm/(psm_[0-9a-f]+|[^/\s]+-cpushm_\d+)$")


class ProcessReaper:
    """Kills the processes started with its `variables`, and theirs, when this process ends or releases them."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        # vLLM's processes set their title, which without SPT_NOENV is written over the environment that /proc shows.
        self.variables = {VARIABLE: self._mark, "SPT_NOENV": "1"}
        # A session of its own: a Ctrl-C in the terminal isn't for the helper. Without site-packages it starts in 20 ms.
        self._helper = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, f"{VARIABLE}={self._mark}"],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def note(self) -> None:
        """Tell the helper the shared memory of the started processes: at the end they may be gone, and /proc with them."""
        assert self._helper.stdin is not None
        with suppress(BrokenPipeError):
            for path in sorted(_find_shared_memory(os.fsencode(f"{VARIABLE}={self._mark}"))):
                print(path, file=self._helper.stdin, flush=True)

    def release(self) -> None:
        """Kill the processes that remain. Safe to call twice."""
        self._helper.communicate()  # closes the pipe, and waits for the helper's end


def mark_this_process() -> None:
    """In a forked process: show the mark of its environment in /proc, as the name of an open file."""
    if mark := os.environ.get(VARIABLE):
        os.memfd_create(f"{VARIABLE}={mark}")  # open until the process ends


def _find_marked(mark: bytes) -> Iterator[Path]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone since, or another user's
            if mark in (entry / "environ").read_bytes().split(b"\0") or _holds_file(entry, b"/memfd:" + mark):
                yield entry


def _holds_file(entry: Path, name: bytes) -> bool:
    for file in os.listdir(entry / "fd"):
        with suppress(OSError):  # closed since
            if os.readlink(os.fsencode(entry / "fd" / file)).startswith(name):
                return True
    return False


def _find_shared_memory(mark: bytes) -> set[str]:
    paths: set[str] = set()
    for entry in _find_marked(mark):
        with suppress(OSError):
            lines = (entry / "maps").read_text(errors="replace").splitlines()
            paths |= {match[0] for line in lines if (match := _SHARED.search(line))}
    return paths


def _kill_marked(mark: bytes) -> bool:
    killed = False
    for entry in _find_marked(mark):
        with suppress(OSError):
            os.kill(int(entry.name), signal.SIGKILL)
            killed = True
    return killed


def _wait_and_kill(mark: bytes) -> None:
    paths = set(sys.stdin.read().splitlines()) | _find_shared_memory(mark)
    while _kill_marked(mark):  # again: one of them may have been starting another
        time.sleep(0.05)
    for path in paths:
        Path(path).unlink(missing_ok=True)


if __name__ == "__main__":
    _wait_and_kill(os.fsencode(sys.argv[1]))
