"""RewardBench's two files: its code's formula, applied to them, gives our numbers."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.results.evaluation.benchmarks.reward_bench import BENCHMARK as REWARD_BENCH
from tests.support.peer_files import figures_and_files

SUBSETS = [subset for subset in REWARD_BENCH.expected for _ in range(3)]
ROWS = [
    {"prompt": f"p{index}", "chosen": "good", "rejected": "bad", "subset": subset, "id": index, "chosen_model": "m"}
    for index, subset in enumerate(SUBSETS)
]
REWARDS = [(float(index % 5), float(index % 3)) for index in range(len(ROWS))]


def shares(columns: Mapping[str, Any]) -> dict[str, float]:
    """The mean result of each subset, as scripts/run_rm.py and scripts/run_generative.py have it."""
    results: dict[str, list[float]] = defaultdict(list)
    for subset, result in zip(columns["subset"], columns["results"], strict=True):
        results[subset].append(result)
    return {subset: sum(of_subset) / len(of_subset) for subset, of_subset in results.items()}


def test_rewardbenchs_two(tmp_path: Path) -> None:
    figures, files = figures_and_files(tmp_path, ROWS, REWARDS, "preference")
    accuracies, scores = files["eval-set.json"], files["eval-set-scores.json"]
    assert accuracies == {"model": "m", "model_type": "Seq. Classifier", "chat_template": "tokenizer", **shares(scores)}
    counts = {**REWARD_BENCH.expected, "math-prm": 984}
    reasoning = [subset for subset in counts if subset.startswith(("hep-", "math-"))]
    weighted = sum(accuracies[subset] * counts[subset] for subset in reasoning) / sum(counts[subset] for subset in reasoning)
    assert weighted == pytest.approx(figures["reasoning"])
    results = [a > b for a, b in zip(scores["scores_chosen"], scores["scores_rejected"], strict=True)]
    assert results == [bool(result) for result in scores["results"]]
    assert sum(results) / len(results) == pytest.approx(figures["micro"])
    assert {len(column) for column in scores.values() if isinstance(column, list)} == {len(ROWS)}


def test_a_judges_tie_is_half_and_it_has_no_template(tmp_path: Path) -> None:
    figures, files = figures_and_files(tmp_path, ROWS, REWARDS, "preference", identity={"judge": {"votes": 1}})
    accuracies, scores = files["eval-set.json"], files["eval-set-scores.json"]
    assert accuracies == {"model": "m", "model_type": "Generative RM", "chat_template": None, **shares(scores)}
    ties = [a == b for a, b in zip(scores["scores_chosen"], scores["scores_rejected"], strict=True)]
    assert ties == [result == 0.5 for result in scores["results"]]
    assert sum(scores["results"]) / len(ROWS) == pytest.approx(figures["micro"])
