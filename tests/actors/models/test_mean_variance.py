"""A mean and the logarithm of a standard deviation: which label is which, and what the spread tells."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from actors.engine.fake_engine import FakeEngine
from actors.errors import SettingsError
from actors.models.scalar import Scalar
from actors.records import Prompt, RenderedRequest, RenderedResponse
from actors.reward_model import families
from actors.scorers.head_scorer import HeadScorer
from actors.settings.replica import ReadSettings
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


def beside(lam: float, *scores: dict[str, float]) -> list[float | None]:
    family = families()["mean-variance"].reading_by(ReadSettings(diverging_lambda=lam))
    return [row.get("diverging") for row in family.compared(scores)]


def test_two_responses_diverge_where_their_means_are_close_beside_their_spreads() -> None:
    good, bad, near = ({"mean": 3.0, "reward_std": 0.5}, {"mean": -1.0, "reward_std": 1.0}, {"mean": 2.5, "reward_std": 1.0})
    assert beside(1.0, good, bad) == [4.0 - 1.5] * 2
    assert beside(2.0, good, near) == [0.5 - 3.0] * 2
    assert beside(1.0, bad, good, near) == [4.0 - 1.5, 0.5 - 1.5, 0.5 - 1.5], "each with the best of the others"
    assert beside(1.0, good) == [None]
    assert beside(1.0, good, {}) == [None, None], "a response without a reward has none beside it"


def test_a_plug_ins_family_that_compares_is_stored_by_requests_without_saying_so() -> None:
    class Ranked(Scalar):
        def compared(self, scores: Sequence[Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
            return [{"place": float(place)} for place, _ in enumerate(scores)]

    assert Ranked().compares


def test_the_scorer_compares_the_responses_of_a_request() -> None:
    fake = FakeEngine(2, 100)
    try:
        request = RenderedRequest("hash", tuple(map(RenderedResponse, "ab")), (Prompt([1, 2], (0,)), Prompt([3, 4], (1,))))
        family = families()["mean-variance"]
        ((score, other),) = HeadScorer(family, family.card_weights(), fake).score_block([request])
    finally:
        fake.close()
    assert set(score.scores) == {"mean", "reward_std", "diverging"}
    expected = abs(score.scores["mean"] - other.scores["mean"]) - score.scores["reward_std"] - other.scores["reward_std"]
    assert score.scores["diverging"] == other.scores["diverging"] == pytest.approx(expected)


def test_what_only_pairs_have_is_no_part_of_a_reward() -> None:
    with pytest.raises(SettingsError, match="weights name diverging, which only pairs of responses have"):
        families()["mean-variance"].weights({"mean": 1.0, "diverging": 1.0})


def test_the_second_output_is_a_logarithm() -> None:
    family = families()["mean-variance"]
    assert family.reading([[[1.5, math.log(2.0)]]], {"mean": 1.0, "reward_std": -1.0}).reward == pytest.approx(-0.5)
    for log_std in (math.nan, math.inf, 1e4):
        assert not family.reading([[[1.5, log_std]]], {"mean": 1.0}).finite
