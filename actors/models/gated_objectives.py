"""Rewards by several objectives, which a gate that has read the prompt sums up: ArmoRM and QRM, on Llama 3.

`score` is the reward. ArmoRM's named outputs are its ratings as the head gives them, mostly 0 to 1; for the first five
5 x - 0.5 is on HelpSteer's scale of 0 to 4. The gate weighs them after `reward_transform_matrix`, which takes out verbosity.

QRM's head gives 19 quantiles, from 0.05 to 0.95, of each objective; their mean is its reward, which the named outputs hold
after `reward_transform_matrix`, as the authors' code does. The temperature of the gate is config.json's.
"""

from typing import ClassVar

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.pooled_head import Head, PooledHead, Tensor

_BEAUTIFUL = 'What are some synonyms for the word "beautiful"?'
_SYNONYMS = "Nicely, Beautifully, Handsome, Stunning, Wonderful, Gorgeous, Pretty, Stunning, Elegant"
# The card's, of transformers in BF16, as it prints them: five times the rating, less a half.
_HELPSTEER = {
    "helpsteer-helpfulness": 2.78125, "helpsteer-correctness": 2.859375, "helpsteer-coherence": 3.484375,
    "helpsteer-complexity": 1.3847656, "helpsteer-verbosity": 1.296875,
}  # fmt: skip


class GatedObjectives(PooledHead):
    """Rewards by several objectives, which a gate at the end of the prompt weighs: ArmoRM's design, on Llama 3."""

    read_at = "the last token's hidden state; the gate's at the end of the turn before the response"
    architecture = "ForRewardModelWithGating"
    head_prefixes = ("regression_layer.", "gating.", "reward_transform_matrix")
    gate_text = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    objectives: ClassVar[tuple[str, ...]]

    def outputs(self) -> tuple[str, ...]:
        return ("score", *self.objectives)

    def fits(self, checkpoint: Checkpoint) -> bool:
        # Names of the class differ in a version at the end.
        return self.architecture in checkpoint.architecture

    def weigh(self, head: Head, gate: Tensor, rewards: Tensor) -> Tensor:
        # The sum of rewards, [objectives], by the gate's coefficients.
        logits = head.through("gating.layers", gate)
        # 10 is the default of the authors' classes.
        coefficients = (logits / head.config.get("gating_temperature", 10)).softmax(-1)
        return (coefficients * head.tensors["gating.logit_scale"][0] * rewards).sum(-1, keepdim=True)


class ArmoRM(GatedObjectives):
    """`LlamaForRewardModelWithGating` without quantiles."""

    name = "armorm"
    summary = "19 ratings and their gated sum (LlamaForRewardModelWithGating)"
    source = "RLHFlow/ArmoRM-Llama3-8B-v0.1 model card; RLHF-Reward-Modeling, armo-rm"
    range = "the reward the model's own, ratings mostly 0 to 1"
    objectives = (
        *_HELPSTEER,
        *("ultrafeedback-overall_score", "ultrafeedback-instruction_following", "ultrafeedback-truthfulness"),
        *("ultrafeedback-honesty", "ultrafeedback-helpfulness", "beavertails-is_safe", "prometheus-score"),
        *("argilla-overall_quality", "argilla-judge_lm", "code-complexity", "code-style", "code-explanation"),
        *("code-instruction-following", "code-readability"),
    )
    models = (
        KnownModel.built_in(
            "tiny-armorm", Golden.each("What is 3 + 4?", {"7": -0.041, "9": -0.093}, 0.03), "random, for tests"
        ),
        KnownModel(
            "RLHFlow/ArmoRM-Llama3-8B-v0.1",
            "8 billion",
            "Llama 3",
            card="arXiv 2406.12845",
            golden=tuple(
                Golden.answers(_BEAUTIFUL, {_SYNONYMS: (shown + 0.5) / 5}, 0.03, output=name)
                for name, shown in _HELPSTEER.items()
            ),
        ),
    )

    def fits(self, checkpoint: Checkpoint) -> bool:
        return super().fits(checkpoint) and "num_quantiles" not in checkpoint.config

    def apply(self, head: Head, state: Tensor, gate: Tensor) -> Tensor:
        ratings = head.tensors["regression_layer.weight"] @ state
        # The transform takes verbosity out of what the gate weighs; the named outputs are the ratings without it.
        score = self.weigh(head, gate, ratings @ head.tensors["reward_transform_matrix"])
        return score.new_tensor([*score, *ratings])


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
        # 19 is the default of the authors' class. The two families differ in nothing else.
        has_objectives = config.get("num_objectives", 19) == len(self.objectives)
        return super().fits(checkpoint) and "num_quantiles" in config and has_objectives

    def apply(self, head: Head, state: Tensor, gate: Tensor) -> Tensor:
        # [objectives, quantiles]: the quantiles of one objective stand side by side, and their mean is its expected reward.
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


FAMILY = (ArmoRM(), Qrm(), QrmV1())
