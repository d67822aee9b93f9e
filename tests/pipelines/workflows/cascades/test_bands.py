"""Bands on made-up scores: errors stay below their bounds for judges that agree, are noisy, and say the contrary."""

import math

import numpy as np
import pytest

from bench.cascade import BOUND, SMALL_JUDGES, cascade_once
from pipelines.settings.run_settings import BoundSettings
from pipelines.workflows.cascades.bands import Allowed, Band, calibrate

CUTS = np.linspace(0, 1, 101)


@pytest.mark.parametrize("judge", SMALL_JUDGES)
def test_the_errors_are_within_their_bounds_in_19_of_20_repetitions(judge: str) -> None:
    results = [cascade_once(*SMALL_JUDGES[judge], seed, rows=20_000) for seed in range(60)]
    assert sum(result.error > BOUND.error or result.miss > BOUND.miss for result in results) <= 3
    shares = {"agreeing": (0.0, 0.36), "noisy": (0.6, 1.0), "adversarial": (0.9, 1.0)}
    low, high = shares[judge]
    assert low <= np.mean([result.large for result in results]) <= high


def test_the_shares_of_several_models_add_up_to_what_is_allowed() -> None:
    for models in (1, 2, 3):
        allowed = Allowed.of(BoundSettings(where="x", error=0.1, miss=0.2, confidence=0.9), models)
        # T = 1, and each model has as many wrong and lost as it may: F of a model is wrong / (1 - wrong).
        wrong, lost = models * allowed.wrong / (1 - allowed.wrong), models * allowed.lost
        assert wrong / (1 - lost + wrong) == pytest.approx(0.1)
        assert lost == pytest.approx(0.2)
        assert 2 * models * allowed.risk == pytest.approx(0.1)


def test_without_a_miss_nothing_is_dropped() -> None:
    rewards = np.linspace(0, 1, 2000)
    allowed = Allowed.of(BoundSettings(where="x", miss=0), 1)
    assert allowed.risk == pytest.approx(0.05)
    band = calibrate(rewards, rewards >= 0.5, CUTS, allowed)
    assert band.low == -math.inf
    assert 0.45 < band.high <= 0.5


def test_a_judge_that_agrees_wholly_leaves_nothing_open() -> None:
    rewards = np.linspace(0, 1, 4000)
    band = calibrate(rewards, rewards >= 0.5, CUTS, Allowed.of(BOUND, 1))
    assert band.low == band.high


def test_too_few_kept_ones_and_rewards_that_are_missing_leave_all_open() -> None:
    allowed = Allowed.of(BOUND, 1)
    rewards = np.linspace(0, 1, 4000)
    assert calibrate(rewards, np.arange(4000) >= 4000 - allowed.fewest + 1, CUTS, allowed) == Band()
    unscored = np.full(4000, np.nan)
    assert calibrate(unscored, rewards >= 0.5, np.zeros(0), allowed) == Band()
