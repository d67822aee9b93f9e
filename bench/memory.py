"""Memory and rows per second of the main job on the fake engine: does memory grow with the corpus?

Scores 200,000 and then 1,000,000 short conversations, each in a process of its own, with Ray's object store capped at
300 MB. Prints the peak of the unique set size, summed over the driver and all of Ray's workers, and the ratio of both.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench._watch import Watch, start_ray

SIZES = (200_000, 1_000_000)


def main(arguments: Sequence[str]) -> None:
    """`memory`, or `memory ROWS ROWS` for other sizes."""
    if arguments and arguments[0] == "--one":
        _run_in_process(Path(arguments[1]), Path(arguments[2]))
        return
    sizes = tuple(map(int, arguments)) or SIZES
    with tempfile.TemporaryDirectory() as folder:
        figures = [_measure(Path(folder), rows) for rows in sizes]
    small, large = figures[0], figures[-1]
    print(f"peak memory, {sizes[-1]:,} rows against {sizes[0]:,}: {large['peak_mb'] / small['peak_mb']:.2f} times")


def _measure(folder: Path, rows: int) -> dict[str, Any]:
    corpus = folder / f"{rows}.jsonl"
    with corpus.open("w") as stream:
        for number in range(rows):
            turns = [("user", f"What is {number} + {number % 97}?"), ("assistant", f"It is {number + number % 97}.")]
            row = {"id": number, "messages": [{"role": role, "content": content} for role, content in turns]}
            stream.write(json.dumps(row) + "\n")
    command = [sys.executable, "-m", "bench", "memory", "--one", str(corpus), str(folder / f"scored-{rows}")]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    rates = "min {rows_per_s_min:,.0f}, median {rows_per_s:,.0f}, max {rows_per_s_max:,.0f}".format(**figures)
    print(f"{rows:>9,} rows in {figures['seconds']:,.0f} s, peak {figures['peak_mb']:,.0f} MB; rows/s over 10 s: {rates}")
    print("          at the peak, in MB:", "; ".join(f"{role} {sizes}" for role, sizes in figures["at_peak"].items()))
    return figures


def _run_in_process(corpus: Path, output: Path) -> None:
    """Score one corpus in this process, and print its seconds and peak memory as JSON."""
    import ray

    from assay import score

    start_ray()
    watch = _Progress(output)
    start = time.monotonic()
    summary = score(str(corpus), str(output), model="tiny-attributes", engine="fake")
    seconds = time.monotonic() - start
    watch.stop()
    ray.shutdown()
    assert summary.scored == summary.rows
    print(json.dumps({"seconds": seconds, "peak_mb": watch.peak_mb, "at_peak": watch.at_peak, **watch.rates()}))


class _Progress(Watch):
    """Samples the rows committed too."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._done: list[tuple[float, int]] = []
        super().__init__()

    def rates(self) -> dict[str, float]:
        """Minimum, median and maximum of rows per second over windows of ten samples, from the first part on."""
        busy = [sample for sample in self._done if sample[1]] or [(0.0, 0), (1.0, 0)]
        windows = list(zip(busy[:-10:10], busy[10::10], strict=False)) or [(busy[0], busy[-1])]
        rates = [(rows - before) / max(at - since, 1e-9) for (since, before), (at, rows) in windows]
        names = ("rows_per_s_min", "rows_per_s", "rows_per_s_max")
        return dict(zip(names, (min(rates), statistics.median(rates), max(rates)), strict=True))

    def look(self) -> None:
        names = [path.stem.split("-") for path in (self._output / "parts").glob("*.parquet")]
        self._done.append((time.monotonic(), sum(int(pieces[3]) for pieces in names)))
