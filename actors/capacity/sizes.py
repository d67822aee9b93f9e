"""The sizes of published models, for planning a layout without the checkpoint, and of checkpoints, from their files."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from actors.capacity.layout import Size
from actors.checkpoint.checkpoint_files import Checkpoint
from actors.errors import ModelError, SettingsError

_EXPERTS = ".experts."

_LLAMA_70B = Size(70.6e9, 80, 8192, 28672, 64, 8, 128, "config of Llama-3.1-70B")
_QWEN3_32B = Size(32.8e9, 64, 5120, 25600, 64, 8, 128, "config of Qwen3-32B")
_QWEN25_32B = Size(32.8e9, 64, 5120, 27648, 40, 8, 128, "config of Qwen2.5-32B")
_QWEN25_72B = Size(72.7e9, 80, 8192, 29568, 64, 8, 128, "config of Qwen2.5-72B")
_QWEN25_7B = Size(7.62e9, 28, 3584, 18944, 28, 4, 128, "config of Qwen2.5-7B")
_QWEN3_235B = Size(235e9, 94, 4096, 12288, 64, 4, 128, "config of Qwen3-235B-A22B", active=22e9)
_QWEN3_14B = Size(14.8e9, 40, 5120, 17408, 40, 8, 128, "config of Qwen3-14B")
_QWEN3_8B = Size(8.19e9, 36, 4096, 12288, 32, 8, 128, "config of Qwen3-8B")
_GEMMA2_27B = Size(27.2e9, 46, 4608, 36864, 32, 16, 128, "config of Gemma-2-27B")
_LLAMA_8B = Size(8.03e9, 32, 4096, 14336, 32, 8, 128, "config of Llama-3.1-8B")

SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "nvidia/Nemotron-4-340B-Reward": Size(
            341e9, 96, 18432, 73728, 96, 8, 192, "model card; with its language model's output layer, which is dropped"
        ),
        "nvidia/Llama-3.1-Nemotron-70B-Reward-HF": _LLAMA_70B,
        "nvidia/Llama-3.3-Nemotron-70B-Reward": _LLAMA_70B,
        "nvidia/Llama-3.3-Nemotron-70B-Reward-Multilingual": _LLAMA_70B,
        "nvidia/Llama-3.3-Nemotron-70B-Select": _LLAMA_70B,
        "nvidia/Llama-3.3-Nemotron-70B-Reward-Principle": _LLAMA_70B,
        "nvidia/Qwen-3-Nemotron-32B-Reward": _QWEN3_32B,
        "nvidia/Qwen-2.5-Nemotron-32B-Reward": _QWEN25_32B,
        "nvidia/Qwen3-Nemotron-32B-GenRM-Principle": _QWEN3_32B,
        "nvidia/Llama-3_3-Nemotron-Super-49B-GenRM": Size(
            49.9e9, 80, 8192, 28672, 64, 8, 128, "model card; no layer is larger than those of Llama-3.3-70B"
        ),
        "nvidia/Qwen3-Nemotron-235B-A22B-GenRM": _QWEN3_235B,
        "nvidia/Qwen3-Nemotron-235B-A22B-GenRM-2603": _QWEN3_235B,
        "Skywork/Skywork-Reward-Gemma-2-27B": _GEMMA2_27B,
        "Skywork/Skywork-Reward-Llama-3.1-8B": _LLAMA_8B,
        "Skywork/Skywork-Reward-V2-Llama-3.1-8B": _LLAMA_8B,
        "Skywork/Skywork-Reward-V2-Qwen3-8B": _QWEN3_8B,
        "internlm/internlm2-20b-reward": Size(19.9e9, 48, 6144, 16384, 48, 8, 128, "config of InternLM2-20B"),
        "Qwen/Qwen2.5-Math-RM-72B": _QWEN25_72B,
        "Qwen/Qwen2.5-Math-PRM-72B": _QWEN25_72B,
        "Qwen/Qwen2.5-Math-PRM-7B": _QWEN25_7B,
        "Qwen/Qwen2.5-Math-7B-PRM800K": _QWEN25_7B,
        "RLHFlow/ArmoRM-Llama3-8B-v0.1": _LLAMA_8B,
        "nicolinho/QRM-Llama3.1-8B-v2": _LLAMA_8B,
        "nicolinho/QRM-Llama3.1-8B": _LLAMA_8B,
        "nicolinho/QRM-Llama3-8B": _LLAMA_8B,
        "Ray2333/GRM-llama3-8B-sftreg": _LLAMA_8B,
        "infly/INF-ORM-Llama3.1-70B": _LLAMA_70B,
        "ShikaiChen/LDL-Reward-Gemma-2-27B-v0.1": _GEMMA2_27B,
        "lenovo/Lenovo-Reward-Gemma-2-27B-v0.1": _GEMMA2_27B,
        "gaotang/RM-R1-DeepSeek-Distilled-Qwen-32B": _QWEN25_32B,
        "gaotang/RM-R1-Qwen2.5-Instruct-32B": _QWEN25_32B,
        "rubricreward/R3-Qwen3-14B-14k": _QWEN3_14B,
        "WisdomShell/RewardAnything-8B-v1": _QWEN3_8B,
    }
)
"""By hub id; of models that come in several sizes, the largest."""


def size_of_model(model: str) -> Size:
    """The size of a published model, or of a checkpoint whose weights are here. Raises `SettingsError` if it isn't known."""
    named = {name.lower(): size for name, size in SIZES.items()}
    if model.lower() in named:
        return named[model.lower()]
    try:
        return size_of(Checkpoint.find(model, None))
    except ModelError as error:
        raise SettingsError(f"the size of {model} isn't known: {error}") from error


