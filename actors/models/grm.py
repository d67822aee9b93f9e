"""GRM: a small value head on a language model that was also trained to go on writing (`sftreg`).

The models called `rewardmodel-ft` are plain `*ForSequenceClassification` of one label: the family `scalar` reads those.
"""

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.known_model import Golden, KnownModel
from actors.contracts.pooled_head import PooledHead


class Grm(PooledHead):
    """`*ForCausalLM` whose config.json describes a value head."""

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


FAMILY = Grm()
