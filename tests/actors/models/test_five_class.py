"""The distribution of ratings 0 to 4: its mean, its spread, and the order of its labels."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from actors.reward_model import families
from tests.actors.models.test_mean_variance import auroc
from tests.support.contract import Contract, Numbers, Outputs, reading
from tests.support.tiny_references import Reference, reference

WRONG = {
    "the ratings upside down": reading(lambda outputs: outputs.flip(-1)),
    "a softmax twice": reading(lambda outputs: outputs.softmax(dim=-1)),
}


@cache
def outputs() -> Reference:
    return reference("five-class")


class TestTinyFiveClass(Contract):
    model = "tiny-five-class"
    layouts = (1,)  # LlamaForSequenceClassification, as tiny-scalar
    wrong = WRONG

    def outputs(self, ids: Any) -> Any:
        return outputs()(ids)

    def numbers(self, prompts: Sequence[list[int]], outputs: Outputs) -> Numbers:
        (shares,) = (each[-1].softmax(dim=-1).tolist() for each in outputs)
        mean = sum(rating * share for rating, share in enumerate(shares))
        square = sum(rating**2 * share for rating, share in enumerate(shares))
        return {"mean": mean, "reward_std": (square - mean**2) ** 0.5, "reward": mean}

    def test_the_spread_tells_where_annotators_diverge(self, engine: Any) -> None:
        assert auroc(self, engine) >= 0.95


def test_ratings_begin_with_zero() -> None:
    family = families()["five-class"]
    sure = [0.0, 0.0, 0.0, 100.0, 0.0]
    reading = family.reading([[sure]], {"mean": 1.0})
    assert (reading.reward, reading.scores["reward_std"]) == pytest.approx((3.0, 0.0), abs=1e-9)
    reading = family.reading([[[50.0, 0.0, 0.0, 0.0, 50.0]]], {"mean": 1.0})
    assert (reading.reward, reading.scores["reward_std"]) == pytest.approx((2.0, 2.0), abs=1e-9)