def size_of(checkpoint: Checkpoint) -> Size:
    """The size of a checkpoint, by its config and the shapes of its weights, or of its class' ones if it has none here.

    Raises `ModelError`.
    """
    tensors = checkpoint.tensors or _tensors_of_class(checkpoint)
    shapes = [shape for shape in tensors.values() if shape is not None]
    if not shapes or len(shapes) < len(tensors):
        raise ModelError(f"{checkpoint.folder}: some weight files are missing, so its size is unknown")
    config: Mapping[str, Any] = checkpoint.config.get("text_config") or checkpoint.config
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return Size(
            parameters=float(sum(math.prod(shape) for shape in shapes)),
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(config.get("intermediate_size") or 4 * hidden),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            source=str(checkpoint.folder),
            active=_active(tensors, config),
            dtype=checkpoint.dtype,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{checkpoint.folder}/config.json doesn't tell the model's size: {error!r}") from error


def _tensors_of_class(checkpoint: Checkpoint) -> Mapping[str, tuple[int, ...]]:
    """Names and shapes of the weights of the model's class in transformers, without memory for them; empty without one."""
    import torch  # seconds of import
    import transformers

    if (kind := getattr(transformers, checkpoint.architecture, None)) is None:
        return {}
    try:
        with torch.device("meta"):
            weights = kind(transformers.AutoConfig.from_pretrained(str(checkpoint.folder), trust_remote_code=False))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{checkpoint.folder}/config.json doesn't tell the model's size: {error!r}") from error
    return {name: tuple(weight.shape) for name, weight in weights.named_parameters()}


def _active(tensors: Mapping[str, tuple[int, ...] | None], config: Mapping[str, Any]) -> float | None:
    """The parameters that one token uses, in a mixture of experts; None if it uses all."""
    shapes = {name: math.prod(shape) for name, shape in tensors.items() if shape is not None}
    experts = sum(count for name, count in shapes.items() if _EXPERTS in name)
    if not experts:
        return None
    passed = config["num_experts_per_tok"] / (config.get("num_experts") or config["num_local_experts"])
    return sum(shapes.values()) - experts * (1 - passed)
