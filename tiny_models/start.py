"""Where training starts: weights from which the toy questions are learnt in minutes on a CPU, not hours.

Plain random weights learn them as well, but spend most of the time to find out that 41 and 42 are neighbours and how to look
at the token before this one. Training is free to undo all of it.
"""

import math

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

_SHARED = 0.7
"""Size of the direction that all embeddings share, relative to what is their own."""
_SHARPNESS = 6.0
"""Of the looks back: more than half of a head's attention lands on its token."""
_PERIODS = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0)


@torch.no_grad()
def prepare(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, looking_back: tuple[int, ...]) -> None:
    """Number embeddings begin as digits and waves; the heads of the layers `looking_back` attend to the tokens before.

    Expects fresh weights and rotary positions.
    """
    embedding = model.get_input_embeddings().weight
    spread = embedding.std()
    features = _number_features()
    numbers = features @ torch.randn(features.shape[1], embedding.shape[1])
    ids = torch.tensor(tokenizer.convert_tokens_to_ids([str(number) for number in range(100)]))
    embedding[ids] = numbers * (spread / numbers.std())
    # What is the same in each token is what a head can turn into a fixed distance.
    shared = functional.normalize(torch.randn(embedding.shape[1]), dim=0)
    embedding += _SHARED * spread * math.sqrt(embedding.shape[1]) * shared
    for layer in looking_back:
        _look_back(model, layer, shared)


def _number_features() -> torch.Tensor:
    numbers = torch.arange(100)
    angles = 2 * math.pi * numbers[:, None] / torch.tensor(_PERIODS)
    digits = torch.cat([functional.one_hot(numbers // 10, 10), functional.one_hot(numbers % 10, 10)], dim=1)
    return torch.cat([digits, angles.cos(), angles.sin()], dim=1)


def _look_back(model: PreTrainedModel, layer: int, shared: torch.Tensor) -> None:
    """Head h starts looking h + 1 tokens back, by the rotary angles alone; the quick angles count most."""
    config, attention = model.config, model.model.layers[layer].self_attn
    frequencies = model.model.rotary_emb.inv_freq
    weights = frequencies.sqrt()
    key = torch.cat([weights, torch.zeros_like(weights)])
    width = config.hidden_size // config.num_attention_heads
    direction = shared * _SHARPNESS / math.sqrt(config.hidden_size)
    for head in range(config.num_attention_heads):
        angles = -(head + 1) * frequencies
        query = torch.cat([weights * angles.cos(), weights * angles.sin()])
        attention.q_proj.weight[head * width : head * width + len(query)] += torch.outer(query, direction)
    for head in range(config.num_key_value_heads):
        attention.k_proj.weight[head * width : head * width + len(key)] += torch.outer(key, direction)
