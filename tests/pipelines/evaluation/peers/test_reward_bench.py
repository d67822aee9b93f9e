"""RewardBench's two files: its code's formula, applied to them, gives our numbers."""

from pathlib import Path

import pytest

from pipelines.evaluation.benchmarks.reward_bench import BENCHMARK as REWARD_BENCH
from tests.support.peer_files import figures_and_files


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
