"""Memory and time of comparing two scored corpora: do they stay bounded with a million responses a side?

Makes two scored corpora of random rewards, whose second one is the first with noise, and a prompt and a text for each
response, in parts of other lengths. Compares them by row and by content, with a filter and every move written, each in a
process of its own. Prints the seconds, those of a processor, and the peak of resident memory.
"""

import json
import resource
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

SIZES = (200_000, 1_000_000)
PART_ROWS = (4_000, 5_000)


def main(arguments: Sequence[str]) -> None:
    """`diff`, or `diff ROWS ROWS` for other sizes."""
    if arguments and arguments[0] == "--one":
        _run_in_process(json.loads(arguments[1]))
        return
    for rows in tuple(map(int, arguments)) or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            first, second = str(Path(folder, "first")), str(Path(folder, "second"))
            rewards = np.random.default_rng(rows).normal(size=rows)
            noise = np.random.default_rng(rows + 1).normal(scale=0.1, size=rows)
            _write(first, rewards, PART_ROWS[0])
            _write(second, rewards + noise, PART_ROWS[1])
            for match in ("row", "content"):
                output = str(Path(folder, match))
                choice = {"match": match, "choice": {"top_fraction": 0.1}}
                _measure(rows, {"first": first, "second": second, "output": output, **choice})


def _write(folder: str, rewards: np.ndarray[Any, np.dtype[np.float64]], part_rows: int) -> None:
    def values(numbers: range) -> dict[str, Any]:
        texts = [f"{number}: {'a text of some length ' * 12}" for number in numbers]
        return {
            "prompt": [f"question {number}" for number in numbers],
            "response": texts,
            "response_text": texts,
            "prompt_hash": [f"{number:016x}" for number in numbers],
        }

    carried = pa.schema([("prompt", pa.string()), ("response", pa.string())])
    write_scored(Path(folder), rewards, carried, values, part_rows=part_rows, text=True)


def _measure(rows: int, settings: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "bench", "diff", "--one", json.dumps(settings)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    print(
        f"{rows:>9,} rows a side, by {settings['match']}: {figures['seconds']:,.0f} s, "
        f"{figures['cpu_seconds']:,.0f} s of a processor, peak {figures['peak_mb']:,.0f} MB"
    )
    print(f"          {figures['matched']:,} matched, rank correlation {figures['rank_correlation']:.6f}")


def _run_in_process(settings: dict[str, Any]) -> None:
    """Compare once in this process, and print its seconds and peak memory as JSON."""
    from pipelines.results.comparison.diff_folders import diff
    from pipelines.settings.diff_settings import DiffSettings

    start = time.monotonic()
    differences = diff(DiffSettings(**settings, show=0))  # without texts: hashes of prompts are made up
    figures = {
        "seconds": time.monotonic() - start,
        "cpu_seconds": time.process_time(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "matched": differences.matched,
        "rank_correlation": differences.numbers[0].rank_correlation,
    }
    print(json.dumps(figures))
