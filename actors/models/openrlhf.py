"""Reward models that OpenRLHF trained: one linear layer at the end-of-sequence token, which closes each text.

Its trainer strips line breaks from the end of the chat template's text, adds a space and EOS unless the text ends with it,
and reads there. config.json has `normalize_reward`, after training also `value_head_prefix`, and with an evaluation set the
`mean` and `std` of its rewards. The class is `RewardModel`, or was renamed to a `*ForSequenceClassification` by hand.
"""

import math
from collections.abc import Mapping
from typing import Any

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.known_model import KnownModel
from actors.contracts.pooled_head import Head, PooledHead, Tensor
from actors.errors import ModelError

_PREFIX, _NORMALISED = "value_head_prefix", "normalize_reward"
_DEFAULT = "score"  # OpenRLHF's since December 2024; before it was `value_head`
_CLASS = "RewardModel"


def is_openrlhf(checkpoint: Checkpoint) -> bool:
    """Whether config.json has what OpenRLHF writes into that of every reward model."""
    return not {_PREFIX, _NORMALISED}.isdisjoint(checkpoint.config)


class OpenRlhf(PooledHead):
    """One linear layer without a bias, whose output is normalised if config.json says so."""

    name = "openrlhf"
    summary = "one logit at EOS, normalised if config.json says so (RewardModel or *ForSequenceClassification, by OpenRLHF)"
    source = "OpenRLHF@3c3be623, openrlhf/datasets/reward_dataset.py and openrlhf/models/model.py"
    prompt_form = "the checkpoint's chat template without line breaks at its end, then EOS, unless it ends with that"
    read_at = "the head on the hidden state at EOS, in float32; less mean, by std, if normalize_reward is true"
    range = "the model's own; compare responses to one prompt"
    by_openrlhf = True
    skips_padding = False  # its class reads the last token that attention doesn't mask
    models = (
        KnownModel(
            "OpenRLHF/Llama-3-8b-rm-700k",
            "8 billion",
            card="OpenRLHF's examples/scripts",
            limits="may have been trained with a second BOS",  # OpenRLHF's trainer added it until 30 July 2024
        ),
    )

    def fits(self, checkpoint: Checkpoint) -> bool:
        is_classifier = checkpoint.architecture.endswith("ForSequenceClassification")
        # transformers takes two labels where config.json says none, and OpenRLHF says none: its head has always one.
        return checkpoint.architecture == _CLASS or (is_classifier and (is_openrlhf(checkpoint) or checkpoint.labels == 1))

    def recognises(self, checkpoint: Checkpoint) -> bool:
        return self.fits(checkpoint) and is_openrlhf(checkpoint)

    def prefixes(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return (f"{config.get(_PREFIX, _DEFAULT)}.",)

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        super().check(checkpoint, published, tensor_parallel)
        config = checkpoint.config
        normalises, mean, std = (config.get(name) for name in (_NORMALISED, "mean", "std"))
        if normalises and not _can_normalise(mean, std):
            raise ModelError(
                f"{checkpoint.folder}/config.json has {_NORMALISED} {normalises!r} with mean {mean!r} and std {std!r}, by "
                f"which no reward can be normalised: give both as numbers, std above 0, or {_NORMALISED} false for "
                "rewards as the head gives them"
            )

    def apply(self, head: Head, state: Tensor, gate: Tensor) -> Tensor:
        (prefix,) = self.prefixes(head.config)
        reward = head.tensors[f"{prefix}weight"] @ state
        return (reward - head.config["mean"]) / head.config["std"] if head.config.get(_NORMALISED) else reward


def _can_normalise(mean: object, std: object) -> bool:
    is_number = isinstance(mean, int | float) and math.isfinite(mean)
    return is_number and isinstance(std, int | float) and math.isfinite(std) and std > 0


FAMILY = OpenRlhf()
