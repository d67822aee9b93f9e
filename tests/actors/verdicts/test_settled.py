"""Whether the votes that are left can change a verdict."""

from itertools import permutations
from random import Random

import pytest

from actors.verdicts.settled import settled_side


def stop(values: list[float], error: float) -> tuple[int, int]:
    """The side that is settled, and after how many votes; 0 if none is before the last."""
    for count in range(1, len(values)):
        if side := settled_side(values[:count], len(values), error):
            return side, count
    return 0, len(values)


@pytest.mark.parametrize(
    ("values", "side", "count"),
    [([1.0] * 32, 1, 8), ([-1.0] * 32, -1, 8), ([0.5] * 32, 1, 13), ([1.0, -1.0] * 16, 0, 32), ([0.0] * 32, 0, 32)],
)
def test_votes_that_agree_settle_it_early(values: list[float], side: int, count: int) -> None:
    assert stop(values, 0.01) == (side, count)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_majority_of_all_votes_is_certain(sign: int) -> None:
    assert settled_side([sign] * 4, 8, 1e-12) == 0  # all of the other four may be the other way: a tie
    assert settled_side([sign] * 5, 8, 1e-12) == sign


@pytest.mark.parametrize("wins", range(8))
def test_over_all_orders_the_error_is_within_the_bound(wins: int) -> None:
    """Exact: each of the orders in which eight votes can be asked, for each count that isn't a win of the majority."""
    votes = [1] * min(wins, 4) + [-1] * (8 - min(wins, 4))
    orders = sorted(set(permutations(votes)))
    wrong = sum(stop(list(order), 0.3)[0] > 0 for order in orders)
    assert wrong / len(orders) <= 0.3


@pytest.mark.parametrize(("share", "most"), [(0.5, 0.02), (0.6, 0.01), (0.95, 0.01)])
def test_graded_votes_keep_to_the_bound(share: float, most: float) -> None:
    random, wrong, rounds = Random(f"{share}"), 0, 2000
    for _ in range(rounds):
        values = [random.choice((0.25, 0.5, 1)) * (1 if random.random() < share else -1) for _ in range(32)]
        side, _ = stop(values, 0.01)
        wrong += side * sum(values) < 0 or (side != 0 and sum(values) == 0)
    assert wrong / rounds <= most
