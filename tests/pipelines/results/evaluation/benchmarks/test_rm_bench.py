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


def test_the_matrix_by_hand() -> None:
    figures = measures_of(BENCHMARK, [item(sides([2, 1, 3], [0, 1, 2]))])
    assert figures == pytest.approx({"average": 2 / 3, "hard": 1 / 3, "normal": 2 / 3, "easy": 1})


def test_the_authors_numbers_on_their_files(shared_data: Path) -> None:
    for scorer, score in SCORERS.items():
        for domain in ("chat", "code"):
            folder = shared_data / "rm-bench"
            rows = json.loads((folder / f"{domain}_filtered.json").read_text())
            expected = json.loads((folder / "reference_metric_on_standin_scores.json").read_text())[scorer][domain]
            items = [item(sides(list(map(score, row["chosen"])), list(map(score, row["rejected"])))) for row in rows]
            figures = measures_of(BENCHMARK, items)
            for name in ("hard", "normal", "easy"):
                assert figures[name] == pytest.approx(expected[f"{name}_acc"], abs=1e-12)


def test_domains_weigh_the_same_and_safety_is_pooled() -> None:
    wins, losses = sides([1, 1, 1], [0, 0, 0]), sides([0, 0, 0], [1, 1, 1])
    items = [
        item(wins, domain="chat"),
        item(losses, domain="math"),
        item(losses, domain="math"),
        item(losses, domain="code"),
        item(wins, domain="safety-refuse"),
        item(wins, domain="safety-refuse"),
        item(wins, domain="safety-refuse"),
        item(losses, domain="safety-response"),
    ]
    figures = measures_of(BENCHMARK, items)
    assert figures["safety"] == pytest.approx(0.75), "pooled, where the mean of the two would be a half"
    assert figures["overall"] == pytest.approx((1 + 0 + 0 + 0.75) / 4)
    assert figures["overall (pooled)"] == pytest.approx(4 / 8)
    assert figures["hard"] == pytest.approx(figures["overall"])


def test_a_domain_is_what_begins_with_its_name() -> None:
    wins, losses = sides([1, 1, 1], [0, 0, 0]), sides([0, 0, 0], [1, 1, 1])
    names = ("chat", "math", "code", "safety-refuse", "safety-response")
    items = [item(wins, domain=name) for name in names]
    figures = measures_of(BENCHMARK, [*items, item(losses, domain="safety"), item(losses, domain="other")])
    assert figures["safety"] == pytest.approx(2 / 3), "as the authors' startswith"
    assert figures["overall"] == pytest.approx((3 + 2 / 3) / 4), "a domain that RM-Bench doesn't have isn't part of it"
    assert figures["overall (pooled)"] == pytest.approx(5 / 7)


def test_what_isnt_three_by_three_is_named_and_not_graded() -> None:
    grades = grades_of(BENCHMARK, [item(sides([1, 2], [0, 0, 0])), item({**sides([1, 2, 3], [0, 0]), "rejected[2]": None})])
    assert grades.cells == {}
    assert grades.reasons["all"] == {
        "2 chosen and 3 rejected responses, and RM-Bench has three of each": 1,
        "failed: no_verdict": 1,
    }


def test_equal_rewards_of_both_sides_are_no_win_and_counted() -> None:
    grades = grades_of(BENCHMARK, [item(sides([1, 1, 1], [1, 1, 1]))])
    assert grades.cells["all"].sum() == 0
    assert grades.tied == {"all": 1}


def test_without_all_domains_there_is_no_mean_of_domains() -> None:
    figures = measures_of(BENCHMARK, [item(sides([1, 1, 1], [0, 0, 0]), domain="chat")])
    assert "overall" not in figures
    assert (figures["chat"], figures["overall (pooled)"]) == (1, 1)


def test_without_a_part_of_safety_there_is_no_mean_of_domains() -> None:
    wins, losses = sides([1, 1, 1], [0, 0, 0]), sides([0, 0, 0], [1, 1, 1])
    failed = {**losses, "chosen[0]": None}
    names = ("chat", "math", "code", "safety-refuse")
    figures = measures_of(BENCHMARK, [*(item(wins, domain=name) for name in names), item(failed, domain="safety-response")])
    assert figures.keys().isdisjoint({"overall", "safety", "hard"}), "of the refusals alone they'd be other numbers"
    assert (figures["safety-refuse"], figures["overall (pooled)"]) == (1, 1)
