"""Small heads on the hidden state of a prompt's last token, for which vLLM has no class: GRM, INF-ORM and LDL."""

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.pooled_head import Head, PooledHead, Tensor

_RATINGS = 10  # of each objective of LDL: 0, 1/9, ... 1


class Grm(PooledHead):
    """A small value head on a language model that was also trained to go on writing (`sftreg`).

    The models called `rewardmodel-ft` are plain `*ForSequenceClassification` of one label: the family `scalar` reads those.
    """

    name = "grm"
    summary = "the value head of a language model at its last token (*ForCausalLM, vhead_layer_type mlp)"
    source = "Ray2333/GRM-*-sftreg model cards; reward-bench, rewardbench/models/grm.py"
    read_at = "v_head on the last token's hidden state, in float32"
    range = "unbounded; compare responses to one prompt"
    architecture = "ForCausalLM"
    skips_padding = False  # its class reads the last token that attention doesn't mask
    head_prefixes = ("v_head.",)
    layers = "v_head.summary"
    models = (
        KnownModel.built_in(
            "tiny-grm", Golden.each("What is 3 + 4?", {"7": -0.967, "9": -1.504}, 0.03), "random, for tests"
        ),
        KnownModel("Ray2333/GRM-llama3-8B-sftreg", "8 billion", card="arXiv 2406.10216"),
        KnownModel("Ray2333/GRM-*-sftreg", "four sizes, on Llama 3 and Gemma", card="arXiv 2406.10216"),
    )

    def fits(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.config.get("vhead_layer_type") == "mlp"  # whatever class its config.json names


class InfOrm(PooledHead):
    """Two linear layers with biases."""

    name = "inf-orm"
    summary = "two layers at the last token (INFORMForSequenceClassification)"
    source = "infly/INF-ORM-Llama3.1-70B model card; reward-bench, rewardbench/models/inform.py"
    read_at = "score.0, ReLU and score.2 on the last token's hidden state, in float32"
    range = "unbounded; compare responses to one prompt"
    architecture = "INFORMForSequenceClassification"
    head_prefixes = ("score.",)
    layers = "score"
    models = (
        KnownModel.built_in(
            "tiny-inf-orm", Golden.each("What is 3 + 4?", {"7": -0.551, "9": -0.922}, 0.03), "random, for tests"
        ),
        KnownModel("infly/INF-ORM-Llama3.1-70B", "70 billion"),
    )


class Ldl(PooledHead):
    """A distribution over ten ratings by each of 22 objectives, and the mean of their gated sum.

    Two networks stand in files of torch beside the body, which are read as weights alone. Both read the last token. The
    gate's weights are no shares unless config.json says `softmax`, so the reward isn't bounded to the ratings, 0 to 1.
    """

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


FAMILY = (Grm(), InfOrm(), Ldl())
