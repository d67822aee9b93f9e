"""Labelled preferences: strict accuracy, ties beside it, several responses a side, subsets."""

import pytest

from pipelines.results.evaluation.benchmarks.pairs import BENCHMARK
from tests.support.evaluation import grades_of, item, measures_of, sides


def test_a_tie_is_wrong_and_counted() -> None:
    rows = [
        item({"chosen": 2.0, "rejected": 1.0}),
        item({"chosen": 1.0, "rejected": 1.0}),
        item({"chosen": 0.0, "rejected": 1.0}),
    ]
    assert measures_of(BENCHMARK, rows) == pytest.approx({"accuracy": 1 / 3, "accuracy (half)": 1 / 2})
    assert grades_of(BENCHMARK, rows).tied == {"all": 1}


def test_several_responses_a_side_are_compared_each_with_each() -> None:
    assert measures_of(BENCHMARK, [item(sides([3, 1], [2, 0]))])["accuracy"] == 0.75


def test_subsets_are_told_apart() -> None:
    right, wrong = {"chosen": 2.0, "rejected": 1.0}, {"chosen": 1.0, "rejected": 2.0}
    figures = measures_of(BENCHMARK, [item(right, subset="x"), item(wrong, subset="y"), item(wrong, subset="y")])
    assert figures == pytest.approx({"accuracy": 1 / 3, "x": 1, "y": 0, "accuracy (half)": 1 / 3})


def test_a_side_without_a_reward_is_no_grade() -> None:
    grades = grades_of(BENCHMARK, [item({"chosen": None, "rejected": 1.0}), item({"chosen": 1.0})])
    assert grades.reasons["all"] == {"failed: no_verdict": 1, "there is no response rejected": 1}


def test_ranks_are_pairs_of_each_with_each_worse_one() -> None:
    ranked = item({"rank[1]": 2.0, "rank[0]": 3.0, "rank[2]": 2.0})
    assert measures_of(BENCHMARK, [ranked]) == pytest.approx({"accuracy": 2 / 3, "accuracy (half)": 5 / 6})
    assert measures_of(BENCHMARK, [item({"rank[0]": 1.0, "rank[1]": 2.0})])["accuracy"] == 0
    grades = grades_of(BENCHMARK, [item({"rank[0]": 1.0, "rank[1]": None}), item({"rank[0]": 1.0})])
    assert grades.reasons["all"] == {"failed: no_verdict": 1, "the row doesn't rank two responses or more": 1}
