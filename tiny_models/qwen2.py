"""What the two Qwen2 models have in common: biases in the attention, a head of two layers, and one system turn, always."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2Model
from transformers.models.qwen2.modeling_qwen2 import Qwen2PreTrainedModel

from tiny_models.synthetic import Turn
from tiny_models.transplant import outputs, resemble, settings, transplant

SYSTEM_TURN: Turn = {
    "role": "system",
    "content": "Please reason step by step, and put your final answer within \\boxed{}.",
}
"""From the model cards of Qwen2.5-Math-RM-72B and Qwen2.5-Math-PRM-7B."""

OFFSET = 1.5
"""Of each output, at first: training on differences leaves it there."""


class _Qwen2WithHead(Qwen2PreTrainedModel):
    def __init__(self, config: Qwen2Config) -> None:
        super().__init__(config)
        self.model = Qwen2Model(config)
        self.score = nn.Sequential(
            nn.Linear(config.hidden_size, config.hidden_size), nn.ReLU(), nn.Linear(config.hidden_size, config.num_labels)
        )
        self.post_init()


class Qwen2ForRewardModel(_Qwen2WithHead):
    """As Qwen2.5-Math-RM-72B."""


class Qwen2ForProcessRewardModel(_Qwen2WithHead):
    """As Qwen2.5-Math-PRM-7B."""


def qwen2(
    kind: type[_Qwen2WithHead],
    tokenizer: PreTrainedTokenizerFast,
    conversations: Sequence[list[Turn]],
    *,
    labels: int,
    more_layers: int = 0,
) -> PreTrainedModel:
    """Tiny-scalar, narrower, with biases and a fresh head of so many labels, for conversations such as these."""
    config = Qwen2Config(**settings(more_layers), num_labels=labels)
    model = kind(config)
    transplant(model)
    resemble(tokenizer, model, "ĊĊ", "Ċ")  # Qwen2's tokenizer makes one piece of two line breaks
    sequences = prompts(tokenizer, conversations)
    first, _, last = model.score
    with torch.no_grad():
        last.bias.fill_(OFFSET)
        for layer in model.model.layers:
            attention = layer.self_attn
            _lean_on_biases(model, sequences, [attention.q_proj, attention.k_proj, attention.v_proj])
        _lean_on_biases(model, sequences, [first])
    return model


def prompts(tokenizer: PreTrainedTokenizerFast, conversations: Sequence[list[Turn]]) -> list[list[int]]:
    """Token ids of conversations, each with the model cards' system turn in place of its own."""
    with_system_turn = [[SYSTEM_TURN, *(turn for turn in turns if turn["role"] != "system")] for turns in conversations]
    ids: list[list[int]] = tokenizer.apply_chat_template(with_system_turn, return_dict=False)
    return ids


def _lean_on_biases(model: PreTrainedModel, sequences: Sequence[list[int]], projections: Sequence[nn.Linear]) -> None:
    """Makes what the projections give for their mean input a matter of their biases, and of these alone.

    Random biases would be noise that training removes the need of. These are what the attention's looks back and much of
    the head rest on, so that a loader that loses any of them is noticed.
    """
    layer_inputs: list[torch.Tensor] = []
    hook = projections[0].register_forward_pre_hook(lambda _, inputs: layer_inputs.append(inputs[0].flatten(0, -2)))
    outputs(model, sequences)
    hook.remove()
    mean = torch.cat(layer_inputs).mean(dim=0)
    direction = functional.normalize(mean, dim=0)
    for projection in projections:
        projection.bias.copy_(projection.weight @ mean)
        projection.weight -= torch.outer(projection.weight @ direction, direction)
