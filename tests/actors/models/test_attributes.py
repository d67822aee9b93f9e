"""The nine outputs of Nemotron-4-340B-Reward, with their bias, at NeMo's closing token."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from safetensors import safe_open

from actors.checkpoint.checkpoint_files import BUILT_IN
from actors.records import ScoreRequest
from tests.support.contract import Contract, Numbers, Outputs, Wrong, reading, transformers_model
from tests.support.models import as_dicts
from tiny_models.tokenizer import nemo_text

OUTPUTS = (
    "quality", "toxicity", "humor", "creativity", "helpfulness", "correctness", "coherence", "complexity", "verbosity",
)  # fmt: skip
CARD = {"helpfulness": 0.3, "correctness": 0.74, "coherence": 0.46, "complexity": 0.47, "verbosity": -0.33}


@cache
def bias() -> torch.Tensor:
    """The stored bias, which the class of transformers leaves out."""
    with safe_open(BUILT_IN / "attributes" / "model.safetensors", "pt") as weights:
        return weights.get_tensor("score.bias").float()


def swapped(at: int) -> Wrong:
    order = list(range(len(OUTPUTS)))
    order[at], order[at + 1] = order[at + 1], order[at]
    return reading(lambda outputs: outputs[:, order])


WRONG = {
    "a softmax": reading(lambda outputs: outputs.softmax(dim=-1)),
    "no bias": reading(lambda outputs: outputs - bias()),
    **{f"{OUTPUTS[index]} and {OUTPUTS[index + 1]} swapped": swapped(index) for index in range(3, 8)},
}


class TestTinyAttributes(Contract):
    model = "tiny-attributes"
    wrong = WRONG
    subtle = frozenset({"coherence and complexity swapped"})  # their weights are almost the same

    def ids(self, score_request: ScoreRequest) -> Sequence[list[int]]:
        return [list(self.tokenizer(nemo_text(as_dicts(score_request)), add_special_tokens=False)["input_ids"])]

    def outputs(self, ids: Any) -> Any:
        model = transformers_model("attributes", "AutoModelForSequenceClassification")
        return model.score(model.model(torch.tensor([ids])).last_hidden_state[0]) + bias()

    def numbers(self, prompts: Sequence[list[int]], outputs: Outputs) -> Numbers:
        (values,) = (each[-1].tolist() for each in outputs)
        named = dict(zip(OUTPUTS, values, strict=True))
        read = {name: named[name] for name in CARD}
        return read | {"reward": sum(weight * named[name] for name, weight in CARD.items())}
