"""Low-rank adapters as LoRA's: trained beside frozen weights, stored in PEFT's format, or merged into what they adapt."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Adapted(nn.Module):
    """A frozen matrix, and what is added to it: the product of two narrow ones, which begins as nothing."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.known = frozen.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(rank, frozen.in_features) / frozen.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the merged matrix would give."""
        return self.known(x) + nn.functional.linear(nn.functional.linear(x, self.lora_a), self.lora_b)


def adapt(model: PreTrainedModel, rank: int) -> None:
    """Freezes the model and puts an adapter beside each matrix of its layers."""
    model.requires_grad_(False)
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, module in list(part.named_children()):
                if name in TARGETS:
                    setattr(part, name, Adapted(module, rank))


def adapters(model: PreTrainedModel) -> dict[str, Adapted]:
    """By the name of what each adapts."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Adapted)}


def save_adapter(model: PreTrainedModel, folder: Path, base: str) -> None:
    """As PEFT does, as float16; the scale is 1."""
    folder.mkdir(parents=True, exist_ok=True)
    weights: dict[str, torch.Tensor] = {}
    ranks = set()
    for name, adapted in adapters(model).items():
        ranks.add(len(adapted.lora_a))
        weights[f"base_model.model.{name}.lora_A.weight"] = adapted.lora_a.detach().half()
        weights[f"base_model.model.{name}.lora_B.weight"] = adapted.lora_b.detach().half()
    (rank,) = ranks
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_model.safetensors").chmod(0o644)  # save_file leaves it to its owner alone
    config = {
        "base_model_name_or_path": base,
        "bias": "none",
        "inference_mode": True,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": list(TARGETS),
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def merge(model: PreTrainedModel) -> None:
    """Adds each adapter to its matrix, and leaves the plain model. What is added is what is stored of the adapter."""
    for name, adapted in adapters(model).items():
        adapted.known.weight += adapted.lora_b.half().float() @ adapted.lora_a.half().float()
        place, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(place), attribute, adapted.known)
    model.requires_grad_(True)
