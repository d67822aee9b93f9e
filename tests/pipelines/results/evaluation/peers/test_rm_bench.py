"""RM-Bench's array: its code's formula, applied to it, gives our numbers."""

import json
from pathlib import Path

import pytest

from tests.support.peer_files import Rows, figures_and_files


def accuracies(rows: Rows) -> dict[str, float]:
    """As scripts/utils.py has it, for a file of one domain."""
    wins = [[[a > b for b in row["score_rejected"]] for a in row["score_chosen"]] for row in rows]
    cell = [[sum(won[i][j] for won in wins) / len(wins) for j in range(3)] for i in range(3)]
    return {
        "hard": (cell[0][1] + cell[0][2] + cell[1][2]) / 3,
        "normal": (cell[0][0] + cell[1][1] + cell[2][2]) / 3,
        "easy": (cell[1][0] + cell[2][0] + cell[2][1]) / 3,
    }


def test_rm_benchs_array(tmp_path: Path, shared_data: Path) -> None:
    rows = json.loads((shared_data / "rm-bench" / "chat_filtered.json").read_text())
    rewards: list[list[float | None]] = [[float(len(text)) for text in (*row["chosen"], *row["rejected"])] for row in rows]
    rewards[0][0] = None
    figures, files = figures_and_files(tmp_path, rows, rewards, "rm-bench", partial=True)
    assert len(files["rm-bench.json"]) == 128, "the sample without all of its rewards isn't there"
    assert files["rm-bench.json"][0]["prompt"] == rows[1]["prompt"]
    assert accuracies(files["rm-bench.json"]) == pytest.approx({name: figures[name] for name in ("hard", "normal", "easy")})
