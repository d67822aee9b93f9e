"""The result files of the benchmarks' own codes: their formulas, applied to them, give our numbers."""

import csv
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipelines.cli.app import cli
from pipelines.results.evaluation.benchmarks.reward_bench import BENCHMARK as REWARD_BENCH
from tests.support.peer_files import Rows, figures_and_files, of_json


def test_other_benchmarks_have_no_such_files(tmp_path: Path) -> None:
    evaluation, files = of_json(tmp_path, [{"prompt": "p", "chosen": "good", "rejected": "bad"}])
    assert (evaluation.benchmark, files, evaluation.notes) == ("pairs", {}, ())
    assert not (tmp_path / "e" / "peers").exists()


def test_a_field_that_the_rows_lack_is_named_and_its_file_not_written(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": ["good"], "rejected": ["bad"], "subset": "Math"}]
    evaluation, files = of_json(tmp_path, rows, benchmark="reward-bench-2", partial=True)
    assert list(files) == ["eval-set.json"]
    assert files["eval-set.json"]["Math"] == evaluation.figures[0].value
    message = "peers/ lacks a result file of reward-bench-2's own code: row c.jsonl:0 has no field 'id', which it holds."
    assert evaluation.notes[-1] == message
    (saved,) = json.loads((tmp_path / "e" / "results.json").read_text())["evaluations"]
    assert saved["notes"][-1] == message
    assert message in (tmp_path / "e" / "table.md").read_text()
    command = ["evaluate", str(tmp_path / "s"), "--out", str(tmp_path / "again"), "--as", "reward-bench-2", "--partial"]
    assert message in CliRunner().invoke(cli, command).output


def is_right(row: Mapping[str, Any]) -> bool:
    """As JudgeBench's utils/metrics.py has it: two games, of which the second is flipped."""
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


@pytest.mark.parametrize(
    "names", [["org/model", "org--model", "org_model"], ["a\x00b", "", ".."], ["x" * 300, "x" * 301, "é"]]
)
def test_each_response_model_of_judgebench_has_a_file_whatever_it_is_called(tmp_path: Path, names: list[str]) -> None:
    row = {"question": "q", "response_A": "a", "response_B": "b", "label": "A>B", "source": "livebench-math", "pair_id": "p"}
    rows = [{**row, "response_model": name} for name in names]
    _, files = figures_and_files(tmp_path, rows, [[2.0, 1.0]] * 3, "judgebench", partial=True)
    written = sorted(line["response_model"] for lines in files.values() for line in lines)
    assert written == sorted(names)
    assert len(files) == 3
    assert all(name.isascii() and name.isprintable() and "/" not in name and len(name) < 200 for name in files)


def rm_bench_accuracies(rows: Rows) -> dict[str, float]:
    """As RM-Bench's scripts/utils.py has it, for a file of one domain."""
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
    array = files["rm-bench.json"]
    assert len(array) == 128, "the sample without all of its rewards isn't there"
    assert array[0]["prompt"] == rows[1]["prompt"]
    assert rm_bench_accuracies(array) == pytest.approx({name: figures[name] for name in ("hard", "normal", "easy")})


def subset_shares(columns: Mapping[str, Any]) -> dict[str, float]:
    """The mean result of each subset, as RewardBench's scripts/run_rm.py and scripts/run_generative.py have it."""
    results: dict[str, list[float]] = defaultdict(list)
    for subset, result in zip(columns["subset"], columns["results"], strict=True):
        results[subset].append(result)
    return {subset: sum(of_subset) / len(of_subset) for subset, of_subset in results.items()}


@pytest.mark.parametrize("judged", [False, True])
def test_rewardbenchs_two(tmp_path: Path, judged: bool) -> None:
    subsets = [subset for subset in REWARD_BENCH.expected for _ in range(3)]
    row = {"chosen": "good", "rejected": "bad", "chosen_model": "m"}
    rows = [{**row, "prompt": f"p{index}", "subset": subset, "id": index} for index, subset in enumerate(subsets)]
    rewards = [(float(index % 5), float(index % 3)) for index in range(len(rows))]
    identity = {"judge": {"votes": 1}} if judged else {}
    figures, files = figures_and_files(tmp_path, rows, rewards, "preference", identity=identity)
    accuracies, scores = files["eval-set.json"], files["eval-set-scores.json"]
    kind, template = ("Generative RM", None) if judged else ("Seq. Classifier", "tokenizer")
    assert accuracies == {"model": "m", "model_type": kind, "chat_template": template, **subset_shares(scores)}
    weights = {"math-prm": 984} | {name: 164 for name in REWARD_BENCH.expected if name.startswith("hep-")}
    weighted = sum(accuracies[subset] * weight for subset, weight in weights.items()) / sum(weights.values())
    assert weighted == pytest.approx(figures["reasoning"])
    tied = 0.5 if judged else 0.0
    pairs = zip(scores["scores_chosen"], scores["scores_rejected"], strict=True)
    assert scores["results"] == [1.0 if a > b else tied if a == b else 0.0 for a, b in pairs]
    assert sum(scores["results"]) / len(rows) == pytest.approx(figures["micro"])
    assert {len(column) for column in scores.values() if isinstance(column, list)} == {len(rows)}
