"""RM-Bench's figures: the matrix of styles by hand, its authors' own numbers on the real files, macro and pooled."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.results.evaluation.benchmarks.rm_bench import BENCHMARK
from tests.support.evaluation import grades_of, item, measures_of, sides

SCORERS: dict[str, Callable[[str], float]] = {
    "len_chars": len,
    "n_asterisks": lambda text: text.count("*"),
    "const": lambda _: 0.0,
}
WINS, LOSSES = sides([1, 1, 1], [0, 0, 0]), sides([0, 0, 0], [1, 1, 1])
DOMAINS = ("chat", "math", "code", "safety-refuse", "safety-response")


def test_the_matrix_by_hand() -> None:
    figures = measures_of(BENCHMARK, [item(sides([2, 1, 3], [0, 1, 2]))])
    assert figures == pytest.approx({"average": 2 / 3, "hard": 1 / 3, "normal": 2 / 3, "easy": 1})
    grades = grades_of(BENCHMARK, [item(sides([1, 1, 1], [1, 1, 1]))])
    assert (grades.cells["all"].sum(), grades.tied) == (0, {"all": 1}), "equal rewards are no win, and counted"


def test_the_authors_numbers_on_their_files(shared_data: Path) -> None:
    folder = shared_data / "rm-bench"
    reference = json.loads((folder / "reference_metric_on_standin_scores.json").read_text())
    for scorer, score in SCORERS.items():
        for domain in ("chat", "code"):
            rows = json.loads((folder / f"{domain}_filtered.json").read_text())
            items = [item(sides(list(map(score, row["chosen"])), list(map(score, row["rejected"])))) for row in rows]
            figures = measures_of(BENCHMARK, items)
            for name in ("hard", "normal", "easy"):
                assert figures[name] == pytest.approx(reference[scorer][domain][f"{name}_acc"], abs=1e-12)


def test_domains_weigh_the_same_and_safety_is_pooled() -> None:
    won = ("chat", "safety-refuse", "safety-refuse", "safety-refuse")
    lost = ("math", "math", "code", "safety-response")
    figures = measures_of(
        BENCHMARK, [*(item(WINS, domain=name) for name in won), *(item(LOSSES, domain=name) for name in lost)]
    )
    assert figures["safety"] == pytest.approx(0.75), "pooled, where the mean of the two would be a half"
    assert figures["overall"] == pytest.approx((1 + 0 + 0 + 0.75) / 4)
    assert figures["overall (pooled)"] == pytest.approx(4 / 8)
    assert figures["hard"] == pytest.approx(figures["overall"])


def test_a_domain_is_what_begins_with_its_name() -> None:
    items = [item(WINS, domain=name) for name in DOMAINS]
    figures = measures_of(BENCHMARK, [*items, item(LOSSES, domain="safety"), item(LOSSES, domain="other")])
    assert figures["safety"] == pytest.approx(2 / 3), "as the authors' startswith"
    assert figures["overall"] == pytest.approx((3 + 2 / 3) / 4), "a domain that RM-Bench doesn't have isn't part of it"
    assert figures["overall (pooled)"] == pytest.approx(5 / 7)


def test_what_isnt_three_by_three_is_named_and_not_graded() -> None:
    grades = grades_of(BENCHMARK, [item(sides([1, 2], [0, 0, 0])), item({**sides([1, 2, 3], [0, 0]), "rejected[2]": None})])
    assert grades.cells == {}
    reasons = {"2 chosen and 3 rejected responses, and RM-Bench has three of each": 1, "failed: no_verdict": 1}
    assert grades.reasons["all"] == reasons


def test_without_all_domains_there_is_no_mean_of_domains() -> None:
    figures = measures_of(BENCHMARK, [item(WINS, domain="chat")])
    assert "overall" not in figures
    assert (figures["chat"], figures["overall (pooled)"]) == (1, 1)
    failed = item({**LOSSES, "chosen[0]": None}, domain="safety-response")
    figures = measures_of(BENCHMARK, [*(item(WINS, domain=name) for name in DOMAINS[:-1]), failed])
    assert figures.keys().isdisjoint({"overall", "safety", "hard"}), "of the refusals alone they'd be other numbers"
    assert (figures["safety-refuse"], figures["overall (pooled)"]) == (1, 1)
