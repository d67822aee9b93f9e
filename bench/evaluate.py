"""Memory of an evaluation: does it grow with the number of items?

Makes scored corpora of 100,000 and 1,000,000 labelled pairs with made-up rewards, evaluates each in a process of its own,
and prints its seconds and the peak of its memory.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from actors.records import Reading, Score
from bench._scored_corpora import RUN
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts

SIZES = (100_000, 1_000_000)
PART_ROWS = 4096
_TEXT = "a sentence of a response, " * 20


def main(arguments: Sequence[str]) -> None:
    """`evaluate`, or `evaluate PAIRS PAIRS` for other sizes."""
    if arguments and arguments[0] == "--one":
        _run_in_process(*arguments[1:])
        return
    sizes = tuple(map(int, arguments)) or SIZES
    with tempfile.TemporaryDirectory() as folder:
        peaks = [_measure(Path(folder), pairs) for pairs in sizes]
    print(f"{sizes[-1]:,} pairs against {sizes[0]:,}: {peaks[-1] - peaks[0]:,.0f} MB more")


def _write(folder: Path, pairs: int) -> None:
    """Write a scored corpus of pairs whose chosen response is ahead in three of four, without scoring anything."""
    columns = Columns(pa.schema([("subset", pa.string())]), ("reward",), "", text=True)
    parts, draws = Parts(str(folder), RUN), np.random.default_rng(pairs)
    parts.create()
    for start in range(0, pairs, PART_ROWS):
        count = min(PART_ROWS, pairs - start)
        rows = [f"pairs.parquet:{number}" for number in range(start, start + count)]
        rewards = np.stack([draws.normal(0.95, 1, count), draws.normal(0, 1, count)], axis=1).astype(float)
        scored = [
            (row, name, f"{number:016x}", Score.scored(Reading(reward, {"reward": reward}), 100))
            for number, (row, pair_rewards) in enumerate(zip(rows, rewards.tolist(), strict=True), start)
            for name, reward in zip(("chosen", "rejected"), pair_rewards, strict=True)
        ]
        repeated = pa.table({"subset": [f"subset {number % 20}" for number in range(start, start + count) for _ in "12"]})
        part = Part(0, Range(start, start + count), Counts(count, 2 * count))
        texts = [f"{name} {number} " + _TEXT for number in range(start, start + count) for name in ("good", "bad")]
        parts.commit(part, columns.table(repeated, scored, texts=texts), {})
    file = InputFile(0, "pairs.parquet", "/pairs.parquet", FileKind.PARQUET, 1, "sha256-of-ends:0", pairs)
    identity = {"model": "made up", "prefix": "", "shape": "preference"}
    Manifest(identity, (file,), columns, {}, run=RUN).write(str(folder))


def _measure(folder: Path, pairs: int) -> float:
    """Evaluate in a process of its own; returns its peak memory in MB."""
    scored = folder / str(pairs)
    _write(scored, pairs)
    command = [sys.executable, "-m", "bench", "evaluate", "--one", str(scored), str(folder / f"{pairs}-results")]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    print(f"{pairs:>9,} pairs: {figures['seconds']:,.0f} s, peak {figures['peak_mb']:,.0f} MB, {figures['value']:.2%}")
    return figures["peak_mb"]


def _run_in_process(scored: str, output: str) -> None:
    """Evaluate once in this process, and print its seconds and peak memory as JSON."""
    from pipelines.results.evaluation.evaluate_corpus import evaluate
    from pipelines.settings.evaluate_settings import EvaluateSettings

    start = time.monotonic()
    (evaluation,) = evaluate(EvaluateSettings(scored=(scored,), output=output))
    seconds, peak_kb = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "peak_mb": peak_kb / 1000, "value": evaluation.figures[0].value}))
