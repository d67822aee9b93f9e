"""What only a GPU shows, in steps of a few minutes, for a card that is there for a quarter of an hour.

`card STEP`, or `card STEP SIZE`. Models have made-up weights, nothing is fetched, and every engine is a process of its own
(`hosts`). Without a GPU each step runs at the size `tiny`, to show that the step itself works.
"""

import importlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.card.hosts import on_gpu, print_versions

STEPS = {
    "bytes": ("drift.compare_bytes", "8b"),
    "families": ("drift.compare_families", "tiny"),
    "fp8": ("rates.compare_fp8", "8b"),
    "short": ("rates.measure_short", "0.6b"),
    "endpoint": ("endpoint.measure_endpoint", "0.6b"),
    "votes": ("votes.measure_votes", "8b"),
    "share": ("sharing.measure_sharing", "0.6b"),
    "start": ("start.measure_start", "8b"),
    "parity": ("parity.run_parity", "tiny"),
    "precisions": ("parity.compare_precisions", "tiny"),
}
"""Each step's module and function here, which is imported when it runs, with the size that it has on a card; the most
valuable one first."""


def main(arguments: Sequence[str]) -> None:
    """`card STEP`, or `card STEP SIZE` with a name of `bench.speed.SIZES`."""
    if not arguments or arguments[0] not in STEPS:
        sys.exit(f"usage: python -m bench card STEP [SIZE], where STEP is one of: {', '.join(STEPS)}")
    place_of_step, size = STEPS[arguments[0]]
    module, _, function = place_of_step.partition(".")
    step: Callable[[str, Path], None] = getattr(importlib.import_module(f"bench.card.{module}"), function)
    size = arguments[1] if len(arguments) > 1 else size if on_gpu() else "tiny"
    root = "/dev/shm" if shutil.disk_usage("/dev/shm").free > 1 << 35 else None  # 16 GB of weights are written in seconds
    print_versions()
    with tempfile.TemporaryDirectory(dir=root) as place:
        start = time.monotonic()
        step(size, Path(place))
        print(f"{arguments[0]} {size}: {time.monotonic() - start:.0f} s", flush=True)
