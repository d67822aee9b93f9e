"""The built-in reward models by transformers and plain torch, in float32: what an engine must give for the same tokens."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import LlamaConfig, LlamaModel, Qwen2Config, Qwen2Model

from actors.checkpoint.checkpoint_files import BUILT_IN

Weights = Mapping[str, torch.Tensor]
Reference = Callable[[list[int]], torch.Tensor]
"""Token ids to the head's raw outputs at every one of them, [tokens, labels]."""


def stored(name: str) -> dict[str, torch.Tensor]:
    """The weights of a built-in model (`scalar`, `math-rm`, ...), as they are in its file but float32."""
    return {key: weight.float() for key, weight in load_file(BUILT_IN / name / "model.safetensors").items()}


def reference(name: str, weights: Weights | None = None) -> Reference:
    """How a built-in model of one of the kinds below judges, or would with these weights."""
    config = json.loads((BUILT_IN / name / "config.json").read_text())
    body, head = _KINDS[config["architectures"][0]](config, dict(stored(name) if weights is None else weights))
    body.eval()

    @torch.inference_mode()
    def outputs(ids: list[int]) -> torch.Tensor:
        return head(body(input_ids=torch.tensor([ids])).last_hidden_state[0])

    return outputs


def _llama(config: dict[str, Any], weights: dict[str, torch.Tensor]) -> tuple[nn.Module, nn.Module]:
    model = LlamaModel(LlamaConfig(**config))
    model.load_state_dict(_below("model.", weights))
    return model, _linear(weights["score.weight"])


def _qwen2(config: dict[str, Any], weights: dict[str, torch.Tensor]) -> tuple[nn.Module, nn.Module]:
    model = Qwen2Model(Qwen2Config(**config))
    model.load_state_dict(_below("model.", weights))
    width, labels = model.config.hidden_size, model.config.num_labels
    head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, labels))
    head.load_state_dict(_below("score.", weights))
    return model, head


def _internlm2(config: dict[str, Any], weights: dict[str, torch.Tensor]) -> tuple[nn.Module, nn.Module]:
    """A Llama but for the names, and that a key-value head's queries, key and value are one block of rows of `wqkv`."""
    theta = config.pop("rope_theta")
    model = LlamaModel(LlamaConfig(**config, rope_parameters={"rope_type": "default", "rope_theta": theta}))
    groups, width = config["num_key_value_heads"], config["hidden_size"] // config["num_attention_heads"]
    state = {
        "embed_tokens.weight": weights["model.tok_embeddings.weight"],
        "norm.weight": weights["model.norm.weight"],
    }
    for index in range(config["num_hidden_layers"]):
        theirs, ours = f"model.layers.{index}.", f"layers.{index}."
        blocks = weights[f"{theirs}attention.wqkv.weight"].unflatten(0, (groups, -1, width))
        state[f"{ours}self_attn.q_proj.weight"] = blocks[:, :-2].flatten(0, 2)
        state[f"{ours}self_attn.k_proj.weight"] = blocks[:, -2].flatten(0, 1)
        state[f"{ours}self_attn.v_proj.weight"] = blocks[:, -1].flatten(0, 1)
        for our_name, their_name in _INTERNLM2_NAMES.items():
            state[f"{ours}{our_name}.weight"] = weights[f"{theirs}{their_name}.weight"]
    model.load_state_dict(state)
    return model, _linear(weights["v_head.weight"])


_INTERNLM2_NAMES = {
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}

_KINDS = {
    "LlamaForSequenceClassification": _llama,
    "Qwen2ForRewardModel": _qwen2,
    "Qwen2ForProcessRewardModel": _qwen2,
    "InternLM2ForRewardModel": _internlm2,
}


def _below(prefix: str, weights: Weights) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}


def _linear(weight: torch.Tensor) -> nn.Module:
    labels, width = weight.shape
    head = nn.Linear(width, labels, bias=False)
    head.load_state_dict({"weight": weight})
    return head
