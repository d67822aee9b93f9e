"""How many candidates a prompt gets: drawn round by round, as the sampling step does it."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.run.sampling.budget import CandidateBudget, expected_gain
from pipelines.settings.run_settings import DrawSettings


def rounds(settings: DrawSettings, rewards: Sequence[float | None]) -> list[int]:
    """How many are drawn in each round, where these are what candidates come to; None has no reward."""
    budget, drawn, result = CandidateBudget(settings), 0, list[int]()
    while more := budget.next_count(drawn, [reward for reward in rewards[:drawn] if reward is not None]):
        assert 0 < more <= settings.n - drawn
        result.append(more)
        drawn += more
    return result


def test_a_fixed_number_is_drawn_at_once() -> None:
    assert rounds(DrawSettings(n=8), [1.0] * 8) == [8]
    assert rounds(DrawSettings(n=1), [None]) == [1]
    assert rounds(DrawSettings(n=8), [None] * 8) == [8], "what can't be judged isn't drawn again"


def test_enough_is_enough() -> None:
    bar = DrawSettings(n=16, enough=1.0)
    assert rounds(bar, [1.0] + [0.0] * 15) == [1]
    assert rounds(bar, [0.9, 1.5] + [0.0] * 14) == [1, 1]
    assert rounds(bar, [0.0, 0.0, 0.0, 2.0] + [0.0] * 12) == [1, 1, 1, 1]
    assert rounds(bar, [0.0] * 4 + [1.0] + [0.0] * 11) == [1, 1, 1, 1, 2]


def test_what_is_never_enough_comes_to_all_in_rounds_that_grow_by_half() -> None:
    assert rounds(DrawSettings(n=16, enough=1.0), [0.0] * 16) == [1, 1, 1, 1, 2, 3, 4, 3]
    assert rounds(DrawSettings(n=16, enough=1.0), [None] * 16) == [1, 1, 1, 1, 2, 3, 4, 3]
    assert len(rounds(DrawSettings(n=1024, enough=1.0), [0.0] * 1024)) < 20


def test_a_small_expected_gain_ends_it() -> None:
    alike = [0.0, 0.01, -0.01, 0.02, 0.0, 0.01] * 6
    assert rounds(DrawSettings(n=32, min_gain=0.1), alike) == [4]
    assert rounds(DrawSettings(n=32, min_gain=1e-9), alike)[:3] == [4, 2, 3]
    assert rounds(DrawSettings(n=32, min_gain=0.1), [5.0] * 32) == [4], "equals promise nothing better"


def test_less_than_four_rewards_tell_nothing() -> None:
    settings = DrawSettings(n=16, min_gain=0.1)
    assert CandidateBudget(settings).next_count(4, [1.0, 1.0, 1.0]) == 2
    assert CandidateBudget(settings).next_count(4, [1.0] * 4) == 0
    assert rounds(settings, [None, 1.0, None, 1.0, None, 1.0, 1.0, None] + [1.0] * 8) == [4, 2, 3]
    assert rounds(settings, [None] * 16) == [4, 2, 3, 4, 3]
    assert rounds(DrawSettings(n=2, min_gain=0.1), [1.0, 1.0]) == [2], "never more than n"


def test_with_both_it_ends_at_the_first_of_them() -> None:
    both = DrawSettings(n=16, enough=1.0, min_gain=0.1)
    assert rounds(both, [1.0] + [0.0] * 15) == [1]
    assert rounds(both, [0.5] * 16) == [1, 1, 1, 1]
    assert sum(rounds(both, [-100.0, 0.0, 0.5] * 6)) == 16


SETTINGS = st.builds(
    DrawSettings,
    n=st.integers(1, 100),
    enough=st.none() | st.floats(-2, 2),
    min_gain=st.none() | st.floats(1e-6, 2),
)
REWARDS = st.lists(st.none() | st.floats(-3, 3) | st.just(1.0), min_size=100, max_size=100)


@given(SETTINGS, REWARDS)
def test_it_always_ends_and_never_takes_more_than_n(settings: DrawSettings, rewards: list[float | None]) -> None:
    actual_rounds = rounds(settings, rewards)
    drawn = sum(actual_rounds)
    assert 1 <= drawn <= settings.n
    if not settings.adaptive:
        assert actual_rounds == [settings.n]
    taken = [reward for reward in rewards[:drawn] if reward is not None]
    if drawn < settings.n:
        assert (settings.enough is not None and max(taken) >= settings.enough) or (
            settings.min_gain is not None and len(taken) >= 4 and expected_gain(taken) < settings.min_gain
        )


@given(st.integers(1, 1024), st.floats(0.5, 2))
def test_at_most_a_third_is_drawn_in_vain(n: int, bar: float) -> None:
    """However late the candidate comes that is enough."""
    for place in {0, n // 3, n // 2, n - 1}:
        drawn = sum(rounds(DrawSettings(n=n, enough=bar), [0.0] * place + [bar] + [0.0] * (n - place - 1)))
        assert drawn - (place + 1) <= drawn / 3


# --- the expected improvement ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rewards",
    [[0.0, 1.0], [1.0, 2.0, 3.0, 4.0], [-5.0, -5.0, -5.0, 3.0], [0.0, 0.0, 0.1, 100.0], [1e-3, 2e-3, 4e-3, 1.1e-2]],
)
def test_the_expected_gain_is_that_of_an_integral(rewards: list[float]) -> None:
    """Of max(0, x - best) under the normal distribution with the rewards' mean and (sample's) deviation."""
    best, mean, spread = max(rewards), statistics.fmean(rewards), statistics.stdev(rewards)
    x = np.linspace(best, max(best, mean) + 12 * spread, 200_001)
    density = np.exp(-(((x - mean) / spread) ** 2) / 2) / (spread * math.sqrt(2 * math.pi))
    assert expected_gain(rewards) == pytest.approx(np.trapezoid((x - best) * density, x), rel=1e-6)


@given(st.lists(st.integers(-100, 100).map(float), min_size=4, max_size=12))
def test_the_gain_is_in_the_unit_of_the_rewards_and_knows_no_zero(rewards: list[float]) -> None:
    gain = expected_gain(rewards)
    assert 0.0 <= gain <= statistics.stdev(rewards)
    assert expected_gain([8 * reward + 64 for reward in rewards]) == pytest.approx(8 * gain, rel=1e-6, abs=1e-9)
