"""RMB: strict pairs, a best response that beats all others, and the mean of four sections."""

import pytest

from pipelines.results.evaluation.benchmark import Item
from pipelines.results.evaluation.benchmarks.rmb import BENCHMARK
from tests.support.evaluation import grades_of, item, measures_of, sides


def pair(chosen: float, rejected: float, goal: str = "Helpfulness") -> Item:
    return item({"chosen": chosen, "rejected": rejected}, category_path=f"Pairwise_set/{goal}/Chat")


def several(best: float, losers: list[float], goal: str = "Helpfulness") -> Item:
    return item(sides([best], losers), category_path=f"BoN_set/{goal}/Chat")


def test_a_best_response_beats_every_other_one() -> None:
    items = [several(3, [1, 2]), several(2, [1, 2]), several(1, [0, 2, 0])]
    assert measures_of(BENCHMARK, items)["best of n, helpfulness"] == pytest.approx(1 / 3)
    assert grades_of(BENCHMARK, items).tied == {"best of n, helpfulness": 1}
    assert measures_of(BENCHMARK, [pair(1, 1)])["pairs, helpfulness"] == 0, "a tie is wrong"
    missing = item({"chosen[0]": 1.0, "rejected[0]": None}, category_path="BoN_set/Helpfulness/Chat")
    twice = item(sides([2, 2], [1]), category_path="Helpfulness")
    reasons = {"failed: no_verdict": 1, "2 chosen responses, and the benchmark has one": 1}
    assert grades_of(BENCHMARK, [missing, twice]).reasons == {"best of n, helpfulness": reasons}


def test_the_score_is_the_mean_of_the_sections_and_not_of_the_items() -> None:
    items = [
        *[pair(2, 1)] * 6,
        *[pair(1, 2, "Harmlessness")] * 2,
        several(3, [1]),
        several(0, [1], "Harmlessness"),
    ]
    figures = measures_of(BENCHMARK, items)
    assert figures["score"] == 0.5
    assert figures["micro"] == 0.7
    assert measures_of(BENCHMARK, [*items, pair(1, 2, "Other")])["score"] == 0.5, "none of its four sections"
    assert "score" not in measures_of(BENCHMARK, items[:-1]), "a mean of fewer sections is another number"


def test_the_published_files_are_told_by_their_numbers() -> None:
    """17,131 pairs and 3,786 best-of-N items altogether, in RMB's repository."""
    pairs = {"pairs, helpfulness": 10_067, "pairs, harmlessness": 7_064}
    best = {"best of n, helpfulness": 2_109, "best of n, harmlessness": 1_677}
    assert (sum(pairs.values()), sum(best.values())) == (17_131, 3_786)
    assert BENCHMARK.split_of(pairs | best) == "published"
    assert BENCHMARK.split_of(pairs) is None
