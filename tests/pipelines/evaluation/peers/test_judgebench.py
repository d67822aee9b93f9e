"""JudgeBench's lines: its code's formula, applied to them, gives our numbers and the published ones."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.peer_files import figures_and_files


def is_right(row: Mapping[str, Any]) -> bool:
    """As utils/metrics.py has it: two games, of which the second is flipped."""
    first, second = (game["decision"] for game in row["judgments"])
    flipped = {"A>B": "B>A", "B>A": "A>B"}
    decisions = (first, flipped.get(second, second))
    return sum((decision == row["label"]) - (decision == flipped[row["label"]]) for decision in decisions) > 0


def test_judgebenchs_lines(tmp_path: Path, shared_data: Path) -> None:
    rows = [json.loads(line) for line in (shared_data / "judgebench" / "gpt-4o.jsonl").read_text().splitlines()]
    with (shared_data / "judgebench" / "rm_scores.tsv").open() as file:
        scores = {row["pair_id"]: row for row in csv.DictReader(file, delimiter="\t") if "Gemma-2-27B" in row["model"]}
    rewards = [[float(scores[row["pair_id"]][f"g1_score_{side}"]) for side in "AB"] for row in rows]
    figures, files = figures_and_files(tmp_path, rows, rewards, "judgebench")
    ((name, lines),) = files.items()
    assert name.startswith("dataset=judgebench,response_model=gpt-4o")
    assert sum(map(is_right, lines)) == 225
    assert figures["overall"] == pytest.approx(225 / len(lines))
    decisions = {(line["pair_id"]): [game["decision"] for game in line["judgments"]] for line in lines}
    published = {pair: [row["g1_decision"], row["g2_decision"]] for pair, row in scores.items()}
    assert decisions == published, "ties included"
