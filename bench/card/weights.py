"""Checkpoints of made-up models: of random weights, or of none, which vLLM makes up."""

import json
from pathlib import Path
from typing import Any

from bench.card.hosts import on_gpu
from bench.speed import DUMMY, Size, write_config


def write_weights(folder: Path, size: Size) -> Path:
    """A reward model of random weights as it is initialised, so that rewards are of the size of real ones."""
    import torch
    from safetensors.torch import save_file

    write_config(folder, size)
    device = "cuda" if on_gpu() else "cpu"
    dtype = getattr(torch, size.dtype)
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> Any:
        return (torch.randn(shape, generator=generator, device=device) * 0.02).to(dtype).cpu()

    narrow = size.key_value_heads * size.head_size
    wide = size.heads * size.head_size
    ones = torch.ones(size.hidden, dtype=dtype)
    index = {}
    shard: dict[str, Any] = {
        "model.embed_tokens.weight": draw(size.vocabulary, size.hidden),
        "model.norm.weight": ones.clone(),
        "score.weight": draw(1, size.hidden),
    }
    for layer in range(size.layers + 1):
        if layer % 4 == 0 or layer == size.layers:  # a file for every four layers, and no more of them in memory
            file = f"model-{layer:03}.safetensors"
            save_file(shard, folder / file, metadata={"format": "pt"})
            index.update(dict.fromkeys(shard, file))
            shard = {}
        if layer == size.layers:
            break
        name = f"model.layers.{layer}"
        shard |= {
            f"{name}.self_attn.q_proj.weight": draw(wide, size.hidden),
            f"{name}.self_attn.k_proj.weight": draw(narrow, size.hidden),
            f"{name}.self_attn.v_proj.weight": draw(narrow, size.hidden),
            f"{name}.self_attn.o_proj.weight": draw(size.hidden, wide),
            f"{name}.mlp.gate_proj.weight": draw(size.intermediate, size.hidden),
            f"{name}.mlp.up_proj.weight": draw(size.intermediate, size.hidden),
            f"{name}.mlp.down_proj.weight": draw(size.hidden, size.intermediate),
            f"{name}.input_layernorm.weight": ones.clone(),
            f"{name}.post_attention_layernorm.weight": ones.clone(),
        }
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def write_writer(folder: Path, size: Size, built_in: str) -> dict[str, Any]:
    """A judge or a policy whose weights vLLM makes up, as a model with text has no reward that they could spoil.

    Returns the engine's arguments for that.
    """
    import torch
    from safetensors.torch import save_file

    write_config(folder, size, built_in)
    save_file({"model.norm.weight": torch.ones(size.hidden)}, folder / "model.safetensors", metadata={"format": "pt"})
    return DUMMY
