"""The logit of token id 0: which logit, and where, both matter, and nothing in the checkpoint says so."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pytest
import torch

from tests.support.contract import Contract, Wrong, transformers_model
from tests.support.models import from_dicts
from tiny_models.synthetic import pairs


def all_logits(ids: Sequence[int]) -> torch.Tensor:
    """Of all tokens that could come next, at each token."""
    return _all_logits(tuple(ids))


@lru_cache(maxsize=4)
def _all_logits(ids: tuple[int, ...]) -> torch.Tensor:
    logits: torch.Tensor = transformers_model("first-logit", "AutoModelForCausalLM")(torch.tensor([ids])).logits[0]
    return logits


def other(change: Any) -> Wrong:
    """Another number out of all logits."""
    return lambda contract, prompts: contract.numbers(prompts, [change(all_logits(ids)) for ids in prompts])


WRONG = {
    "another id": other(lambda logits: logits[:, 1:2]),
    "a log-probability": other(lambda logits: logits.log_softmax(dim=-1)[:, :1]),
    "a probability": other(lambda logits: logits.softmax(dim=-1)[:, :1]),
}


class TestTinyFirstLogit(Contract):
    model = "tiny-first-logit"
    wrong = WRONG

    def outputs(self, ids: Any) -> Any:
        return all_logits(ids)[:, :1]

    @pytest.mark.parametrize("place", ["another id", "a turn too early"])
    def test_another_place_knows_nothing(self, place: str) -> None:
        """Another logit, or the right one where the answer isn't read yet, is right as often as a coin."""

        def reward(context: Sequence[Mapping[str, str]], response: str) -> float:
            (ids,) = self.ids(from_dicts(context, response))
            with torch.inference_mode():
                if place == "another id":
                    return float(all_logits(ids)[-1, 1])
                return float(all_logits(ids[: -len(response.split()) - 1])[-1, 0])

        held_out = list(pairs(seed=32, n=200, split="held-out"))
        rewards = [(reward(pair.context, pair.chosen), reward(pair.context, pair.rejected)) for pair in held_out]
        # Two bare responses are alike up to there.
        right = [chosen > rejected for chosen, rejected in rewards if chosen != rejected]
        assert len(right) > 100
        assert 0.3 < sum(right) / len(right) < 0.7
