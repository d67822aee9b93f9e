"""QRM: quantiles of the reward by each objective, and the gated sum of their means.

A head gives 19 quantiles, from 0.05 to 0.95, of each objective; their mean is its reward, which the named outputs hold after
`reward_transform_matrix`, as the authors' code does. The temperature of the gate is config.json's. `score` is the reward.
"""

from typing import ClassVar

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.pooled_head import GatedObjectives, Head, Tensor


class Qrm(GatedObjectives):
    """`LlamaForRewardModelWithGating` with quantiles of HelpSteer's five attributes."""

    name = "qrm"
    summary = "means of quantiles by five objectives and their gated sum (LlamaForRewardModelWithGating, num_quantiles)"
    source = "nicolinho/QRM-Llama3.1-8B-v2 model card; reward-bench, rewardbench/models/qrm.py"
    range = "the model's own; compare responses to one prompt"
    objectives: ClassVar[tuple[str, ...]] = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
    models = (
        KnownModel.built_in("tiny-qrm", Golden.each("What is 3 + 4?", {"7": 0.341, "9": 0.375}, 0.03), "random, for tests"),
        KnownModel("nicolinho/QRM-Llama3.1-8B-v2", "8 billion", "Llama 3", card="arXiv 2409.10164"),
    )

    def fits(self, checkpoint: Checkpoint) -> bool:
        config = checkpoint.config
        has_objectives = config.get("num_objectives", 19) == len(self.objectives)
        return super().fits(checkpoint) and "num_quantiles" in config and has_objectives

    def apply(self, head: Head, state: Tensor, gate: Tensor) -> Tensor:
        quantiles = (head.tensors["regression_layer.weight"] @ state).reshape(len(self.objectives), -1)
        rewards = quantiles.mean(-1) @ head.tensors["reward_transform_matrix"]
        return rewards.new_tensor([*self.weigh(head, gate, rewards), *rewards])


class QrmV1(Qrm):
    """QRM's first models, of 19 objectives, which their cards don't name."""

    name = "qrm-v1"
    summary = "means of quantiles by 19 objectives and their gated sum (LlamaForRewardModelWithGating, num_quantiles)"
    source = "nicolinho/QRM-Llama3.1-8B model card; reward-bench, rewardbench/models/qrm.py"
    objectives = tuple(f"objective_{number}" for number in range(1, 20))
    models = (
        KnownModel("nicolinho/QRM-Llama3.1-8B", "8 billion", "Llama 3", card="arXiv 2409.10164"),
        KnownModel("nicolinho/QRM-Llama3-8B", "8 billion", "Llama 3", card="arXiv 2409.10164"),
    )


FAMILY = (Qrm(), QrmV1())
