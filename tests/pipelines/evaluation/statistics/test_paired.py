"""Two models on the same items: the exact test, the paired draws, and the items on which they disagree."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.evaluation.benchmarks.reward_bench import _EXPECTED
from pipelines.evaluation.gate import compare
from pipelines.evaluation.results import Results
from pipelines.evaluation.saved_results import read_results
from pipelines.evaluation.statistics.paired import exact_p
from pipelines.formats import RowShape
from tests.pipelines.evaluation.test_evaluate_corpus import preferences, run
from tests.support.candidates import judged_corpus

RIGHT, WRONG = (2.0, 1.0), (1.0, 2.0)


def test_the_exact_p_value_is_that_of_the_binomial() -> None:
    assert exact_p(0, 0) == 1.0
    assert exact_p(1, 1) == 1.0
    assert exact_p(0, 5) == pytest.approx(2 / 32, rel=1e-12)
    # Fagerland et al. 2013, table 1 (airway hyper-responsiveness): 1 and 7 discordant pairs, exact p 0.0703.
    assert exact_p(1, 7) == pytest.approx(0.0703, abs=5e-5)
    whole = 2 * sum(math.comb(3300, at) for at in range(1501))
    assert exact_p(1500, 1800) == pytest.approx(whole / 2**3300, rel=1e-9), "large numbers don't overflow"
    # A million discordant items: the normal distribution with its correction of a half, (2000 - 1) / 1000.
    assert exact_p(499_000, 501_000) == pytest.approx(math.erfc(1.999 / 2**0.5), rel=1e-4)
    assert exact_p(0, 10_000) == 0.0


def compared(
    tmp_path: Path, first: Sequence[tuple[float, float | None]], second: Sequence[tuple[float, float | None]]
) -> Results:
    folders = [preferences(tmp_path / name, rewards) for name, rewards in (("a", first), ("b", second))]
    results: Results = run(*folders, output=str(tmp_path / "e"))
    return results


def test_models_are_compared_on_the_items_that_both_graded(tmp_path: Path) -> None:
    first = [*[RIGHT] * 30, *[RIGHT] * 8, *[WRONG] * 2, (1.0, None)]
    second = [*[RIGHT] * 30, *[WRONG] * 8, *[RIGHT] * 2, RIGHT]
    (comparison,) = compared(tmp_path, first, second).paired
    (split,) = comparison.splits
    assert (comparison.items, split.items, split.first_ahead, split.second_ahead) == (40, 40, 8, 2)
    assert split.p == exact_p(8, 2)
    accuracy = comparison.differences[0]
    assert accuracy.value == pytest.approx(6 / 40)
    # By the normal distribution: 1.96 * sqrt((10 / 40 - (6 / 40) ** 2) / 40) = 0.148 to both sides.
    assert (accuracy.low, accuracy.high) == pytest.approx((0.002, 0.298), abs=0.03)
    lines = pq.read_table(tmp_path / "e" / "disagreements.parquet").to_pylist()
    assert len(lines) == 10
    names = (comparison.first, comparison.second)
    assert {tuple(dict(line["credits"])[name] for name in names) for line in lines} == {(1.0, 0.0), (0.0, 1.0)}
    (saved,) = json.loads((tmp_path / "e" / "results.json").read_text())["paired"]
    assert saved["splits"][0] == split._asdict()
    assert "10 of 40 items differ" in (tmp_path / "e" / "table.md").read_text()


def test_models_that_never_differ_may_still_do_so(tmp_path: Path) -> None:
    (comparison,) = compared(tmp_path, [RIGHT] * 20, [RIGHT] * 20).paired
    accuracy = comparison.differences[0]
    assert (accuracy.value, comparison.splits[0].p) == (0.0, 1.0)
    assert accuracy.high == pytest.approx(0.1611, abs=1e-4)
    assert pq.read_table(tmp_path / "e" / "disagreements.parquet").num_rows == 0


def test_a_tie_of_a_judge_is_half_a_credit_in_all_that_is_made_of_credits(tmp_path: Path) -> None:
    row = {"chosen": "good", "rejected": "bad", "chosen_model": "m"}
    rows = [{**row, "prompt": f"{subset} {at}", "subset": subset} for subset in _EXPECTED for at in range(2)]
    judge = {"judge": {"votes": 1, "aggregate": "mean", "rubric": None}}
    folders = [
        judged_corpus(tmp_path / name, rows, [(reward, 3.0)] * len(rows), RowShape("preference"), parquet=True, **judge)
        for name, reward in (("level", 3.0), ("behind", 2.0))
    ]
    results = run(*folders, benchmark="reward-bench", output=str(tmp_path / "e"))
    assert [evaluation.figures[0].value for evaluation in results] == [0.5, 0.0]
    split = results.paired[0].splits[0]
    assert (split.first_ahead, split.second_ahead, split.p) == (len(rows), 0, exact_p(len(rows), 0))
    lines = pq.read_table(tmp_path / "e" / "disagreements.parquet").to_pylist()
    assert [[credit for _, credit in line["credits"]] for line in lines] == [[0.5, 0.0]] * len(rows)
    level, behind = read_results(str(tmp_path / "e"))
    (comparison,) = compare([behind], [level])
    assert {(flip["before"], flip["now"]) for flip in comparison.flips} == {(0.5, 0.0)}
    assert len(comparison.flips) == len(rows)


def test_one_model_has_no_pair(tmp_path: Path) -> None:
    alone = run(preferences(tmp_path / "s", [RIGHT]), output=str(tmp_path / "one"))
    assert list(alone.paired) == []
    assert not (tmp_path / "one" / "disagreements.parquet").exists()
