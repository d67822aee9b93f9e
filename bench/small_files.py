"""What many small files cost: a corpus of files of ten rows, beside the same rows in one file.

Scores both on the fake engine, in turns, each run in processes of its own. Prints the seconds of each run, the parts and the
ratios of the rounds.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

FILES = (1_000, 10_000)
ROWS_EACH = 10
ROUNDS = 3


def main(arguments: Sequence[str]) -> None:
    """`small_files`, or `small_files FILES ...` for other numbers of files."""
    for files in tuple(map(int, arguments)) or FILES:
        with tempfile.TemporaryDirectory() as folder:
            _compare(Path(folder), files)


def _compare(folder: Path, files: int) -> None:
    lines = [_line(number) for number in range(files * ROWS_EACH)]
    single, many = folder / "single.jsonl", folder / "many"
    single.write_text("".join(lines))
    many.mkdir()
    for number in range(files):
        first = number * ROWS_EACH
        (many / f"{number:06}.jsonl").write_text("".join(lines[first : first + ROWS_EACH]))
    ratios = []
    for _ in range(ROUNDS):
        single_s, many_s = _score(single, folder / "of-single"), _score(many, folder / "of-many")
        ratios.append(many_s / single_s)
        parts = len(list((folder / "of-many" / "parts").iterdir()))
        print(f"{files:>7,} files: {many_s:.1f} s, {parts:,} parts; their rows in one file: {single_s:.1f} s", flush=True)
    print(
        f"{files:>7,} files: {min(ratios):.2f}, {statistics.median(ratios):.2f}, {max(ratios):.2f} times (min, median, max)"
    )


def _line(number: int) -> str:
    answer = f"It is {number + 1}. {'word ' * 60}"
    turns = [{"role": "user", "content": f"What is {number} + 1?"}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": turns}) + "\n"


def _score(corpus: Path, output: Path) -> float:
    """The seconds of a run."""
    command = ["score", str(corpus), str(output), "--model", "tiny-attributes", "--engine", "fake", "--overwrite"]
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", "assay", *command], check=True, capture_output=True)
    return time.monotonic() - start
