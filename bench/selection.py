"""Memory of choosing the best of a whole corpus: does it grow with the number of rewards?

Makes scored corpora of 200,000 and 1,000,000 grades from 1 to 5 (nearly all are ties), four to a prompt, and chooses the
best tenth, the best quantile and the best of each prompt, each in a process of its own. Prints the peak of the unique set
size, summed over the process and Ray's workers, and the ratio of both sizes.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench._scored_corpora import write_scored
from bench._watch import Watch, start_ray

SIZES = (200_000, 1_000_000)
PART_ROWS = 400
CHOICES: dict[str, dict[str, Any]] = {
    "--top-fraction 0.1": {"top_fraction": 0.1},
    "--quantile 0.9": {"quantile": 0.9},
    "--top-k 1 --per prompt": {"top_k": 1},
}


def main(arguments: Sequence[str]) -> None:
    """`selection`, or `selection ROWS ROWS` for other sizes."""
    if arguments and arguments[0] == "--one":
        _run_in_process(json.loads(arguments[1]))
        return
    sizes = tuple(map(int, arguments)) or SIZES
    with tempfile.TemporaryDirectory() as folder:
        for rows in sizes:
            _write(Path(folder, str(rows)), rows)
        for name, choice in CHOICES.items():
            peaks = [_measure(Path(folder), rows, name, choice) for rows in sizes]
            print(f"{name}: {sizes[-1]:,} rows against {sizes[0]:,}: {peaks[-1] / peaks[0]:.2f} times")


def _write(folder: Path, rows: int) -> None:
    grades = np.random.default_rng(rows).integers(1, 6, rows).astype(float)
    write_scored(
        folder,
        grades,
        pa.schema([("n", pa.int64())]),
        lambda numbers: {"n": list(numbers), "prompt_hash": [f"{number // 4:016x}" for number in numbers]},
        part_rows=PART_ROWS,
    )


def _measure(folder: Path, rows: int, name: str, choice: dict[str, Any]) -> float:
    """Run a choice in a process of its own; returns its peak memory in MB."""
    settings = {"scored": str(folder / str(rows)), "output": str(folder / f"{rows}-{len(name)}"), **choice}
    command = [sys.executable, "-m", "bench", "selection", "--one", json.dumps(settings)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    print(
        f"{rows:>9,} rows, {name}: {figures['seconds']:,.0f} s, peak {figures['peak_mb']:,.0f} MB, {figures['kept']:,} kept"
    )
    print("          at the peak, in MB:", "; ".join(f"{role} {sizes}" for role, sizes in figures["at_peak"].items()))
    return float(figures["peak_mb"])


def _run_in_process(settings: dict[str, Any]) -> None:
    """Filter once in this process, and print its seconds and peak memory as JSON."""
    import ray

    from pipelines.results.filtering.filter_corpus import keep
    from pipelines.settings.filter_settings import FilterSettings

    start_ray()
    watch = Watch()
    start = time.monotonic()
    summary = keep(FilterSettings(**settings))
    seconds = time.monotonic() - start
    watch.stop()
    ray.shutdown()
    figures = {"seconds": seconds, "peak_mb": watch.peak_mb, "at_peak": watch.at_peak, "kept": summary.kept}
    print(json.dumps(figures))
