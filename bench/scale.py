"""What the driver does for each input file: how do its seconds, requests and memory grow?

No row is scored. The store is simulated (`_simulated_store`): a million objects of ten rows that exist by name, 30 ms for
each request. For each number of objects, in a process of its own:

- `plan`: list the objects, look at what must be looked at, open the output folder, and write the manifest
- `resume`: the same again, as the second session of that run does
- `tasks`: what a session begins with: the missing ranges, and the read tasks that they are grouped into

`scale`, or `scale OBJECTS ...` for other numbers. `scale parquet OBJECTS ...` for Parquet, which must be opened one by one.
Fits the exponent between the last two: seconds = constant x objects^exponent.
"""

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench._simulated_store import BUCKET, simulated_store

T = TypeVar("T")

SIZES = (10_000, 100_000, 1_000_000)
LATENCY_S = 0.03
STEPS = ("plan", "resume", "tasks")


def main(arguments: Sequence[str]) -> None:
    """`scale`, or `scale OBJECTS ...` for other numbers of objects; `scale parquet OBJECTS ...`."""
    if arguments and arguments[0] == "--session":
        _session(Path(arguments[1]), arguments[2], arguments[3])
        return
    source = arguments[0] if arguments and not arguments[0].isdigit() else "in"
    sizes = tuple(int(argument) for argument in arguments if argument.isdigit()) or SIZES
    measured = [_measure(size, source) for size in sizes]
    for step in STEPS:
        if len(sizes) > 1:
            exponent = math.log(measured[-1][step] / measured[-2][step], sizes[-1] / sizes[-2])
            print(f"{step}: seconds grow with objects to the power of {exponent:.2f}, from {sizes[-2]:,} to {sizes[-1]:,}")


def _measure(objects: int, source: str) -> dict[str, float]:
    """Two sessions on so many objects of a folder of the store; the seconds of each step."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder, simulated_store(objects, LATENCY_S) as environment:
        for session in ("plan", "resume"):
            command = [sys.executable, "-m", "bench", "scale", "--session", folder, session, source]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
            figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            seconds[session], seconds["tasks"] = figures["seconds"], figures["tasks_seconds"]
            print(
                f"{objects:>9,} objects, {session}: {figures['seconds']:,.1f} s, {figures['requests']:,} requests, "
                f"{figures['tasks']:,} read tasks in {figures['tasks_seconds']:.1f} s, peak {figures['peak_mb']:,.0f} MB",
                flush=True,
            )
    return seconds


def _session(folder: Path, name: str, source: str) -> None:
    """Open the run as `score` does, but score nothing; prints the figures as JSON."""
    from pipelines.data.corpus.units import group
    from pipelines.run.prepare import resolve_run
    from pipelines.run.prepare.identity import manifest_of
    from pipelines.run.scoring.score_corpus import Run, open_run
    from pipelines.settings.run_settings import ScoreSettings

    settings = ScoreSettings.model_validate(
        {
            "corpus": {"inputs": [f"s3://{BUCKET}/{source}"]},
            "output": str(folder / "out"),
            "model": {"model": "tiny-attributes"},
            "engine": {"engine": "fake"},
        }
    )

    def opened() -> Run:
        plan = resolve_run.resolve(settings)
        return open_run(settings, plan, manifest_of(plan, settings))

    earlier_requests = _requests()
    run, seconds = _timed(opened)
    tasks, tasks_seconds = _timed(lambda: len(list(group(run.missing(run.state), run.task_bytes))))
    figures = {
        "session": name,
        "seconds": seconds,
        "tasks": tasks,
        "tasks_seconds": tasks_seconds,
        "requests": _requests() - earlier_requests,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


def _timed(function: Callable[[], T]) -> tuple[T, float]:
    started = time.monotonic()
    result = function()
    return result, time.monotonic() - started


def _requests() -> int:
    """The requests to the store since its start."""
    with urllib.request.urlopen(f"{os.environ['AWS_ENDPOINT_URL']}/counts") as answer:
        return int(answer.read())
