"""The result files of the benchmarks' own codes: their formulas, applied to these files, give our numbers."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.evaluation.benchmarks.reward_bench import BENCHMARK as REWARD_BENCH
from pipelines.evaluation.evaluate_corpus import evaluate
from pipelines.formats import RowShape
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.options import build
from tests.support.candidates import judged_corpus

Rows = Sequence[Mapping[str, Any]]


def figures_and_files(
    tmp_path: Path, rows: Rows, rewards: Sequence[Sequence[float | None]], shape: str, **options: object
) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Our figures, and the peers' files by name, read."""
    scored = judged_corpus(tmp_path / "s", rows, rewards, RowShape(shape), parquet=True)
    (evaluation,) = evaluate(build(EvaluateSettings, {"scored": [scored], "output": str(tmp_path / "e"), **options}))
    texts = {path.name.removeprefix("00000-"): path.read_text() for path in (tmp_path / "e" / "peers").iterdir()}
    files = {
        name: json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
        for name, text in texts.items()
    }
    return {figure.name: figure.value for figure in evaluation.figures}, files


def rm_bench_accuracies(rows: Rows) -> dict[str, float]:
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
    assert rm_bench_accuracies(files["rm-bench.json"]) == pytest.approx(
        {name: figures[name] for name in ("hard", "normal", "easy")}
    )


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


def test_rewardbenchs_two(tmp_path: Path) -> None:
    subsets = [subset for subset in REWARD_BENCH.expected for _ in range(3)]
    rows = [
        {"prompt": f"p{at}", "chosen": "good", "rejected": "bad", "subset": subset, "id": at, "chosen_model": "m"}
        for at, subset in enumerate(subsets)
    ]
    rewards = [(float(at % 5), float(at % 3)) for at in range(len(rows))]
    figures, files = figures_and_files(tmp_path, rows, rewards, "preference")
    accuracies, scores = files["eval-set.json"], files["eval-set-scores.json"]
    assert accuracies["model_type"] == "Seq. Classifier"
    counts = {**REWARD_BENCH.expected, "math-prm": 984}
    reasoning = [subset for subset in counts if subset.startswith(("hep-", "math-"))]
    weighted = sum(accuracies[subset] * counts[subset] for subset in reasoning) / sum(counts[subset] for subset in reasoning)
    assert weighted == pytest.approx(figures["reasoning"])
    results = [a > b for a, b in zip(scores["scores_chosen"], scores["scores_rejected"], strict=True)]
    assert results == [bool(result) for result in scores["results"]]
    assert sum(results) / len(results) == pytest.approx(figures["micro"])
    assert {len(column) for column in scores.values() if isinstance(column, list)} == {len(rows)}


def test_other_benchmarks_have_no_such_files(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": "good", "rejected": "bad"}]
    scored = judged_corpus(tmp_path / "s", rows, [(2.0, 1.0)], RowShape("preference"), parquet=True)
    evaluate(build(EvaluateSettings, {"scored": [scored], "output": str(tmp_path / "e")}))
    assert not (tmp_path / "e" / "peers").exists()
