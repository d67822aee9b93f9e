"""Votes that stop: how many of a judge's 32 votes settle a verdict, and whether it is that of all of them.

For each aggregate and temperature, `tiny-genrm` (real vLLM) compares right answers with wrong ones twice: with all votes,
and with `--stop`. A verdict is which of the two has the higher reward.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pipelines.folders.run_folder.parts import Parts, read_table

VOTES = 32
TEMPERATURES = ("0.6", "1.5")


def main(arguments: Sequence[str]) -> None:
    """`votes`, or `votes PAIRS`."""
    pairs = int(arguments[0]) if arguments else 200
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_pairs(folder / "pairs.jsonl", pairs)
        print("| aggregate | temperature | votes taken | same verdict | changed | time |")
        print("|---|---|---|---|---|---|")
        for aggregate in ("mean", "win-rate"):
            for temperature in TEMPERATURES:
                options = ["--set", f"judge.aggregate={aggregate}", "--set", f"judge.temperature={temperature}"]
                name = f"{aggregate}-{temperature}"
                plain_s = _score(folder, name, *options)
                stopping_s = _score(folder, f"{name}-stop", "--stop", *options)
                plain, stopping = verdicts(folder / name), verdicts(folder / f"{name}-stop")
                both = plain.keys() & stopping.keys()
                taken = sum(stopping[row][1] for row in both) / VOTES / len(both)
                changed = sum(plain[row][0] != stopping[row][0] for row in both)
                same = 1 - changed / len(both)
                print(f"| {aggregate} | {temperature} | {taken:.2f} | {same:.1%} | {changed} | {stopping_s / plain_s:.2f} |")


def write_pairs(path: Path, pairs: int) -> None:
    """Sums of two digits with a right answer and a wrong one, all different, as the tiny judge has learned them."""
    questions = [(first, second, wrong) for first in range(1, 10) for second in range(1, 10) for wrong in (-1, 1, 2)]
    rows = (
        {"prompt": f"What is {first} + {second}?", "chosen": str(first + second), "rejected": str(first + second + wrong)}
        for first, second, wrong in random.Random(0).sample(questions, pairs)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def verdicts(output: Path) -> dict[int, tuple[int, float]]:
    """For each scored row which response has the higher reward (1, -1, 0), and how many votes were taken."""
    parts = Parts(str(output))
    tables = [read_table(parts.path(part)) for part in parts.listing()]
    rewards: dict[int, dict[str, tuple[float, float]]] = {}
    for row in (row for table in tables for row in table.to_pylist() if row["reward"] is not None):
        taken = row["scores"].get("votes_taken") or float(VOTES)
        rewards.setdefault(row["row"], {})[row["response_name"]] = (row["reward"], taken)
    return {
        row: ((of["chosen"][0] > of["rejected"][0]) - (of["chosen"][0] < of["rejected"][0]), of["chosen"][1])
        for row, of in rewards.items()
        if len(of) == 2
    }


def _score(folder: Path, name: str, *options: str) -> float:
    """Seconds that a run takes, engine start included."""
    command = [sys.executable, "-m", "assay", "score", str(folder / "pairs.jsonl"), str(folder / name)]
    model = ["--model", "tiny-genrm", "--votes", str(VOTES)]
    start = time.perf_counter()
    subprocess.run([*command, *model, *options, "--json"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start
