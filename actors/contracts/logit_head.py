"""A reward head that is part of a language model: one row of its output embedding, or the difference of two.

vLLM makes a head of one label from such rows while it loads the model: one forward pass without decoding, and the raw logit
in float32. With tensor parallelism it only finds rows in the first GPU's share of the vocabulary: layouts in which an id is
beyond that are refused. Of the published models none has such ids below --tensor-parallel 16.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import Family, check_token_ids
from actors.contracts.known_model import KnownModel
from actors.errors import ModelError

CAUSAL, CLASSIFIER = "ForCausalLM", "ForSequenceClassification"
_PADDING = 64  # vLLM rounds a vocabulary up to a multiple of this before it shares it out


class LogitHead(Family):
    """A family whose reward is a language model's logit of one token, or the difference of two tokens' logits.

    Its config.json is that of any language model: only the id or `--family` tells.
    """

    head_labels = 1

    @abstractmethod
    def tokens(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """The token whose logit counts, or one to subtract and one that counts, as tokenizer.json spells them."""

    def ids(self, checkpoint: Checkpoint) -> tuple[int, ...]:
        """The ids of `tokens`. Raises `ModelError` if the tokenizer lacks one: vLLM would take the unknown token's."""
        vocabulary = checkpoint.vocabulary
        if missing := [token for token in self.tokens(checkpoint) if token not in vocabulary]:
            raise ModelError(f"{checkpoint.folder}: the tokenizer has no token {missing[0]!r}, by which the reward is read")
        return tuple(vocabulary[token] for token in self.tokens(checkpoint))

    def fits(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.architecture.endswith(CAUSAL)

    def recognises(self, checkpoint: Checkpoint) -> bool:
        return False  # every language model looks like it

    def check(self, checkpoint: Checkpoint, published: KnownModel | None = None, tensor_parallel: int = 1) -> None:
        if checkpoint.tensors and "lm_head.weight" not in checkpoint.tensors:
            raise ModelError(
                f"{checkpoint.folder} has no lm_head.weight, whose rows are the reward head: it can't be one of these "
                "models, whose output embedding is their own"
            )
        ids = dict(zip(self.tokens(checkpoint), self.ids(checkpoint), strict=True))
        check_token_ids(checkpoint, published, ids)
        size = int(checkpoint.text_config.get("vocab_size") or len(checkpoint.vocabulary))
        share = -(-size // _PADDING) * _PADDING // tensor_parallel
        for token, number in ids.items():
            if number >= share:
                raise ModelError(
                    f"the reward is read by token {token!r}, id {number}, and with --tensor-parallel {tensor_parallel} the "
                    f"first GPU has the output rows of ids below {share} alone; give a smaller --tensor-parallel"
                )

    def overrides(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        tokens = self.tokens(checkpoint)
        return {
            "architectures": [checkpoint.architecture.removesuffix(CAUSAL) + CLASSIFIER],
            "classifier_from_token": list(tokens),
            "method": "no_post_processing" if len(tokens) == 1 else "from_2_way_softmax",
        }
