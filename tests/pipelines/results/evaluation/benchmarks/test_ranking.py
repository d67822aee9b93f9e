"""Kendall's tau of rows with a full ranking, against the definition over all pairs, and by hand."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.results.evaluation.benchmarks.ranking import BENCHMARK, taus
from tests.support.evaluation import grades_of, item, measures_of


def ranked(*rewards: float | None) -> dict[str, float | None]:
    """Rewards from the best response to the worst, in a row that has them the other way round."""
    return dict(reversed([(f"rank[{index}]", value) for index, value in enumerate(rewards)]))


def test_tau_by_hand() -> None:
    assert taus([3, 2, 1]) == (1, 1)
    assert taus([1, 2, 3]) == (-1, -1)
    assert taus([3, 1, 2]) == pytest.approx((1 / 3, 1 / 3))
    assert taus([2, 2, 1]) == pytest.approx((2 / 3, 2 / math.sqrt(6))), "scipy.stats.kendalltau: 0.8164965809277261"
    assert taus([1, 1, 1]) == (0, 0)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=8))
def test_a_reversed_ranking_has_the_opposite_tau(rewards: list[int]) -> None:
    forward, backward = taus(rewards), taus(rewards[::-1])
    assert forward == pytest.approx([-value for value in backward])
    strict = sum(better > worse for better, worse in itertools.combinations(rewards, 2))
    assert -1 <= forward[0] <= 1
    assert (forward[0] == 1) == (strict == math.comb(len(rewards), 2))


def test_ranks_count_and_not_the_order_of_a_row() -> None:
    figures = measures_of(BENCHMARK, [item(ranked(*range(12, 0, -1))), item(ranked(1, 2))])
    assert (figures["tau"], figures["best first"]) == (0, 0.5), "rank[10] comes after rank[9]"


def test_what_isnt_ranked_is_listed() -> None:
    grades = grades_of(BENCHMARK, [item({"completions[0]": 1.0, "completions[1]": 2.0}), item(ranked(1, None))])
    assert grades.reasons["all"] == {"the row doesn't rank two responses or more": 1, "failed: no_verdict": 1}
    assert grades_of(BENCHMARK, [item(ranked(1, 1, 0))]).tied == {"all": 1}
