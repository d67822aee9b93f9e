"""The advice on RPO's scale: what it says of the margins, and what its scale does to them."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.exports.rpo_scale import scale_advice
from pipelines.scored_corpus.summary import QUANTILES


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def test_the_advice_for_a_few_margins() -> None:
    advice = scale_advice([0.1, 0.2, 2.0, 5.0, 8.0])
    assert (advice.pairs, advice.saturated, advice.no_signal) == (5, 0.4, 0.4)
    assert advice.quantiles == pytest.approx((0.1, 0.12, 0.2, 2.0, 5.0, 7.4, 8.0))
    assert advice.gt_reward_scale == pytest.approx(math.log(3) / 2)
    assert json.loads(json.dumps(asdict(advice))).keys() == {
        "pairs",
        "quantiles",
        "saturated",
        "no_signal",
        "gt_reward_scale",
    }


@pytest.mark.parametrize(
    ("margin", "saturated", "no_signal"), [(4.59, 0.0, 0.0), (4.6, 1.0, 0.0), (0.21, 0.0, 0.0), (0.2, 0.0, 1.0)]
)
def test_saturated_and_without_signal_are_probabilities(margin: float, saturated: float, no_signal: float) -> None:
    advice = scale_advice([margin])
    assert (advice.saturated, advice.no_signal) == (saturated, no_signal)
    assert (sigmoid(margin) > 0.99, sigmoid(margin) < 0.55) == (saturated == 1.0, no_signal == 1.0)


@given(margins=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_at_the_advised_scale_the_median_pair_is_three_to_one(margins: list[float]) -> None:
    advice = scale_advice(margins)
    assert sigmoid(advice.gt_reward_scale * float(np.median(margins))) == pytest.approx(0.75)
    assert advice.quantiles == tuple(np.quantile(margins, QUANTILES).tolist())
    assert 0 <= advice.saturated <= 1 >= advice.no_signal >= 0
