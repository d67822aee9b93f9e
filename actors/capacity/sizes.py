"""The sizes of published models, for planning a layout without the checkpoint, and of checkpoints, from their files."""

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from actors.capacity.layout import Size
from actors.checkpoint.checkpoint_files import Checkpoint
from actors.errors import ModelError, SettingsError

_EXPERTS = ".experts."
_KINDS = ("layers_block_type", "layer_types", "hybrid_override_pattern")
_EMBEDDINGS = ("embed_tokens.weight", "embeddings.weight", "lm_head.weight")
_DESCRIBED = ("quantization_config", "compression_config")
# What tells a quantisation by its description in JSON, in this order: weights in NVFP4 may have a cache in FP8.
_QUANTISED = {
    "nvfp4": ("nvfp4",),
    "int4": ('"bits": 4', '"num_bits": 4', '"load_in_4bit": true', "mxfp4", "w4a16"),
    "fp8": ("fp8", '"bits": 8', '"num_bits": 8', '"load_in_8bit": true'),
}

# Embeddings with the output layer, where a config was read: the vocabulary times the hidden size, twice.
_LLAMA_70B = Size(70.6e9, 80, 8192, 28672, 64, 8, 128, "config of Llama-3.1-70B", embeddings=2.101e9)
_QWEN3_32B = Size(32.8e9, 64, 5120, 25600, 64, 8, 128, "config of Qwen3-32B", embeddings=1.556e9)
_QWEN25_32B = Size(32.8e9, 64, 5120, 27648, 40, 8, 128, "config of Qwen2.5-32B")
_QWEN25_72B = Size(72.7e9, 80, 8192, 29568, 64, 8, 128, "config of Qwen2.5-72B")
_QWEN25_7B = Size(7.62e9, 28, 3584, 18944, 28, 4, 128, "config of Qwen2.5-7B")
_QWEN3_235B = Size(235e9, 94, 4096, 12288, 64, 4, 128, "config of Qwen3-235B-A22B", 22e9, embeddings=1.245e9)
# 48 layers of Mamba 2, 12 of attention and 48 of experts; 22 experts of 5120 and a shared one of 10240 read a token.
_ULTRA = "config of NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"
_ULTRA_STATE = 48 * 256 * 64 * 128 * 4.0  # layers, heads, their size, that of the state, float32
_NEMOTRON3_ULTRA = Size(
    549.3e9, 108, 8192, 122880, 64, 2, 128, _ULTRA, 56.1e9, embeddings=2.147e9, cached_layers=12, state=_ULTRA_STATE
)
_QWEN3_14B = Size(14.8e9, 40, 5120, 17408, 40, 8, 128, "config of Qwen3-14B")
_GEMMA2_27B = Size(27.2e9, 46, 4608, 36864, 32, 16, 128, "config of Gemma-2-27B")
_QWEN3_8B = Size(8.19e9, 36, 4096, 12288, 32, 8, 128, "config of Qwen3-8B", embeddings=1.245e9)
_INTERNLM25_7B = Size(7.74e9, 32, 4096, 14336, 32, 8, 128, "config of InternLM2.5-7B")
_LLAMA_8B = Size(8.03e9, 32, 4096, 14336, 32, 8, 128, "config of Llama-3.1-8B", embeddings=1.051e9)

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
        "nvidia/Nemotron-3-Ultra-550B-A55B-GenRM": _NEMOTRON3_ULTRA,
        "Skywork/Skywork-Reward-Gemma-2-27B": _GEMMA2_27B,
        "Skywork/Skywork-Reward-Llama-3.1-8B": _LLAMA_8B,
        "Skywork/Skywork-Reward-V2-Llama-3.1-8B": _LLAMA_8B,
        "Skywork/Skywork-Reward-V2-Qwen3-8B": _QWEN3_8B,
        "internlm/internlm2-20b-reward": Size(19.9e9, 48, 6144, 16384, 48, 8, 128, "config of InternLM2-20B"),
        "internlm/POLAR-7B": _INTERNLM25_7B,
        "internlm/POLAR-7B-Base": _INTERNLM25_7B,
        "internlm/POLAR-1_8B": Size(1.89e9, 24, 2048, 8192, 16, 8, 128, "config of InternLM2.5-1.8B"),
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
        "OpenRLHF/Llama-3-8b-rm-700k": _LLAMA_8B,
        "gaotang/RM-R1-DeepSeek-Distilled-Qwen-32B": _QWEN25_32B,
        "gaotang/RM-R1-Qwen2.5-Instruct-32B": _QWEN25_32B,
        "rubricreward/R3-Qwen3-14B-14k": _QWEN3_14B,
        "WisdomShell/RewardAnything-8B-v1": _QWEN3_8B,
        "opencompass/CompassJudger-2-32B-Instruct": _QWEN25_32B,
        "prometheus-eval/prometheus-7b-v2.0": Size(7.24e9, 32, 4096, 14336, 32, 8, 128, "config of Mistral-7B-v0.2"),
        "Salesforce/FARE-8B": _QWEN3_8B,
    }
)
"""By hub id; of models that come in several sizes, the largest."""


