"""A mean and the logarithm of a standard deviation: which label is which, and what the spread tells."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from actors.reward_model import families
from tests.support.contract import Contract, Numbers, Outputs, reading
from tests.support.models import from_dicts
from tests.support.tiny_references import Reference, reference
from tiny_models.annotators import rated

WRONG = {
    "the labels swapped": reading(lambda outputs: outputs.flip(-1)),
    "a softmax": reading(lambda outputs: outputs.softmax(dim=-1)),
    "a variance": reading(lambda outputs: outputs * outputs.new_tensor([1.0, 2.0])),
}


@cache
def outputs() -> Reference:
    return reference("mean-variance")


class TestTinyMeanVariance(Contract):
    model = "tiny-mean-variance"
    layouts = (1,)  # LlamaForSequenceClassification, as tiny-scalar
    wrong = WRONG
    subtle = frozenset({"a variance"})  # of the spread, which isn't part of the reward

    def outputs(self, ids: Any) -> Any:
        return outputs()(ids)

    def numbers(self, prompts: Sequence[list[int]], outputs: Outputs) -> Numbers:
        ((mean, log_std),) = (each[-1].tolist() for each in outputs)
        return {"mean": mean, "reward_std": math.exp(log_std), "reward": mean}

    def test_the_spread_tells_where_annotators_diverge(self, engine: Any) -> None:
        assert auroc(self, engine) >= 0.95


def auroc(contract: Contract, engine: Any) -> float:
    """How often a response that annotators diverge about has the larger spread than one that they agree about."""
    names = list(rated(51, 200, "held-out"))
    result = contract.scored(engine, [from_dicts(item.context, item.response) for item in names])
    spread = {
        truth: [numbers["reward_std"] for numbers, item in zip(result, names, strict=True) if item.diverging is truth]
        for truth in (True, False)
    }
    assert min(map(len, spread.values())) >= 50
    higher = [high > low for high in spread[True] for low in spread[False]]
    print(f"{contract.model}: AUROC {sum(higher) / len(higher):.3f}")
    return sum(higher) / len(higher)


def test_the_second_output_is_a_logarithm() -> None:
    family = families()["mean-variance"]
    assert family.reading([[[1.5, math.log(2.0)]]], {"mean": 1.0, "reward_std": -1.0}).reward == pytest.approx(-0.5)
    for log_std in (math.nan, math.inf, 1e4):
        assert not family.reading([[[1.5, log_std]]], {"mean": 1.0}).finite
