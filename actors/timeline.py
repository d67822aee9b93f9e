"""The timeline of a start, for profiling: when each step begins, from all processes that take part, in one file."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# The environment variable that names the file. Without it nothing is written.
FILE = "ASSAY_TIMELINE"


class Moment(NamedTuple):
    """A step that begins: at a Unix time, in a process."""

    at: float
    process: int
    step: str


def mark(step: str) -> None:
    """Append that a step begins now, if `ASSAY_TIMELINE` names a file.

    Processes share the file: a line of O_APPEND is written as a whole.
    """
    if path := os.environ.get(FILE):
        with open(path, "a", encoding="utf-8") as file:  # one write, which the system appends as a whole
            file.write(f"{time.time()} {os.getpid()} {step}\n")


def read(path: Path) -> list[Moment]:
    """All moments, in the order of time.

    Processes of one machine have one clock; on several, its skew is in the times.
    """
    lines = [line.split(" ", 2) for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted(Moment(float(seconds), int(process), step) for seconds, process, step in lines)


def lines_of(moments: Sequence[Moment], start: float) -> list[str]:
    """A line for each moment: seconds since `start`, the process by its number in the order of appearance, the step."""
    processes = list(dict.fromkeys(moment.process for moment in moments))
    return [
        f"{seconds - start:6.2f} s  process {processes.index(process) + 1}  {step}" for seconds, process, step in moments
    ]
