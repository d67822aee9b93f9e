"""The steps for a card, at the size that runs without."""

import subprocess
import sys

import pytest

from bench import card


@pytest.mark.parametrize(
    ("rewards", "row"),
    [
        ([1.0, 2.0, 3.0, 4.0], "4 of 4 equal, largest 0, mean 0, order changed in 0 of 2 pairs"),
        ([1.0, 2.0, 4.5, 4.0], "3 of 4 equal, largest 1.5, mean 0.375, order changed in 1 of 2 pairs"),
    ],
)
def test_drift_is_what_differs(capsys: pytest.CaptureFixture[str], rewards: list[float], row: str) -> None:
    card._print_drift("batch 7", [1.0, 2.0, 3.0, 4.0], rewards)
    assert capsys.readouterr().out == f"  batch 7: {row}\n"


@pytest.mark.parametrize(("batch", "sizes"), [(0, [10]), (1, [1] * 10), (4, [4, 4, 2])])
def test_every_conversation_is_in_a_batch_once(batch: int, sizes: list[int]) -> None:
    groups = card._groups(card.Load(0, 10, batch, shuffle=3))
    assert [len(group) for group in groups] == sizes
    assert sorted(position for group in groups for position in group) == list(range(10))


@pytest.mark.long
@pytest.mark.parametrize(("step", "line"), [("short", "ours / bare: "), ("votes", "votes, one by one: ")])
def test_a_step_runs_without_a_card(step: str, line: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "bench", "card", step, "tiny"], capture_output=True, text=True, check=True, timeout=600
    )
    assert line in result.stdout
