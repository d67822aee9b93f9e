"""The time of a start, step by step: `assay score` of 300 rows with a tiny model, from exec to the first scored part.

Three runs one after another, each in new processes. Prints the steps of the last, and the total seconds of all.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from actors import timeline

RUNS = 3
ROWS = 300


def main(arguments: Sequence[str]) -> None:
    """`start`, or `start MODEL`."""
    model = arguments[0] if arguments else "tiny-attributes"
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.jsonl")
        subprocess.run(
            [sys.executable, "-m", "tiny_models.synthetic", "--rows", str(ROWS), "--out", str(corpus)], check=True
        )
        totals = []
        for number in range(RUNS):
            file, start = Path(folder, f"timeline-{number}"), time.time()
            os.environ[timeline.FILE] = str(file)
            _run("assay", "score", str(corpus), f"{folder}/scored-{number}", "--model", model)
            totals.append(time.time() - start)
            moments = timeline.read(file)
    print(*timeline.lines_of(moments, start), sep="\n")
    first, middle, last = min(totals), statistics.median(totals), max(totals)
    print(f"assay score of {ROWS} rows by {model}: {first:.1f}, {middle:.1f}, {last:.1f} s (min, median, max)")


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", *arguments], check=True, capture_output=True)
