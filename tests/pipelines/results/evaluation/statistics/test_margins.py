"""Margins know which response is right, deciles don't cut equal margins, and the calibration error is that of the labels."""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from pipelines.results.evaluation.benchmark import GradedItem
from pipelines.results.evaluation.benchmarks import benchmarks
from pipelines.results.evaluation.sections import margin_section
from pipelines.results.evaluation.statistics.margins import Margins, differences
from tests.support.evaluation import item, sides


def graded(margin: float) -> GradedItem:
    return GradedItem((), "all", {"chosen": margin, "rejected": 0.0}, (float(margin > 0),), margins=[margin])


def test_margins_are_those_of_the_comparisons_that_the_grade_makes() -> None:
    def graded_by(benchmark: str, rewards: Mapping[str, float | None], **fields: object) -> GradedItem:
        (result,) = benchmarks()[benchmark].grade([item(rewards, **fields)])  # type: ignore[arg-type]
        return result

    strength = {"overall_preference": -2, "domain": "code"}
    cases: list[tuple[GradedItem, list[float]]] = [
        (graded_by("pairs", {"chosen": 3.0, "rejected": 1.0}), [2.0]),
        (graded_by("pairs", sides([3.0, 0.5], [1.0, 1.25])), [2.0, 1.75, -0.5, -0.75]),
        (graded_by("pairs", {"chosen": 3.0, "rejected": None}), []),
        (graded_by("pairs", {"rank[0]": 3.0, "rank[1]": 1.0, "rank[2]": 1.25}), [2.0, 1.75, -0.25]),
        (graded_by("rm-bench", sides([3.0, 2.0, 1.0], [1.0, 1.0, 2.0])), [2, 2, 1, 1, 1, 0, 0, 0, -1]),
        (graded_by("rmb", sides([3.0], [1.0, 4.0]), category_path="Helpfulness"), [2.0, -1.0]),
        (graded_by("judgebench", {"A": 1.0, "B": 4.0}, label="B>A", source="mmlu-pro"), [3.0]),
        (graded_by("judgebench", {"A": 1.0, "B": 4.0}, label="A>B", source="mmlu-pro"), [-3.0]),
        (graded_by("llmbar", {"output_1": 1.0, "output_2": 1.0}, label=2), [0.0]),
        (graded_by("helpsteer2", {"response_1": 1.0, "response_2": 4.0}, preference_strength=-1), [-3.0]),
        (graded_by("helpsteer3", {"response1": 1.0, "response2": 4.0}, **strength), [-3.0]),
        (graded_by("helpsteer3", {"good_edited_response": 1.0, "bad_edited_response": 4.0}), [-3.0]),
        (graded_by("reward-bench-2", sides([1.0], [2.0, 0.0]), subset="Math"), [-1.0, 1.0]),
    ]
    for result, margins in cases:
        assert list(result.margins) == margins
        assert differences(result) == list(map(abs, margins))
    tie = graded_by("reward-bench-2", sides([1.0], [2.0]), subset="Ties", id="ref:1")
    assert (tie.margins, differences(tie)) == ((), [1.0]), "whose grade is of the lowest and the highest rewards"


def test_accuracy_rises_with_the_margin_and_calibrated_rewards_have_no_more_error_than_chance() -> None:
    draws = np.random.default_rng(2)
    truth = draws.normal(0, 2, 20_000)
    calibrated, too_sure = Margins(), Margins()
    for margin, right in zip(np.abs(truth), draws.random(len(truth)) < 1 / (1 + np.exp(-np.abs(truth))), strict=True):
        calibrated.add(graded(margin if right else -margin))
        too_sure.add(graded(5 * margin if right else -5 * margin))
    report = calibrated.report()
    assert report is not None
    assert report.ece is not None
    assert [entry.comparisons for entry in report.bins] == [2000] * 10
    accuracies = [entry.accuracy for entry in report.bins]
    assert accuracies == sorted(accuracies)
    assert sum(entry.accuracy_low <= entry.expected <= entry.accuracy_high for entry in report.bins) >= 8
    assert report.ece < 2 * report.ece_by_chance < 0.02
    sure = too_sure.report()
    assert sure is not None
    assert sure.ece is not None
    assert sure.ece > 0.1


def test_equal_margins_share_a_bin_and_a_tie_counts_half() -> None:
    margins = Margins()
    for margin in [0.0] * 30 + [1.0] * 60 + [-1.0] * 10:
        margins.add(graded(margin))
    report = margins.report()
    assert report is not None
    tied, apart = report.bins
    assert (tied.comparisons, tied.accuracy, tied.expected) == (30, 0.5, 0.5)
    assert (apart.comparisons, apart.accuracy) == (70, 6 / 7)
    expected = 0.7 * abs(6 / 7 - 1 / (1 + math.exp(-1)))
    assert report.ece == pytest.approx(expected)


def test_equal_rewards_alone_have_no_calibration_error() -> None:
    margins = Margins()
    for _ in range(10):
        margins.add(graded(0.0))
    report = margins.report()
    assert report is not None
    assert report.ece is None
    assert margin_section(report).notes == [
        "Calibration error (ECE): undefined, as all 10 comparisons are of equal rewards."
    ]


def test_comparisons_of_one_item_dont_make_an_interval_narrower() -> None:
    single, ninefold = Margins(), Margins()
    for index in range(40):
        sign = 1.0 if index % 4 else -1.0
        single.add(graded(sign))
        ninefold.add(GradedItem((), "all", sides([sign] * 3, [0.0] * 3), (1.0,), margins=[sign] * 9))
    first, second = (margins.report() for margins in (single, ninefold))
    assert first is not None
    assert second is not None
    assert second.comparisons == 9 * first.comparisons
    assert second.bins[0].accuracy_low == first.bins[0].accuracy_low


def test_without_comparisons_there_is_no_report() -> None:
    assert Margins().report() is None
