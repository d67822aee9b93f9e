"""What only a GPU shows, in steps of a few minutes, for a card that is there for a quarter of an hour.

`card STEP`, or `card STEP SIZE`. Models have made-up weights, nothing is fetched, and every engine is a process of its own
(`hosts`). Without a GPU each step runs at the size `tiny`, to show that the step itself works.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.engine.fork_server import SWITCH, share
from bench.card.drift import compare_bytes, compare_families
from bench.card.endpoint import measure_endpoint
from bench.card.hosts import on_gpu, print_versions
from bench.card.parity import compare_precisions, run_parity
from bench.card.rates import compare_fp8, measure_short
from bench.card.sharing import measure_sharing
from bench.card.start import measure_start
from bench.card.votes import measure_votes

STEPS: dict[str, tuple[Callable[[str, Path], None], str]] = {
    "bytes": (compare_bytes, "8b"),
    "families": (compare_families, "tiny"),
    "fp8": (compare_fp8, "8b"),
    "short": (measure_short, "0.6b"),
    "endpoint": (measure_endpoint, "0.6b"),
    "votes": (measure_votes, "8b"),
    "share": (measure_sharing, "0.6b"),
    "start": (measure_start, "8b"),
    "parity": (run_parity, "tiny"),
    "precisions": (compare_precisions, "tiny"),
}
"""Each step with the size that it has on a card, the most valuable one first."""


def main(arguments: Sequence[str]) -> None:
    """`card STEP`, or `card STEP SIZE` with a name of `bench.speed.SIZES`."""
    if not arguments or arguments[0] not in STEPS:
        sys.exit(f"usage: python -m bench card STEP [SIZE], where STEP is one of: {', '.join(STEPS)}")
    step, size = STEPS[arguments[0]]
    size = arguments[1] if len(arguments) > 1 else size if on_gpu() else "tiny"
    root = "/dev/shm" if shutil.disk_usage("/dev/shm").free > 1 << 35 else None  # 16 GB of weights are written in seconds
    print_versions()
    os.environ[SWITCH] = share()  # on a CPU one process imports vLLM for all engines
    with tempfile.TemporaryDirectory(dir=root) as place:
        start = time.monotonic()
        step(size, Path(place))
        print(f"{arguments[0]} {size}: {time.monotonic() - start:.0f} s", flush=True)
