"""RewardBench 2: credit shared among maxima, and the score of ties by hand."""

import math
from dataclasses import replace

import pytest

from pipelines.results.evaluation.benchmarks.reward_bench_2 import BENCHMARK, best_of
from pipelines.results.evaluation.statistics.intervals import mean_cells
from tests.support.evaluation import grades_of, item, measures_of, sides


@pytest.mark.parametrize(
    ("chosen", "rejected", "credit"),
    [([3], [1, 2, 0], 1.0), ([1], [1, 0, 0], 0.5), ([1], [1, 1, 1], 0.25), ([0], [1, 1, 1], 0.0), ([1], [2, 1, 0], 0.0)],
)
def test_the_best_of_four_shares_its_credit(chosen: list[float], rejected: list[float], credit: float) -> None:
    assert best_of(chosen, rejected) == credit


def tie(prompt: str, right: list[float], wrong: list[float]) -> object:
    return item(sides(right, wrong), row=prompt, subset="Ties", id=prompt)


def test_the_worked_example_of_ties() -> None:
    items = [
        tie("ref:0", [5], [1, 0]),
        tie("tied:0", [5, 4], [1]),
        tie("ref:1", [0], [1]),
        tie("tied:1", [3, 1], [2]),
    ]
    assert measures_of(BENCHMARK, items)["Ties"] == pytest.approx(0.5002943966321548, abs=1e-15)  # type: ignore[arg-type]


def test_the_extremes_of_ties() -> None:
    best = [tie("ref:0", [9], [1]), tie("tied:0", [5, 5], [1])]
    assert measures_of(BENCHMARK, best)["Ties"] == pytest.approx(1.01), "no spread and a gap: the maximum, which isn't 1"  # type: ignore[arg-type]
    equal = [tie("ref:0", [2], [1]), tie("tied:0", [3, 2], [1])]
    assert measures_of(BENCHMARK, equal)["Ties"] == pytest.approx(0.6), "a gap as large as the spread isn't larger"  # type: ignore[arg-type]
    nothing = [tie("ref:0", [1], [1]), tie("tied:0", [1, 1], [1])]
    assert measures_of(BENCHMARK, nothing)["Ties"] == 0  # type: ignore[arg-type]


def test_a_question_without_its_other_one_counts_for_accuracy_alone() -> None:
    grades = grades_of(BENCHMARK, [tie("ref:7", [2], [1])])  # type: ignore[list-item]
    ((best, tied, ref, *others),) = grades.cells["Ties"]
    assert ref == 1
    assert all(map(math.isnan, (best, tied, *others)))


@pytest.mark.parametrize("prompts", [["ref:7"], ["tied:7"], ["ref:7", "tied:8"]])
def test_without_both_questions_of_any_prompt_ties_has_no_score(prompts: list[str]) -> None:
    figures = measures_of(BENCHMARK, [tie(prompt, [2], [1]) for prompt in prompts])  # type: ignore[misc]
    assert math.isnan(figures["Ties"]), "0.3 or 0.6 of a formula whose other terms don't exist would look like a score"


def test_the_score_is_the_mean_of_the_subsets() -> None:
    right, wrong = sides([1], [0, 0, 0]), sides([0], [1, 0, 0])
    four = [item(right, subset="Math")] * 3 + [
        item(wrong, subset=name) for name in ("Factuality", "Focus", "Precise IF", "Safety")
    ]
    ties = [tie("ref:0", [1], [1]), tie("tied:0", [1, 1], [1])]
    assert measures_of(BENCHMARK, [*four, *ties])["score"] == pytest.approx(1 / 6)  # type: ignore[list-item]
    assert "score" not in measures_of(BENCHMARK, four), "a mean of fewer subsets is another number"
    other = item(right, subset="Other")
    assert measures_of(BENCHMARK, [*four, *ties, other])["score"] == pytest.approx(1 / 6), "none of its six"  # type: ignore[list-item]
    assert "score" not in measures_of(BENCHMARK, [*four[3:], *ties, other]), "Math is missing"  # type: ignore[list-item]


def test_no_question_of_ties_is_lost() -> None:
    questions = [tie("ref:0", [2], [1]), tie("ref:0", [2], [1]), tie("None", [2], [1])]
    grades = grades_of(BENCHMARK, questions)  # type: ignore[arg-type]
    assert grades.items == {"Ties": 3}
    assert grades.reasons["Ties"] == {"the id ref:0 is there twice": 1, "the id None is neither ref:ID nor tied:ID": 1}


def test_a_judges_two_modes_are_two_numbers() -> None:
    right = sides([1], [0, 0, 0])
    items = [item(right, subset=name) for name in ("Factuality", "Focus", "Precise IF", "Safety", "Math")]
    means = mean_cells(grades_of(BENCHMARK, [*items, tie("ref:0", [2], [1]), tie("tied:0", [2, 2], [1])]).cells, True)  # type: ignore[list-item]
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
    assert BENCHMARK.split_of(counts) == "published"
    for other in (
        {**counts, "Math": 182},
        {**counts, "Other": 1},
        {name: counts[name] for name in counts if name != "Math"},
    ):
        assert BENCHMARK.split_of(other) is None


def test_several_right_responses_outside_ties_have_no_grade() -> None:
    grades = grades_of(BENCHMARK, [item(sides([1, 2], [1, 0]), subset="Math")])
    assert grades.reasons == {"Math": {"2 chosen responses, and the benchmark has one": 1}}
