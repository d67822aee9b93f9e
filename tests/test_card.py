"""The steps for a card, at the size that runs without."""

import subprocess
import sys

import pytest

from bench import card
from bench.card.drift import print_drift
from bench.card.hosts import Load, in_batches


@pytest.mark.parametrize(
    ("rewards", "row"),
    [
        ([1.0, 2.0, 3.0, 4.0], "4 of 4 | 0 | 0 | 0 of 2 | 0"),
        ([1.0, 2.0, 4.5, 4.0], "3 of 4 | 1.5 | 0.375 | 1 of 2 | 0"),
        ([1.0, 2.0, 4.0, 4.0], "3 of 4 | 1 | 0.25 | 1 of 2 | 0"),
        ([1.0, 2.0, None, 4.5], "2 of 4 | 0.5 | 0.167 | 0 of 1 | 1"),
    ],
)
def test_drift_is_what_differs(capsys: pytest.CaptureFixture[str], rewards: list[float | None], row: str) -> None:
    print_drift("batch 7", [1.0, 2.0, 3.0, 4.0], rewards)
    assert capsys.readouterr().out == f"| batch 7 | {row} |\n"


@pytest.mark.parametrize(("batch", "sizes"), [(0, [10]), (1, [1] * 10), (4, [4, 4, 2])])
def test_every_row_is_in_a_batch_once(batch: int, sizes: list[int]) -> None:
    groups = in_batches(Load(0, 10, batch, shuffle=3))
    assert [len(group) for group in groups] == sizes
    assert sorted(position for group in groups for position in group) == list(range(10))


LINES = {
    "bytes": "| deterministic against default | ",
    "families": "tiny-attributes, deterministic, against batch 1",
    "fp8": "bfloat16 / bare bfloat16: ",
    "short": ", 0 failed; CPUs: ",
    "endpoint": "5 at a time assay/vllm: ",
    "votes": "| one by one | ",
    "share": "8 candidates: drawn in ",
    "start": "engine core",
    "parity": "parity: pytest ended with 0",
    "precisions": "| tiny-r3-lora against tiny-r3, both in bfloat16 | ",
}
"""A part of what each step prints near its end."""


OFTEN = ("bytes", "endpoint", "votes")
"""The steps that CI runs; all ten take ten minutes."""


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=pytest.mark.long if step in OFTEN else pytest.mark.chaos) for step in card.STEPS]
)
def test_a_step_runs_without_a_card(step: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "bench", "card", step, "tiny"], capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr
    assert LINES[step] in result.stdout
