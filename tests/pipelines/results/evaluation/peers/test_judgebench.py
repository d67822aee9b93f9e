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


@pytest.mark.parametrize(
    "names", [["org/model", "org--model", "org_model"], ["a\x00b", "", ".."], ["x" * 300, "x" * 301, "é"]]
)
def test_each_response_model_has_a_file_whatever_it_is_called(tmp_path: Path, names: list[str]) -> None:
    row = {"question": "q", "response_A": "a", "response_B": "b", "label": "A>B", "source": "livebench-math", "pair_id": "p"}
    rows = [{**row, "response_model": name} for name in names]
    _, files = figures_and_files(tmp_path, rows, [[2.0, 1.0]] * 3, "judgebench", partial=True)
    written = sorted(line["response_model"] for lines in files.values() for line in lines)
    assert written == sorted(names)
    assert len(files) == 3
    assert all(name.isascii() and name.isprintable() and "/" not in name and len(name) < 200 for name in files)


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
