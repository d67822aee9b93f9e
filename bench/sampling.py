"""Best of n: how often the best of n candidates is right, against what theory says, and what an adaptive n saves.

`tiny-policy`, which is right about half of the time, answers held-out questions; `tiny-attributes` judges. One run draws 16
candidates of each prompt, the first n of which are what a run with that n draws. Beside the accuracy of the best of the
first n stand its expectation over all choices of n of the 16, which is what the judge's ranking of them makes of it, and the
share of prompts with any right candidate among n if each were right with the same probability: 1 - (1 - p)^n. A second run
draws until a candidate has a reward that is `enough`.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any

from bench._answers import Answered, answered
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
        fixed = _sampled(folder, "fixed")
        adaptive = _sampled(folder, "adaptive", "--enough", ENOUGH)
        rows = answered(folder / "fixed")
        share = sum(one.right for own in rows for one in own) / sum(map(len, rows))
        print(f"{prompts} held-out questions; {share:.1%} of {fixed['drawn']:,} candidates are right")
        print("| n | right | expected of any n of 16 | any right, 1 - (1 - p)^n |")
        print("|---|---|---|---|")
        for n in SHOWN:
            right = sum(best(own[:n]) for own in rows) / len(rows)
            expected = sum(expectation(own, n) for own in rows) / len(rows)
            print(f"| {n} | {right:.1%} | {expected:.1%} | {1 - (1 - share) ** n:.1%} |")
        own = answered(folder / "adaptive")
        print(
            f"Until a reward of {ENOUGH}, at most {MOST}: {sum(map(best, own)) / len(own):.1%} right with "
            f"{adaptive['drawn'] / adaptive['possible']:.1%} of the candidates"
        )


def best(candidates: Sequence[Answered]) -> bool:
    """Whether the one with the highest reward is right; without any reward nothing is."""
    scored = [candidate for candidate in candidates if candidate.reward is not None]
    return bool(scored) and max(scored, key=lambda candidate: candidate.reward or 0.0).right


def expectation(candidates: Sequence[Answered], n: int) -> float:
    """The probability that the best of `n` of them, whichever are taken, is right."""
    # One without a reward is never the best, so it is as good as the lowest.
    ordered = sorted(candidates, key=lambda candidate: (candidate.reward is not None, candidate.reward or 0.0))
    total = comb(len(ordered), n)
    return sum(
        comb(at, n - 1) / total for at, candidate in enumerate(ordered) if candidate.right and candidate.reward is not None
    )


def _sampled(folder: Path, name: str, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "pipelines", "sample", str(folder / "prompts.jsonl"), str(folder / name)]
    policy = ["--policy", "tiny-policy", "--policy-max-tokens", "48", "--judge", "tiny-attributes", "-n", str(MOST)]
    done = subprocess.run([*command, *policy, *more, "--json"], check=True, stdout=subprocess.PIPE)
    figures: dict[str, Any] = json.loads(done.stdout)["sampling"]
    return figures
