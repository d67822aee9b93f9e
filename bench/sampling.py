"""Best of n: how often the best of n candidates is right, beside its expectation, and how many an adaptive n saves.

`tiny-policy`, which is right about half of the time, answers held-out questions; `tiny-attributes` judges. One run generates
16 candidates per prompt; the first n of them are those of a run with that n, since seeds depend on the position alone. The
table has the accuracy of the best of the first n, its mean over all subsets of n of the 16, and the share of prompts with
any right candidate among n if each were right with the same probability p: 1 - (1 - p)^n. A second run generates until a
candidate has a reward of `enough`.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any

from bench._answers import Answered, read_answers
from tiny_models.arithmetic import main as write_questions

MOST = 16
SHOWN = (1, 4, 16)
ENOUGH = "6.5"


def main(arguments: Sequence[str]) -> None:
    """`sampling`, or `sampling PROMPTS`."""
    prompts = int(arguments[0]) if arguments else 400
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_questions(["--n", str(prompts), "--out", str(folder / "prompts.jsonl")])
        fixed = _sample(folder, "fixed")
        adaptive = _sample(folder, "adaptive", "--set", f"draw.enough={ENOUGH}")
        rows = read_answers(folder / "fixed")
        share = sum(candidate.right for row in rows for candidate in row) / sum(map(len, rows))
        print(f"{prompts} held-out questions; {share:.1%} of {fixed['drawn']:,} candidates are right")
        print("| n | right | expected of any n of 16 | any right, 1 - (1 - p)^n |")
        print("|---|---|---|---|")
        for n in SHOWN:
            right = sum(best(row[:n]) for row in rows) / len(rows)
            expected = sum(expectation(row, n) for row in rows) / len(rows)
            print(f"| {n} | {right:.1%} | {expected:.1%} | {1 - (1 - share) ** n:.1%} |")
        rows = read_answers(folder / "adaptive")
        print(
            f"Until a reward of {ENOUGH}, at most {MOST}: {sum(map(best, rows)) / len(rows):.1%} right with "
            f"{adaptive['drawn'] / adaptive['possible']:.1%} of the candidates"
        )


def best(candidates: Sequence[Answered]) -> bool:
    """Whether the candidate with the highest reward is right; False if none has a reward."""
    scored = [candidate for candidate in candidates if candidate.reward is not None]
    return bool(scored) and max(scored, key=lambda candidate: candidate.reward or 0.0).right


def expectation(candidates: Sequence[Answered], n: int) -> float:
    """The probability that the best of `n` random candidates out of all is right."""
    # A candidate without a reward is never the best, so it sorts as the lowest.
    ordered = sorted(candidates, key=lambda candidate: (candidate.reward is not None, candidate.reward or 0.0))
    total = comb(len(ordered), n)
    # With `at` candidates below it, a candidate is the best of comb(at, n - 1) of the subsets.
    return sum(
        comb(at, n - 1) / total for at, candidate in enumerate(ordered) if candidate.right and candidate.reward is not None
    )


def _sample(folder: Path, name: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "assay", "sample", str(folder / "prompts.jsonl"), str(folder / name)]
    policy = [
        "--policy",
        "tiny-policy",
        "--set",
        "policy.policy_max_tokens=48",
        "--judge",
        "tiny-attributes",
        "-n",
        str(MOST),
    ]
    process = subprocess.run([*command, *policy, *options, "--json"], check=True, stdout=subprocess.PIPE)
    figures: dict[str, Any] = json.loads(process.stdout)["sampling"]
    return figures
