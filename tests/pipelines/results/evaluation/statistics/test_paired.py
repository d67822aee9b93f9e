"""Two models on the same items: the exact test, the paired draws, and the items on which they disagree."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

import numpy as np
import pyarrow.parquet as pq
import pytest

from actors.errors import SettingsError
from pipelines.data.formats import RowShape
from pipelines.results.evaluation.benchmarks.reward_bench import BENCHMARK
from pipelines.results.evaluation.gate import compare
from pipelines.results.evaluation.results import Results
from pipelines.results.evaluation.saved_results import read_evaluations
from pipelines.results.evaluation.statistics.paired import exact_p, flip_p
from tests.pipelines.results.evaluation.test_evaluate_corpus import preferences, run
from tests.support.candidates import judged_corpus, scored_corpus
from tests.support.corpora import lines, settings, write

RIGHT, WRONG = (2.0, 1.0), (1.0, 2.0)


def test_the_exact_p_value_is_that_of_the_binomial() -> None:
    assert exact_p(0, 0) == 1.0
    assert exact_p(1, 1) == 1.0
    assert exact_p(0, 5) == pytest.approx(2 / 32, rel=1e-12)
    # Fagerland et al. 2013, table 1 (airway hyper-responsiveness): 1 and 7 discordant pairs, exact p 0.0703.
    assert exact_p(1, 7) == pytest.approx(0.0703, abs=5e-5)
    whole = 2 * sum(math.comb(3300, index) for index in range(1501))
    assert exact_p(1500, 1800) == pytest.approx(whole / 2**3300, rel=1e-9), "large numbers don't overflow"
    # A million discordant items: the normal distribution with its correction of a half, (2000 - 1) / 1000.
    assert exact_p(499_000, 501_000) == pytest.approx(math.erfc(1.999 / 2**0.5), rel=1e-4)
    assert exact_p(0, 10_000) == 0.0


def test_a_prompts_items_change_sides_together() -> None:
    signs = np.array([1, 1, 1, -1, 1, 1, 0.0])
    assert flip_p(signs, np.arange(7, dtype=np.uint64)) == exact_p(5, 1)
    # Sums of 3, -1 and 2: of eight ways to flip them four come to 4 or more, either way.
    assert flip_p(signs, np.array([1, 1, 1, 2, 3, 3, 3], np.uint64)) == pytest.approx(4 / 8)
    assert flip_p(np.ones(60), np.repeat(np.arange(10, dtype=np.uint64), 6)) == exact_p(10, 0)


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
    assert saved["splits"][0] == asdict(split)
    assert "10 of 40 items differ" in (tmp_path / "e" / "table.md").read_text()


def test_models_that_never_differ_may_still_do_so_and_one_model_has_no_pair(tmp_path: Path) -> None:
    (comparison,) = compared(tmp_path, [RIGHT] * 20, [RIGHT] * 20).paired
    accuracy = comparison.differences[0]
    assert (accuracy.value, comparison.splits[0].p) == (0.0, 1.0)
    assert accuracy.high == pytest.approx(0.1611, abs=1e-4)
    assert pq.read_table(tmp_path / "e" / "disagreements.parquet").num_rows == 0
    alone = run(str(tmp_path / "a"), output=str(tmp_path / "one"))
    assert list(alone.paired) == []
    assert not (tmp_path / "one" / "disagreements.parquet").exists()


def test_a_tie_of_a_judge_is_half_a_credit_in_all_that_is_made_of_credits(tmp_path: Path) -> None:
    row = {"chosen": "good", "rejected": "bad", "chosen_model": "m"}
    rows = [{**row, "prompt": f"{subset} {index}", "subset": subset} for subset in BENCHMARK.required for index in range(2)]
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
    level, behind = read_evaluations(str(tmp_path / "e"))
    (comparison,) = compare([behind], [level])
    assert [(flip["before"], flip["now"]) for flip in comparison.flips] == [(0.5, 0.0)] * len(rows)


def labelled_pairs(count: int) -> list[dict[str, object]]:
    """Different pairs of one prompt."""
    return [{"prompt": "p", "chosen": f"good {index}", "rejected": f"bad {index}", "id": index} for index in range(count)]


def scored_as(tmp_path: Path, name: str, rows: Sequence[dict[str, object]], **options: object) -> str:
    """These rows scored by the fake engine, whose rewards are those of the texts; `name` is the folder's and the file's."""
    return scored_corpus(settings(write(tmp_path / f"{name}.jsonl", lines(rows)), tmp_path / f"{name}.scored", **options))


def shuffled(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    return Random(1).sample(rows, len(rows))


def test_a_shuffled_copy_and_one_of_another_name_have_the_same_items(tmp_path: Path) -> None:
    rows = labelled_pairs(60)
    first = scored_as(tmp_path, "first", rows)
    for copy in (scored_as(tmp_path, "renamed", rows), scored_as(tmp_path / "same", "first", shuffled(rows))):
        (comparison,) = run(first, copy).paired
        (split,) = comparison.splits
        assert (comparison.items, split.items, split.first_ahead, split.second_ahead) == (60, 60, 0, 0), copy
        assert comparison.unmatched == ""


def test_items_of_one_alone_are_counted_and_their_files_named(tmp_path: Path) -> None:
    rows = labelled_pairs(10)
    thrice, twice = scored_as(tmp_path, "thrice", rows * 3), scored_as(tmp_path, "twice", shuffled(rows * 2))
    (comparison,) = run(thrice, twice).paired
    assert comparison.items == 20, "an item meets as often as it is in both"
    assert comparison.unmatched == "Items of one alone: 10 of tiny-attributes (no. 1), in thrice.jsonl."
    folders = scored_as(tmp_path, "old", rows), scored_as(tmp_path, "new", [*rows[3:], {**rows[0], "chosen": "better"}])
    (comparison,) = run(*folders, output=str(tmp_path / "e")).paired
    assert comparison.items == 7
    note = "Items of one alone: 3 of tiny-attributes (no. 1), in old.jsonl; 1 of tiny-attributes (no. 2), in new.jsonl."
    assert note in (tmp_path / "e" / "table.md").read_text()
    pairs = [{"input": f"i{index}", "output_1": "a", "output_2": "b", "label": 1 + index % 2} for index in range(8)]
    relabelled = scored_as(tmp_path, "b", [{**pairs[0], "label": 2}, *pairs[1:]])
    (comparison,) = run(scored_as(tmp_path, "a", pairs), relabelled).paired
    assert comparison.items == 7, "labels are part of an item"
    assert "1 of tiny-attributes (no. 1), in a.jsonl; 1 of tiny-attributes (no. 2), in b.jsonl" in comparison.unmatched


def test_models_with_other_data_are_not_compared_as_if_it_were_the_same(tmp_path: Path) -> None:
    rows = labelled_pairs(30)
    here, there = scored_as(tmp_path, "here", rows[:12]), scored_as(tmp_path, "there", rows[10:])
    with pytest.raises(SettingsError, match=r"2 of 12 items of here\.jsonl are among the 20 of there\.jsonl"):
        run(here, there)


def test_two_readings_of_a_file_meet_by_place_and_texts_are_not_needed_for_it(tmp_path: Path) -> None:
    rows = [{**row, "chosen": f"<think>Hm.</think>{row['chosen']}"} for row in labelled_pairs(10)]
    whole = scored_as(tmp_path, "whole", rows, reasoning="keep")
    answers = scored_as(tmp_path, "answers", rows, reasoning="strip")
    without_text = scored_as(tmp_path, "untold", rows, text=False, reasoning="keep")
    assert [comparison.items for comparison in run(whole, answers, without_text).paired] == [10, 10, 10]
    copy = scored_as(tmp_path, "copy", shuffled(rows), reasoning="keep")
    with pytest.raises(SettingsError, match=r"untold\.jsonl \(scored with `text: false`"):
        run(copy, without_text)


def test_an_item_of_several_rows_meets_in_any_order(tmp_path: Path) -> None:
    row = {"prompt": "p", "subset": "Ties", "num_correct": 1}
    ties = [
        {**row, "id": f"{kind}:{index}", "chosen": [f"good {kind} {index}"], "rejected": [f"bad {kind} {index}"]}
        for kind in ("ref", "tied")
        for index in range(10)
    ]
    folders = scored_as(tmp_path, "a", ties), scored_as(tmp_path, "b", shuffled(ties))
    (comparison,) = run(*folders, benchmark="reward-bench-2", partial=True).paired
    assert (comparison.items, comparison.unmatched) == (10, "")


def test_disagreements_are_of_the_same_items_wherever_they_stand(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{index}", "chosen": "good", "rejected": "bad"} for index in range(8)]
    first = dict(enumerate([RIGHT] * 6 + [WRONG] * 2))
    second = {index: WRONG if index == 7 else RIGHT for index in Random(2).sample(range(8), 8)}
    shape, texts = RowShape("preference"), ["good", "bad"] * 8
    folders = [
        judged_corpus(
            tmp_path / name, [rows[index] for index in rewards], list(rewards.values()), shape, parquet=True, texts=texts
        )
        for name, rewards in (("a", first), ("b", second))
    ]
    results = run(*folders, output=str(tmp_path / "e"))
    assert (results.paired[0].splits[0].first_ahead, results.paired[0].splits[0].second_ahead) == (0, 1)
    (line,) = pq.read_table(tmp_path / "e" / "disagreements.parquet").to_pylist()
    assert (line["row"], [credit for _, credit in line["credits"]]) == ("c:6", [0.0, 1.0])