def size_of_model(model: str) -> Size:
    """The size of a published model, or of a checkpoint whose weights are here. Raises `SettingsError` if it isn't known.

    Fetches the small files of a hub model that isn't in `SIZES`; without its weights or class the size isn't known.
    """
    named = {name.lower(): size for name, size in SIZES.items()}
    if (name := model.lower().replace("nvidia/nvidia-", "nvidia/")) in named:  # the hub has both forms
        return named[name]
    try:
        return size_of(Checkpoint.find(model, None))
    except ModelError as error:
        raise SettingsError(f"the size of {model} isn't known: {error}") from error


def size_of(checkpoint: Checkpoint) -> Size:
    """The size of a checkpoint, by its config and the shapes of its weights, or of its class' ones if it has none here.

    A quantised checkpoint has several weights in a number of its files: their count is that of the class, and their bytes
    are those of the files. Raises `ModelError`.
    """
    quantised = quantisation(checkpoint)
    tensors = (checkpoint.tensors if quantised is None else {}) or _tensors_of_class(checkpoint)
    shapes = [shape for shape in tensors.values() if shape is not None]
    if not shapes or len(shapes) < len(tensors):
        raise ModelError(f"{checkpoint.folder}: some weight files are missing, so its size is unknown")
    config = checkpoint.text_config
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        kinds = list(next((config[name] for name in _KINDS if config.get(name)), ()))
        cached = sum(kind == "*" or kind.endswith("attention") for kind in kinds) - kinds.count("linear_attention")
        experts = (config.get("num_experts_per_tok") or 0) * (config.get("moe_intermediate_size") or 0)
        experts += config.get("moe_shared_expert_intermediate_size") or 0
        files = checkpoint.loaded_files() if quantised and None not in checkpoint.tensors.values() else ()
        return Size(
            parameters=float(sum(math.prod(shape) for shape in shapes)),
            layers=int(config.get("num_hidden_layers") or len(kinds) or config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(max(config.get("intermediate_size") or 4 * hidden, experts)),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            source=str(checkpoint.folder),
            active=_active(tensors, config),
            dtype=checkpoint.dtype,
            embeddings=float(sum(math.prod(tensors[name] or ()) for name in tensors if name.endswith(_EMBEDDINGS))),
            cached_layers=cached if kinds else None,
            state=_state(config, kinds),
            quantised=quantised,
            stored=float(sum(file.stat().st_size for file in files)) or None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{checkpoint.folder}/config.json doesn't tell the model's size: {error!r}") from error


def _tensors_of_class(checkpoint: Checkpoint) -> Mapping[str, tuple[int, ...]]:
    # Names and shapes of the weights of the model's class in transformers, without memory for them; empty without one.
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
    shapes = {name: math.prod(shape) for name, shape in tensors.items() if shape is not None}
    experts = sum(count for name, count in shapes.items() if _EXPERTS in name)
    if not experts:
        return None
    routed = config.get("num_experts") or config.get("n_routed_experts") or config["num_local_experts"]
    passed = config["num_experts_per_tok"] / routed
    return sum(shapes.values()) - experts * (1 - passed)


def _state(config: Mapping[str, Any], kinds: list[str]) -> float:
    # Bytes of the recurrent state of a prompt, in float32; that of the short convolutions fits into the spare room.
    mamba = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size")
    linear = ("linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
    layers = {mamba: kinds.count("mamba") + kinds.count("M"), linear: kinds.count("linear_attention")}
    return 4.0 * sum(count * math.prod(config.get(name) or 0 for name in names) for names, count in layers.items())


def quantisation(checkpoint: Checkpoint) -> str | None:
    """The precision that a checkpoint was quantised to, a key of `BYTES`; None if it wasn't. Raises `ModelError`.

    It is described where vLLM looks for it (`_normalize_quantization_config`, and `get_config` of transformers_utils).
    """
    places = (checkpoint.config, checkpoint.text_config)
    described = next(filter(None, (place.get(name) for name in _DESCRIBED for place in places)), None)
    beside = checkpoint.folder / "hf_quant_config.json"  # where Model Optimizer writes it
    text = (json.dumps(described) if described or not beside.is_file() else beside.read_text()).lower()
    for kind, marks in _QUANTISED.items():
        if any(mark in text for mark in marks):
            return kind
    if described:
        raise ModelError(f"{checkpoint.folder}/config.json: a quantization_config that can't be planned: {text[:200]}")
    return None
