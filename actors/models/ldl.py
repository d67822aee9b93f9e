"""LDL-Reward: a distribution over ten ratings by each of 22 objectives, and the mean of their gated sum.

Two networks stand in files of torch beside the body, `regression_layer.pt` and `gating_layer.pt`, which are read as weights
alone. Both read the last token. The gate's weights are no shares unless config.json says `softmax`, so the reward isn't
bounded to the ratings, 0 to 1.
"""

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.pooled_head import Head, PooledHead, Tensor

_RATINGS = 10  # of each objective: 0, 1/9, ... 1


class Ldl(PooledHead):
    """Gemma 2 with two networks of torch beside it."""

    name = "ldl"
    summary = "the gated mean of distributions over ratings (Gemma 2 with regression_layer.pt and gating_layer.pt)"
    source = "ShikaiChen/LDL-Reward-Gemma-2-27B-v0.1; reward-bench, rewardbench/models/ldlreward.py"
    read_at = "both networks on the last token's hidden state, in float32"
    range = "mostly 0 to 1, and may leave that"
    recognised = False  # its config.json is that of another Gemma 2
    head_files = ("regression_layer.pt", "gating_layer.pt")
    models = (
        KnownModel.built_in("tiny-ldl", Golden.each("What is 3 + 4?", {"7": 0.987, "9": -0.214}, 0.03), "random, for tests"),
        KnownModel("ShikaiChen/LDL-Reward-Gemma-2-27B-v0.1", "27 billion"),
        KnownModel("lenovo/Lenovo-Reward-Gemma-2-27B-v0.1", "27 billion"),
    )

    def fits(self, checkpoint: Checkpoint) -> bool:
        files = [checkpoint.folder / file for file in self.head_files]
        return checkpoint.config.get("model_type") == "gemma2" and all(
            checkpoint.hub_commit is not None or file.is_file() for file in files
        )

    def apply(self, head: Head, state: Tensor, gate: Tensor) -> Tensor:
        import torch
        from torch.nn import functional

        ratings = head.through("regression_layer.network", state, functional.leaky_relu)
        # Both networks have leaky ReLU between their layers, where the other heads have ReLU.
        weights = head.through("gating_layer.network", state, functional.leaky_relu)
        if head.config.get("softmax", False):
            weights = (weights / head.config.get("temperature", 1.0)).softmax(-1)
        distribution = weights @ ratings.reshape(-1, _RATINGS).softmax(-1)
        return (distribution @ torch.linspace(0, 1, _RATINGS))[None]


FAMILY = Ldl()
