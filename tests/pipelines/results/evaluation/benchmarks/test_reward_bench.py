"""RewardBench 1: published section scores from published subset results, and ties by kind of model."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from pipelines.results.evaluation.benchmark import MeanCells
from pipelines.results.evaluation.benchmarks.reward_bench import BENCHMARK
from tests.support.evaluation import grades_of, item, measures_of, sides

SECTIONS = {"chat": "Chat", "chat hard": "Chat Hard", "safety": "Safety", "reasoning": "Reasoning"}


def figures_by(shares: Mapping[str, float]) -> dict[str, float]:
    """The figures of a model with these accuracies of all subsets."""
    means = MeanCells({name: np.array([share, share]) for name, share in shares.items()}, dict(BENCHMARK.expected))
    return {measure.name: float(measure.value) for measure in BENCHMARK.measures(means)}


def test_published_subsets_give_the_published_sections(shared_data: Path) -> None:
    path = shared_data / "published" / "rewardbench_v1_rm_r1_deepseek_32b.json"
    (published,) = json.loads(path.read_text()).values()
    figures = figures_by(
        {name: value for name, value in published["rewardbench_subsets"].items() if isinstance(value, float)}
    )
    main = published["rewardbench_main"]
    for ours, theirs in SECTIONS.items():
        assert figures[ours] == pytest.approx(main[theirs], abs=1e-12)
    assert figures["score"] == pytest.approx(main["avg_Result_each_section"], abs=1e-12)
    assert figures["micro"] == pytest.approx(main["absoluate_Result"], abs=1e-12)


def test_there_are_2985_items_in_23_subsets_and_math_weighs_as_much_as_all_code() -> None:
    assert (len(BENCHMARK.expected), sum(BENCHMARK.expected.values())) == (23, 2985)
    figures = figures_by({name: 0.5 if name == "math-prm" else 1.0 for name in BENCHMARK.expected})
    assert figures["reasoning"] == pytest.approx(0.75), "by the true counts it would be 0.844"


@pytest.mark.parametrize(("judged", "expected"), [(False, 0.0), (True, 0.5)])
def test_a_tie_is_wrong_for_a_head_and_half_for_a_judge(judged: bool, expected: float) -> None:
    rows = [item({"chosen": 1.0, "rejected": 1.0}, subset=subset) for subset in BENCHMARK.expected]
    assert measures_of(BENCHMARK, rows, judged=judged)["score"] == pytest.approx(expected)


def test_a_section_without_one_of_its_subsets_is_no_section() -> None:
    subsets = BENCHMARK.expected.keys() - {"mt-bench-easy"}
    figures = measures_of(BENCHMARK, [item({"chosen": 2.0, "rejected": 1.0}, subset=subset) for subset in subsets])
    assert figures.keys().isdisjoint({"score", "chat"})
    assert (figures["safety"], figures["micro"]) == pytest.approx((1, 1))


def test_several_chosen_responses_have_no_grade() -> None:
    grades = grades_of(BENCHMARK, [item(sides([2, 2], [1]), subset="math-prm")])
    assert grades.reasons == {"math-prm": {"2 chosen responses, and the benchmark has one": 1}}
