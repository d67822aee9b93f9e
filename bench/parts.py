"""What the driver does for each part of a finished run: how do its seconds and memory grow?

Runs of 1,000, 10,000 and 100,000 parts of ten rows each, on a local disk. Each step in a process of its own:

- `open`: the listing of the parts, and the audit that they tile the corpus, as each command begins that reads a run
- `repair`: the listing, the look for parts that overlap, and the mark that tells the next session whether one has changed
- `summary`: the closing summary, after `open`

`parts`, or `parts PARTS ...` for other numbers. Fits the exponent between the last two: seconds = constant x parts^exponent.
"""

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench._scored_corpora import write_scored

SIZES = (1_000, 10_000, 100_000)
PART_ROWS = 10


def main(arguments: Sequence[str]) -> None:
    """`parts`, or `parts PARTS ...` for other numbers of parts."""
    if arguments and arguments[0] == "--step":
        _run_step(arguments[1], arguments[2])
        return
    sizes = tuple(map(int, arguments)) or SIZES
    measured = []
    for parts in sizes:
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder), parts)
            measured.append({name: _measure(folder, parts, name) for name in STEPS})
    if len(sizes) > 1:
        for name in STEPS:
            earlier, last = (figures[name] for figures in measured[-2:])
            exponent = math.log(last["seconds"] / earlier["seconds"], sizes[-1] / sizes[-2])
            memory = last["peak_mb"] / measured[0][name]["peak_mb"]
            print(
                f"{name}: seconds grow with parts to the power of {exponent:.2f}, from {sizes[-2]:,} to {sizes[-1]:,}; "
                f"memory of {sizes[-1]:,} is {memory:.2f} times that of {sizes[0]:,}"
            )


def _write(folder: Path, parts: int) -> None:
    write_scored(
        folder,
        np.random.default_rng(parts).normal(size=parts * PART_ROWS),
        pa.schema([("prompt", pa.string())]),
        lambda numbers: {
            "prompt": [str(number) for number in numbers],
            "prompt_hash": [f"{number:016x}" for number in numbers],
        },
        part_rows=PART_ROWS,
    )


def _measure(folder: str, parts: int, name: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench", "parts", "--step", name, folder]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    print(f"{parts:>7,} parts, {name}: {figures['seconds']:,.1f} s, peak {figures['peak_mb']:,.0f} MB", flush=True)
    return figures


def _run_step(name: str, folder: str) -> None:
    """Do one step in this process; prints its seconds, without imports, and the peak memory of the process as JSON."""
    step = STEPS[name](folder)
    started = time.monotonic()
    step()
    seconds = time.monotonic() - started
    print(json.dumps({"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def _open(folder: str) -> Callable[[], Any]:
    from pipelines.folders.scored_corpus.scored_folder import open_scored

    return lambda: open_scored(folder, "report")


def _repair(folder: str) -> Callable[[], Any]:
    from pipelines.folders.run_folder.parts import Parts

    parts = Parts(folder)
    return lambda: parts.repair([], print).mark()


def _summary(folder: str) -> Callable[[], Any]:
    from pipelines.folders.scored_corpus.scored_folder import open_scored
    from pipelines.folders.scored_corpus.summary import summarise

    def summarise_opened() -> None:
        corpus = open_scored(folder, "report")
        summarise(corpus.responses.parts, corpus.manifest.columns, corpus.counts)

    return summarise_opened


STEPS = {"open": _open, "repair": _repair, "summary": _summary}
