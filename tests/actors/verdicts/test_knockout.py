"""A knock-out asks as few pairs as settle the winner."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.verdicts.knockout import Pair, next_pairs


def play(strengths: list[float]) -> tuple[list[Pair], int, list[int]]:
    """All pairs that were asked, in how many rounds, and who is left, where the stronger always wins."""
    shares: dict[Pair, float] = {}
    rounds = 0
    players = range(len(strengths))
    while pairs := next_pairs(players, shares):
        assert not set(pairs) & set(shares), "no pair is asked twice"
        assert len({player for pair in pairs for player in pair}) == 2 * len(pairs), "nobody meets two at once"
        rounds += 1
        for item, other in pairs:
            ahead = strengths[item] - strengths[other]
            shares[item, other] = 1.0 if ahead > 0 else 0.0 if ahead < 0 else 0.5
    lost = {entry if share < 0.5 else other for (entry, other), share in shares.items() if share != 0.5}
    return list(shares), rounds, [player for player in players if player not in lost]


@given(st.permutations([float(number) for number in range(9)]))
def test_the_best_of_n_is_found_in_n_less_one_comparisons(strengths: list[float]) -> None:
    request, rounds, remaining = play(strengths)
    assert remaining == [strengths.index(8.0)]
    assert len(request) == 8
    assert rounds == math.ceil(math.log2(9))


@given(st.lists(st.integers(0, 2).map(float), min_size=1, max_size=9))
def test_with_ties_all_of_the_best_are_left(strengths: list[float]) -> None:
    request, _, remaining = play(strengths)
    assert remaining == [index for index, strength in enumerate(strengths) if strength == max(strengths)]
    assert len(request) <= len(strengths) * (len(strengths) - 1) / 2
    if len(strengths) > 1:
        assert {player for pair in request for player in pair} == set(range(len(strengths))), "everybody is judged"


@pytest.mark.parametrize("players", [[], [3]])
def test_nobody_meets_themselves(players: list[int]) -> None:
    assert next_pairs(players, {}) == []
