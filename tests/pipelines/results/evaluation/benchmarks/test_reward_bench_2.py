"""RewardBench 2: credit shared among maxima, and the score of ties by hand."""

import math
from dataclasses import replace

import pytest

from pipelines.results.evaluation.benchmark import Item
from pipelines.results.evaluation.benchmarks.reward_bench_2 import BENCHMARK, best_of
from pipelines.results.evaluation.statistics.intervals import mean_cells
from tests.support.evaluation import grades_of, item, measures_of, sides

RIGHT, WRONG = sides([1], [0, 0, 0]), sides([0], [1, 0, 0])


def tie(prompt: str, right: list[float], wrong: list[float]) -> Item:
    return item(sides(right, wrong), row=prompt, subset="Ties", id=prompt)


def test_the_best_of_four_shares_its_credit() -> None:
    cases: list[tuple[list[float], list[float], float]] = [
        ([3], [1, 2, 0], 1.0),
        ([1], [1, 0, 0], 0.5),
        ([1], [1, 1, 1], 0.25),
        ([0], [1, 1, 1], 0.0),
        ([1], [2, 1, 0], 0.0),
    ]
    for chosen, rejected, credit in cases:
        assert best_of(chosen, rejected) == credit


def test_ties_by_hand() -> None:
    cases = [
        ([tie("ref:0", [9], [1]), tie("tied:0", [5, 5], [1])], 1.01),  # no spread and a gap: the maximum, which isn't 1
        ([tie("ref:0", [2], [1]), tie("tied:0", [3, 2], [1])], 0.6),  # a gap as large as the spread isn't larger
        ([tie("ref:0", [1], [1]), tie("tied:0", [1, 1], [1])], 0),
    ]
    for items, score in cases:
        assert measures_of(BENCHMARK, items)["Ties"] == pytest.approx(score)
    worked = [tie("ref:0", [5], [1, 0]), tie("tied:0", [5, 4], [1]), tie("ref:1", [0], [1]), tie("tied:1", [3, 1], [2])]
    assert measures_of(BENCHMARK, worked)["Ties"] == pytest.approx(0.5002943966321548, abs=1e-15)


def test_a_question_without_its_other_one_counts_for_accuracy_alone() -> None:
    ((best, tied, ref, *terms),) = grades_of(BENCHMARK, [tie("ref:7", [2], [1])]).cells["Ties"]
    assert ref == 1
    assert all(map(math.isnan, (best, tied, *terms)))
    for prompts in (["ref:7"], ["tied:7"], ["ref:7", "tied:8"]):
        figures = measures_of(BENCHMARK, [tie(prompt, [2], [1]) for prompt in prompts])
        assert math.isnan(figures["Ties"]), "0.3 or 0.6 of a formula whose other terms don't exist would look like a score"


def test_the_score_is_the_mean_of_the_subsets() -> None:
    four = [item(RIGHT, subset="Math")] * 3 + [
        item(WRONG, subset=name) for name in ("Factuality", "Focus", "Precise IF", "Safety")
    ]
    ties = [tie("ref:0", [1], [1]), tie("tied:0", [1, 1], [1])]
    assert measures_of(BENCHMARK, [*four, *ties])["score"] == pytest.approx(1 / 6)
    assert "score" not in measures_of(BENCHMARK, four), "a mean of fewer subsets is another number"
    other = item(RIGHT, subset="Other")
    assert measures_of(BENCHMARK, [*four, *ties, other])["score"] == pytest.approx(1 / 6), "none of its six"
    assert "score" not in measures_of(BENCHMARK, [*four[3:], *ties, other]), "Math is missing"


def test_what_cant_be_graded_is_listed() -> None:
    questions = [tie("ref:0", [2], [1]), tie("ref:0", [2], [1]), tie("None", [2], [1])]
    grades = grades_of(BENCHMARK, [*questions, item(sides([1, 2], [1, 0]), subset="Math")])
    assert grades.items == {"Ties": 3, "Math": 1}
    assert grades.reasons == {
        "Ties": {"the id ref:0 is there twice": 1, "the id None is neither ref:ID nor tied:ID": 1},
        "Math": {"2 chosen responses, and the benchmark has one": 1},
    }


def test_a_judges_two_modes_are_two_numbers() -> None:
    items = [item(RIGHT, subset=name) for name in ("Factuality", "Focus", "Precise IF", "Safety", "Math")]
    means = mean_cells(grades_of(BENCHMARK, [*items, tie("ref:0", [2], [1]), tie("tied:0", [2, 2], [1])]).cells, True)
    rating, ranking = (BENCHMARK.measures(replace(means, compared=compared)) for compared in (False, True))
    assert (rating[0].name, ranking[0].name) == ("score (rating)", "score (ranking)")
    assert {measure.convention for measure in ranking} == {
        "mean of the subsets; judge, ranking",
        "best of four; judge, ranking",
        "ties; at most 1.01; by comparisons, not ratings",
    }
    assert BENCHMARK.measures(replace(means, judged=False))[0].name == "score"


def test_a_whole_file_is_known_by_its_counts_whose_ties_are_counted_by_prompt() -> None:
    counts = {"Factuality": 475, "Precise IF": 160, "Math": 183, "Safety": 450, "Focus": 495, "Ties": 51}
    without = {name: counts[name] for name in counts if name != "Math"}
    splits = [BENCHMARK.split_of(items) for items in (counts, {**counts, "Math": 182}, {**counts, "Other": 1}, without)]
    assert splits == ["published", None, None, None]
