"""RewardBench 1: published section scores from published subset results, and ties by kind of model."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.evaluation.benchmark import MeanCells
from pipelines.evaluation.benchmarks.reward_bench import BENCHMARK
from tests.support.evaluation import item, measures_of

BEAVER = {"chat": 0.6089385474860335, "chat hard": 0.44956140350877194}


def test_published_subsets_give_the_published_sections(shared_data: Path) -> None:
    path = shared_data / "published" / "rewardbench_v1_rm_r1_deepseek_32b.json"
    (published,) = json.loads(path.read_text()).values()
    shares = {name: value for name, value in published["rewardbench_subsets"].items() if isinstance(value, float)}
    means = MeanCells(
        {name: np.array([value, value]) for name, value in shares.items()},
        {name: BENCHMARK.expected[name] for name in shares},
    )
    figures = {measure.name: float(measure.value) for measure in BENCHMARK.measures(means)}
    sections = published["rewardbench_main"]
    for ours, theirs in (("chat", "Chat"), ("chat hard", "Chat Hard"), ("safety", "Safety"), ("reasoning", "Reasoning")):
        assert figures[ours] == pytest.approx(sections[theirs], abs=1e-12)
    assert figures["score"] == pytest.approx(sections["avg_Result_each_section"], abs=1e-12)
    assert figures["micro"] == pytest.approx(sections["absoluate_Result"], abs=1e-12)


def test_there_are_2985_items_in_23_subsets() -> None:
    assert len(BENCHMARK.expected) == 23
    assert sum(BENCHMARK.expected.values()) == 2985


def test_math_weighs_as_much_as_all_code() -> None:
    code = [f"hep-{language}" for language in ("cpp", "go", "java", "js", "python", "rust")]
    means = MeanCells(
        {
            "math-prm": np.array([0.5, 0.5]),
            **{name: np.array([1.0, 1.0]) for name in [*code, *BENCHMARK.expected] if name != "math-prm"},
        },
        dict(BENCHMARK.expected),
    )
    figures = {measure.name: float(measure.value) for measure in BENCHMARK.measures(means)}
    assert figures["reasoning"] == pytest.approx(0.75), "by the true counts it would be 0.844"


@pytest.mark.parametrize(("judged", "expected"), [(False, 0.0), (True, 0.5)])
def test_a_tie_is_wrong_for_a_head_and_half_for_a_judge(judged: bool, expected: float) -> None:
    rows = [item({"chosen": 1.0, "rejected": 1.0}, subset=subset) for subset in BENCHMARK.expected]
    assert measures_of(BENCHMARK, rows, judged=judged)["score"] == pytest.approx(expected)


def test_a_section_without_one_of_its_subsets_is_no_section() -> None:
    rows = [
        item({"chosen": 2.0, "rejected": 1.0}, subset=subset) for subset in BENCHMARK.expected if subset != "mt-bench-easy"
    ]
    figures = measures_of(BENCHMARK, rows)
    assert figures.keys().isdisjoint({"score", "chat"})
    assert (figures["safety"], figures["micro"]) == pytest.approx((1, 1))
