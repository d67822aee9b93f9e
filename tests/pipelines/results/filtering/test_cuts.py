"""Cuts keep the precision and the recall that labels showed, as often as was asked, or there is none."""

import duckdb
import numpy as np
import pytest

from bench.cascade import label_once
from pipelines.results.filtering.cuts import (
    draw_of_strata,
    enough_cases,
    fewest_cases,
    interval,
    is_bounded,
    possible_cuts,
    precision_cut,
    recall_cut,
)

RISK = 0.05


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    # 0 wrong of 59 is the least that shows 5 % at 95 %: 0.95 ** 59 = 0.0485. With one wrong it takes 93.
    assert fewest_cases(0.05, RISK) == 59
    assert [bool(is_bounded(wrong, cases, 0.05, RISK)) for wrong, cases in ((0, 58), (0, 59), (1, 92), (1, 93))] == [
        False, True, False, True,
    ]  # fmt: skip
    low, high = interval(3, 100, 0.95)
    assert (low, high) == pytest.approx((0.006230, 0.085176), abs=1e-6)  # R: binom.test(3, 100)
    assert interval(0, 0, 0.95) == (0.0, 1.0)
    assert is_bounded(enough_cases(0.05, RISK) * 0.05 // 2, enough_cases(0.05, RISK), 0.05, RISK)


@pytest.mark.parametrize("slope", [8.0, 2.0])
def test_what_is_kept_has_the_precision_and_the_recall_in_19_of_20_repetitions(slope: float) -> None:
    shares = [label_once(slope, seed, rows=5_000) for seed in range(100)]
    for aim in (0, 1):
        missed = [share for share in (pair[aim] for pair in shares) if share is not None and share < 0.9]
        assert len(missed) <= 5
    assert sum(recall is not None for _, recall in shares) == 100
    assert sum(precision is not None for precision, _ in shares) >= (90 if slope == 8.0 else 0)


def test_rewards_that_say_nothing_have_no_precise_cut() -> None:
    draw = np.random.default_rng(0)
    rewards, labels = draw.normal(size=400), draw.random(400) < 0.5
    assert precision_cut(rewards, labels, np.linspace(-2, 2, 50).tolist(), 0.9, RISK) is None


def test_too_few_true_labels_show_no_recall() -> None:
    labels = np.arange(400) < 28  # 0.9 ** 28 > 0.05: not even with none of them lost
    assert recall_cut(np.arange(400, dtype=np.float64), labels, [0.0, 200.0], 0.9, RISK) is None
    assert recall_cut(np.arange(400, dtype=np.float64), np.arange(400) < 29, [0.0, 200.0], 0.9, RISK) == 0.0


def test_a_cut_below_one_that_fails_is_never_tried() -> None:
    # Right above 0.5, wrong just below, right again further down: no later cut may come in by luck.
    rewards = np.linspace(0, 1, 400)
    labels = (rewards >= 0.5) | (rewards < 0.1)
    cut = precision_cut(rewards, labels, [0.0, 0.25, 0.5, 0.75], 0.9, RISK)
    assert cut == 0.5


@pytest.mark.parametrize(
    ("counts", "precision", "cut"),
    [
        ({1: (180, 0), 0: (0, 220)}, 0.97, 1),
        ({1: (110, 0), 0: (0, 290)}, 0.97, 1),
        ({1: (90, 0), 0: (0, 310)}, 0.95, 1),
        ({5: (40, 0), 4: (90, 60), 3: (60, 150)}, 0.9, 5),
        ({5: (40, 1), 4: (148, 2), 3: (60, 149)}, 0.9, 4),
        ({5: (80, 0), 4: (15, 5), 3: (60, 240)}, 0.95, 5),
        ({1: (7, 0), 0: (0, 13)}, 0.5, 1),
        ({1: (180, 0), 0: (215, 5)}, 0.97, 0),
        ({1: (180, 20), 0: (0, 200)}, 0.97, None),
        ({1: (50, 0), 0: (0, 350)}, 0.95, None),
    ],
)
def test_of_equal_rewards_the_highest_cut_with_enough_labels_is_tried(
    counts: dict[int, tuple[int, int]], precision: float, cut: int | None
) -> None:
    """Each reward with how many of its labels are true, and how many are not."""
    rewards = np.concatenate([np.full(sum(labels), reward, float) for reward, labels in counts.items()])
    is_true = np.concatenate([np.arange(sum(labels)) < labels[0] for labels in counts.values()])
    assert precision_cut(rewards, is_true, [*map(float, counts)], precision, RISK) == cut


@pytest.mark.parametrize(("share", "wrong_share"), [(0.45, 0.12), (0.22, 0.12)])
def test_of_equal_rewards_too_a_precision_that_isnt_there_is_rarely_shown(share: float, wrong_share: float) -> None:
    """Of all at 1 more are wrong than is allowed: whoever is shown a cut is in the risk."""
    draw = np.random.default_rng(0)
    shown = 0
    for _ in range(400):
        rewards = (draw.random(400) < share).astype(float)
        is_true = np.where(rewards == 1, draw.random(400) >= wrong_share, draw.random(400) < 0.5)
        shown += precision_cut(rewards, is_true, [0.0, 1.0], 1 - wrong_share + 0.001, RISK) is not None
    assert shown <= 30  # 5 % of 400 are 20, with a standard deviation of 4.4


def test_each_place_has_the_same_chance_to_be_drawn_though_strata_dont_divide_evenly() -> None:
    draw = np.random.default_rng(0)
    drawn = np.concatenate([draw_of_strata(7, 5, draw) for _ in range(7000)])
    assert np.bincount(drawn) == pytest.approx(np.full(7, 5000), rel=0.04)  # a standard deviation is 0.8 %
    for total, count in ((1, 1), (10, 10), (401, 400), (3960, 100), (3960, 3959)):
        places = draw_of_strata(total, count, draw)
        assert (len(set(places.tolist())), places.min() >= 0, places.max() < total) == (count, True, True)


@pytest.mark.parametrize(("count", "cuts", "greatest"), [(1, 1, 0), (399, 399, 398), (400, 200, 398), (12_345, 203, 12_322)])
def test_possible_cuts_are_quantiles_of_all_values_with_the_least(count: int, cuts: int, greatest: int) -> None:
    with duckdb.connect() as database:
        database.execute(f"create table responses as select range::double as reward from range({count})")
        database.execute("insert into responses values (null), (null)")
        quantiles = sorted(possible_cuts(database, "responses", "reward"))
    assert (len(quantiles), quantiles[0], quantiles[-1]) == (cuts, 0, greatest)
