"""Effects by hand: their sign, unit, interval and verdicts; planted biases are seen, and none where there is none."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from bench.certify import PLANTED, certify_once, seen
from pipelines.results.certificates.certificate import (
    CONFIDENCE,
    LEAST_PAIRS,
    ORDER,
    SEED,
    Effect,
    Finding,
    Pair,
    Trial,
    measure,
)

REWARDS = np.random.default_rng(0).normal(size=(200, 2)) * 3


def effect_of(name: str, pairs: list[Pair], single_verdicts: bool = False) -> Effect:
    rewards = [reward for pair in pairs for reward in pair.before if reward is not None]
    _, (effect,) = measure([Trial(name, "", pairs, {})], rewards, single_verdicts)
    return effect


@pytest.mark.parametrize("bias", PLANTED)
def test_a_planted_bias_is_seen(bias: str) -> None:
    add, expected = PLANTED[bias]
    for seed in range(2):
        assert expected <= seen(certify_once(add, seed))


def test_a_clean_judge_has_no_false_alarm_on_20_seeds() -> None:
    assert [seed for seed in range(20) if seen(certify_once(lambda place, text: 0.0, seed, questions=200))] == []


def test_size_and_interval_are_in_deviations_of_the_originals_and_hold_together() -> None:
    gains = np.random.default_rng(1).normal(0.5, 1.0, size=200)
    pairs = [Pair([a, b], [a, b + gain], 1) for (a, b), gain in zip(REWARDS.tolist(), gains, strict=True)]
    deviation, effects = measure([Trial(name, "", pairs, {}) for name in "abcde"], REWARDS.ravel().tolist(), False)
    assert deviation == pytest.approx(REWARDS.std(ddof=1))
    bounds = ttest_1samp(gains / deviation, 0).confidence_interval(1 - (1 - CONFIDENCE) / 10)
    for effect in effects:
        assert effect.change == pytest.approx(gains.mean())
        assert effect.size == pytest.approx(gains.mean() / deviation)
        assert effect.size_interval == pytest.approx((bounds.low, bounds.high))
        assert effect.finding is Finding.SEEN
        best = [(a > b) != (a > b + gain) for (a, b), gain in zip(REWARDS.tolist(), gains, strict=True)]
        assert effect.verdicts == 200
        assert effect.flipped == pytest.approx(np.mean(best))
        assert effect.flipped_interval is not None
        assert effect.flipped_interval[0] < np.mean(best) < effect.flipped_interval[1]


def test_a_judge_that_prefers_the_first_place_has_a_positive_effect_of_order() -> None:
    # The first place is worth 1. Reversed, the last response has it, and the first one has lost it.
    pairs = [Pair([a + 1, b], [a, b + 1], 0) for a, b in REWARDS.tolist()]
    effect = effect_of(ORDER, pairs)
    assert effect.change == pytest.approx(1.0)
    assert effect.finding is Finding.SEEN


def test_a_seed_has_a_size_though_its_changes_cancel() -> None:
    pairs = [Pair([a, b], [a + (-1) ** place, b], 0) for place, (a, b) in enumerate(REWARDS.tolist())]
    assert effect_of("length", pairs).finding is Finding.NOT_SEEN
    assert effect_of(SEED, pairs).change == pytest.approx(1.0)
    assert effect_of(SEED, pairs).finding is Finding.SEEN
    # A few large moves: Student's interval reaches below 0, where no move without a sign is, and yet they were seen.
    few = effect_of(SEED, [Pair([a, b], [a + 5 * (place < 3), b], 0) for place, (a, b) in enumerate(REWARDS.tolist())])
    assert few.finding is Finding.SEEN
    assert few.size_interval is not None
    assert few.size_interval[0] == 0
    assert effect_of(SEED, [Pair([a, b], [a, b], 0) for a, b in REWARDS.tolist()]).finding is Finding.NOT_SEEN


def test_ties_are_verdicts_and_single_responses_have_one_only_where_a_text_says_it() -> None:
    ties = [Pair([1.0, 1.0 + 1e-7, place], [1.0, 1.0, place], 0) for place in np.linspace(-1, 0, 40).tolist()]
    assert (effect_of("length", ties).verdicts, effect_of("length", ties).flipped) == (40, 0.0)
    single = [Pair([float(place % 5)], [float(place % 5) + (place % 4 == 0)], 0) for place in range(40)]
    assert effect_of("length", single).verdicts == 0
    assert effect_of("length", single, single_verdicts=True).flipped == pytest.approx(0.25)
    unknown = [Pair([a, None], [a, b], 0) for a, b in REWARDS.tolist()]
    assert (effect_of("length", unknown).pairs, effect_of("length", unknown).verdicts) == (200, 0)


def test_what_shows_nothing_passes_no_gate() -> None:
    same = [Pair([a, b], [a, b], 0) for a, b in REWARDS.tolist()]
    assert effect_of("length", same).failure(0.01) is not None, "of 200 pairs none moved, and 4 % may"
    assert effect_of("length", same).failure(0.3) is None
    few = effect_of("length", same[: LEAST_PAIRS - 1])
    assert few.finding is Finding.TOO_FEW
    assert few.failure(9.0) == f"length: too few pairs, 29 pairs of at least {LEAST_PAIRS}"
    flat = effect_of("length", [Pair([1.0, 1.0], [1.0, 1.0], 0)] * 100)
    assert flat.finding is Finding.NO_SPREAD
    assert flat.failure(9.0) is not None
    _, (impossible,) = measure([Trial(ORDER, "", [], {"same_prompt": 5}, impossible=True)], [1.0, 2.0], False)
    assert (impossible.finding, impossible.failure(0.1)) == (Finding.NOT_SHOWN, None)


def test_a_gate_asks_for_the_whole_interval() -> None:
    noise = np.random.default_rng(2).normal(0.0, 1.0, size=200).tolist()
    pairs = [Pair([a, b], [a + gain, b], 0) for (a, b), gain in zip(REWARDS.tolist(), noise, strict=True)]
    effect = effect_of("length", pairs)
    assert effect.finding is Finding.NOT_SEEN
    most = max(map(abs, effect.size_interval or (math.nan,)))
    assert effect.failure(most) is None
    assert "isn't shown to be within" in str(effect.failure(0.99 * most))


@pytest.mark.parametrize(("pairs", "share"), [(30, 0.08), (30, 0.12), (60, 0.08), (300, 0.06)])
def test_a_gate_lets_a_judge_of_grades_pass_by_chance_in_one_of_a_hundred_certificates(pairs: int, share: float) -> None:
    draws = np.random.default_rng(6)
    passed = held = 0
    for _ in range(300):
        grades = draws.choice([1.0, 2.0, 3.0, 4.0, 5.0], pairs, p=[0.1, 0.15, 0.25, 0.3, 0.2])
        changed = np.where(draws.random(pairs) < share, 1.0, grades)
        trials = [Trial("length", "", [Pair([a], [b], 0) for a, b in zip(grades, changed, strict=True)], {})]
        trials += [Trial(name, "", [Pair([a], [a], 0) for a in grades], {}) for name in "abcdefgh"]
        deviation, (effect, *_) = measure(trials, grades.tolist(), True)
        truth = share * (1 - 3.35) / deviation
        assert effect.size_interval is not None
        low, high = effect.size_interval
        held += low <= truth <= high
        passed += effect.failure(0.99 * abs(truth)) is None
    assert passed <= 3
    assert held >= 297, f"it holds the truth {held} times of 300"
