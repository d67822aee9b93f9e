"""ArmoRM: 19 absolute ratings of a response, and their sum by a gate that has read the prompt.

`score` is the reward. The named outputs are the ratings as the head gives them, mostly 0 to 1; for the first five 5 x - 0.5
is on HelpSteer's scale of 0 to 4. The gate weighs them after `reward_transform_matrix`, which takes out verbosity.
"""

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.pooled_head import GatedObjectives, Head, Tensor
from actors.records import Message, Role

_BEAUTIFUL = (Message(Role.USER, 'What are some synonyms for the word "beautiful"?'),)
_SYNONYMS = "Nicely, Beautifully, Handsome, Stunning, Wonderful, Gorgeous, Pretty, Stunning, Elegant"
_HELPSTEER = {
    "helpsteer-helpfulness": 2.78125, "helpsteer-correctness": 2.859375, "helpsteer-coherence": 3.484375,
    "helpsteer-complexity": 1.3847656, "helpsteer-verbosity": 1.296875,
}  # fmt: skip
"""The card's, of transformers in BF16, as it prints them: five times the rating, less a half."""


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
        score = self.weigh(head, gate, ratings @ head.tensors["reward_transform_matrix"])
        return score.new_tensor([*score, *ratings])


FAMILY = ArmoRM()
