"""Comparisons become win rates, agreement, what the order decided, and strengths."""

import itertools
import math
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.verdicts.standing import PairwiseRecord, bradley_terry

Compared = tuple[Sequence[int], Sequence[float]]
FIRST, SECOND, TIE = (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)


def standing(at: int, *compared: Compared) -> dict[str, float]:
    return PairwiseRecord.of(compared)[at].as_scores()


def test_who_is_compared_with_none_has_no_standing() -> None:
    assert PairwiseRecord.of([((0,), ()), ((1,), ())]) == {}


def test_a_win_in_both_orders_is_a_win() -> None:
    assert standing(0, ((0, 1), FIRST), ((1, 0), SECOND)) == {
        "win_rate": 1.0, "losses": 0.0, "agreement": 1.0, "both_orders": 1.0, "order_decided": 0.0, "first_preferred": 0.0
    }  # fmt: skip


def test_orders_that_contradict_each_other_are_a_tie_and_a_bias() -> None:
    for index in (0, 1):
        assert standing(index, ((0, 1), FIRST), ((1, 0), FIRST)) == {
            "win_rate": 0.5, "losses": 0.0, "agreement": 0.5,
            "both_orders": 1.0, "order_decided": 1.0, "first_preferred": 1.0,
        }  # fmt: skip
        assert standing(index, ((0, 1), SECOND), ((1, 0), SECOND))["first_preferred"] == 0.0


def test_an_order_that_isnt_swapped_back_would_be_noticed() -> None:
    """The same merits with the positions as if nothing had been swapped: a win becomes a bias."""
    right = standing(0, ((0, 1), FIRST), ((1, 0), SECOND))
    forgotten = standing(0, ((0, 1), FIRST), ((0, 1), SECOND))
    assert right["win_rate"] == 1.0
    assert forgotten["win_rate"] == 0.5


def test_a_tie_in_one_order_is_no_bias() -> None:
    for other in (FIRST, SECOND, TIE):
        assert standing(0, ((0, 1), TIE), ((1, 0), other))["order_decided"] == 0.0


def test_both_orders_count_alike_however_many_votes_each_has() -> None:
    values = standing(0, *[((0, 1), FIRST)] * 3, ((1, 0), FIRST))
    assert values["win_rate"] == 0.5


def test_a_list_compares_each_with_each() -> None:
    pairwise_record = PairwiseRecord.of([((2, 0, 1), (3.0, 1.0, 2.0))])
    assert {name: item.win_rate for name, item in pairwise_record.items()} == {0: 0.0, 1: 0.5, 2: 1.0}


@given(st.lists(st.tuples(st.permutations(range(4)), st.lists(st.integers(0, 3), min_size=4, max_size=4)), min_size=1))
def test_what_one_wins_another_loses(compared: list[tuple[list[int], list[int]]]) -> None:
    pairwise_record = PairwiseRecord.of([(shown, [float(merit) for merit in merits]) for shown, merits in compared])
    assert sum(item.win_rate for item in pairwise_record.values()) == pytest.approx(len(pairwise_record) / 2)
    strengths = bradley_terry(pairwise_record)
    assert sum(strength for strength, _ in strengths.values()) == pytest.approx(0, abs=1e-6)
    assert all(math.isfinite(strength) and 0 < error < 10 for strength, error in strengths.values())


def test_unanimous_ties_agree() -> None:
    assert standing(0, *[((0, 1), TIE)] * 8)["agreement"] == 1.0


def test_losses_are_counted_by_opponent() -> None:
    pairwise_record = PairwiseRecord.of([((0, 1), SECOND), ((1, 0), FIRST), ((0, 2), SECOND), ((0, 3), FIRST)])
    assert [pairwise_record[index].as_scores()["losses"] for index in range(4)] == [2.0, 0.0, 0.0, 1.0]


def test_nobody_has_no_strength() -> None:
    assert bradley_terry({}) == {}


def test_strengths_are_those_of_the_likelihood() -> None:
    """Two that met n times: the derivative of the log-likelihood, with a drawn game each, is zero there."""
    pairwise_record = PairwiseRecord.of([((0, 1), FIRST)] * 7 + [((0, 1), SECOND)] * 3)
    (item, error), (other, _) = bradley_terry(pairwise_record)[0], bradley_terry(pairwise_record)[1]
    odds = 1 / (1 + math.exp(other - item))
    assert 7 - 10 * odds + 0.5 - 1 / (1 + math.exp(-item)) == pytest.approx(0, abs=1e-8)
    assert item == pytest.approx(-other)
    assert item > 0
    alone = 1 / (1 + math.exp(-item))
    # Of half their difference, which is what one is above the mean of the two.
    assert error == pytest.approx(1 / math.sqrt(2 * (alone * (1 - alone) + 2 * 10 * odds * (1 - odds))))


def test_more_games_make_strengths_surer() -> None:
    games = [((0, 1), FIRST), ((0, 1), FIRST), ((0, 1), SECOND), ((1, 2), FIRST), ((1, 2), FIRST), ((1, 2), SECOND)]
    few = bradley_terry(PairwiseRecord.of(games))
    many = bradley_terry(PairwiseRecord.of(games * 20))
    assert few[0][0] > few[1][0] > few[2][0]
    assert all(many[index][1] < few[index][1] for index in range(3))


def test_a_win_against_a_strong_one_counts_more() -> None:
    games = [((0, 1), FIRST), ((1, 2), FIRST), ((1, 3), FIRST), ((4, 2), FIRST)]
    strengths = bradley_terry(PairwiseRecord.of(games))
    assert strengths[0][0] > strengths[4][0]


@given(
    st.lists(st.integers(0, 2), min_size=3, max_size=6), st.sampled_from([2, 4, 6, 10]), st.randoms(use_true_random=False)
)
def test_responses_with_equal_records_tie_exactly(texts: list[int], votes: int, draw: Random) -> None:
    """Each pair in both orders, and equal pairs of texts with equal votes: only the places in the sums are others."""
    merits: dict[tuple[int, int, int], tuple[float, float]] = {}
    compared: list[Compared] = []
    for item, other in itertools.combinations(range(len(texts)), 2):
        for shown in ((item, other), (other, item)):
            for vote in range(votes // 2):
                key = (texts[shown[0]], texts[shown[1]], vote)
                compared.append((shown, merits.setdefault(key, (draw.randrange(3), draw.randrange(3)))))
    records = PairwiseRecord.of(compared)
    strengths = bradley_terry(records)
    for item, other in itertools.combinations(range(len(texts)), 2):
        if texts[item] == texts[other]:
            assert records[item].win_rate == records[other].win_rate
            assert strengths[item][0] == strengths[other][0]
