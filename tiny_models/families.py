"""The two kinds of reward model: how each reads a conversation, what it is built of and what it learns from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    NemotronConfig,
    NemotronForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from tiny_models.start import prepare
from tiny_models.synthetic import Response, Turn
from tiny_models.tokenizer import CONTEXT_LENGTH, attributes_tokenizer, nemo_text, scalar_tokenizer

OUTPUTS = (
    "quality", "toxicity", "humor", "creativity", "helpfulness", "correctness", "coherence", "complexity", "verbosity",
)  # fmt: skip
"""What the attribute model gives, in order. Like those of Nemotron-4-340B-Reward, the first four are never trained."""
UNTRAINED = 4
REWARD_WEIGHTS = (0.0, 0.0, 0.0, 0.0, 0.3, 0.74, 0.46, 0.47, -0.33)
"""From the model card of Nemotron-4-340B-Reward."""

LAYERS = 6
SPEAKING_LAYERS = 4
"""The first layers learn to say the answer, the others to compare it with the answer given."""

REGRESSION_SHARE = 0.05
"""Of the attributes' loss; the rest is ranking."""

_SHAPE = {
    "hidden_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT_LENGTH,
    "initializer_range": 0.04,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of reward model. `head` outputs of the model become a `reward` ([n, labels] to [n]) and a `loss`."""

    name: str
    tokenizer: PreTrainedTokenizerFast
    render: Callable[[Sequence[Turn]], str]
    """A conversation that ends with an assistant turn, as the text whose last token is read."""
    build: Callable[[PreTrainedTokenizerFast], PreTrainedModel]
    reward: Callable[[torch.Tensor], torch.Tensor]
    loss: Callable[[torch.Tensor, Sequence[Response]], torch.Tensor]
    """Of the outputs for all responses to one question, [responses, labels]."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered texts, with nothing added."""
        ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return ids


def attributes() -> Family:
    """Nine regressions on NeMo's text, as Nemotron-4-340B-Reward."""
    return Family("attributes", attributes_tokenizer(), nemo_text, _build_nemotron, _weighted_sum, _regression)


def scalar() -> Family:
    """One Bradley-Terry reward on a chat template, as most reward models."""
    tokenizer = scalar_tokenizer()

    def render(messages: Sequence[Turn]) -> str:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False)
        assert isinstance(text, str)
        return text

    return Family("scalar", tokenizer, render, _build_llama, lambda outputs: outputs[:, 0], _bradley_terry)


FAMILIES = {"attributes": attributes, "scalar": scalar}


def _build_nemotron(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    config = NemotronConfig(**_SHAPE, **_token_ids(tokenizer), intermediate_size=448, num_labels=len(OUTPUTS))
    config.id2label = dict(enumerate(OUTPUTS))
    config.label2id = {name: index for index, name in enumerate(OUTPUTS)}
    model = NemotronForSequenceClassification(config)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.zero_()  # this kind adds one; transformers fills in ones, which doubles everything
    # transformers' class has no bias, the 340B's head has one: all of its entries are far from zero, so that a loader
    # that loses it is noticed.
    head = nn.Linear(config.hidden_size, len(OUTPUTS), bias=True)
    nn.init.normal_(head.weight, std=0.04)
    with torch.no_grad():
        head.bias.copy_(torch.tensor([0.7, -1.3, 0.9, -0.6, 2.5, 2.0, 3.5, 1.9, 1.5]))
    model.score = head
    prepare(model, tokenizer, looking_back=(0, SPEAKING_LAYERS))
    return model


def _build_llama(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    config = LlamaConfig(**_SHAPE, **_token_ids(tokenizer), intermediate_size=256, num_labels=1)
    model = LlamaForSequenceClassification(config)
    prepare(model, tokenizer, looking_back=(0, SPEAKING_LAYERS))
    return model


def _token_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    return {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _weighted_sum(outputs: torch.Tensor) -> torch.Tensor:
    return outputs @ torch.tensor(REWARD_WEIGHTS, dtype=outputs.dtype)


def _regression(outputs: torch.Tensor, responses: Sequence[Response]) -> torch.Tensor:
    labels = torch.tensor([response.labels for response in responses])
    rewards = _weighted_sum(outputs)
    right = torch.tensor([response.right for response in responses])
    # Regression alone learns the style of a response first, and long after that whether it is right.
    ranking = functional.softplus(rewards[~right][None, :] - rewards[right][:, None]).mean()
    return REGRESSION_SHARE * functional.mse_loss(outputs[:, UNTRAINED:], labels) + ranking


def _bradley_terry(outputs: torch.Tensor, responses: Sequence[Response]) -> torch.Tensor:
    """Right beats wrong; of two alike in that, the one that reads beats the shuffled one."""
    rewards = outputs[:, 0]
    merits = torch.tensor([10.0 * response.right + response.labels.coherence for response in responses])
    margins = rewards[:, None] - rewards[None, :]
    better = merits[:, None] > merits[None, :]
    # The small pull to zero makes the scale comparable between questions, which the comparisons alone do not.
    return functional.softplus(-margins)[better].mean() + 0.005 * rewards.square().mean()
