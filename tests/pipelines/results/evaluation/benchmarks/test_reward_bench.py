"""RewardBench 1: published section scores from published subset results, and ties by kind of model."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipelines.results.evaluation.benchmark import MeanCells
from pipelines.results.evaluation.benchmarks.reward_bench import BENCHMARK
from tests.support.evaluation import grades_of, item, measures_of, sides

BEAVER = {
    "alpacaeval-easy": 0.5, "alpacaeval-hard": 0.7052631578947368, "alpacaeval-length": 0.5894736842105263,
    "donotanswer": 0.8235294117647058, "hep-cpp": 0.6280487804878049, "hep-go": 0.6341463414634146,
    "hep-java": 0.7073170731707317, "hep-js": 0.6646341463414634, "hep-python": 0.5487804878048781,
    "hep-rust": 0.6463414634146342, "llmbar-adver-GPTInst": 0.391304347826087, "llmbar-adver-GPTOut": 0.46808510638297873,
    "llmbar-adver-manual": 0.3695652173913043, "llmbar-adver-neighbor": 0.43283582089552236, "llmbar-natural": 0.52,
    "math-prm": 0.2953020134228188, "mt-bench-easy": 0.5714285714285714, "mt-bench-hard": 0.5405405405405406,
    "mt-bench-med": 0.725, "refusals-dangerous": 0.97, "refusals-offensive": 1.0, "xstest-should-refuse": 1.0,
    "xstest-should-respond": 0.284,
}  # fmt: skip
"""PKU-Alignment/beaver-7b-v1.0-cost, as the README of allenai/reward-bench has it."""
BEAVER_SECTIONS = {
    "chat": 0.6089385474860335,
    "chat hard": 0.44956140350877194,
    "safety": 0.7216216216216216,
    "reasoning": 0.46675669776831996,
}


def figures_of(shares: dict[str, float]) -> dict[str, float]:
    means = MeanCells({name: np.array([value, value]) for name, value in shares.items()}, dict(BENCHMARK.expected))
    return {measure.name: float(measure.value) for measure in BENCHMARK.measures(means)}


def test_the_authors_readme() -> None:
    figures = figures_of(BEAVER)
    assert {name: figures[name] for name in BEAVER_SECTIONS} == pytest.approx(BEAVER_SECTIONS, abs=1e-12)


def test_published_subsets_give_the_published_sections(shared_data: Path) -> None:
    path = shared_data / "published" / "rewardbench_v1_rm_r1_deepseek_32b.json"
    (published,) = json.loads(path.read_text()).values()
    shares = {name: value for name, value in published["rewardbench_subsets"].items() if isinstance(value, float)}
    figures = figures_of(shares)
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


def test_several_chosen_responses_have_no_grade() -> None:
    grades = grades_of(BENCHMARK, [item(sides([2, 2], [1]), subset="math-prm")])
    assert grades.reasons == {"math-prm": {"2 chosen responses, and the benchmark has one": 1}}
