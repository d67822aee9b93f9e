"""Makes the tiny models whose heads read hidden states, without training: `python -m tiny_models.heads [--out DIR]`.

Bodies and heads are random, by one seed, so that a wrong reading gives other numbers: each head has the tensors, names and
files of a published one, with biases and running statistics that can't be left out unnoticed.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import Gemma2Config, Gemma2Model, LlamaConfig, LlamaModel, PreTrainedConfig, PreTrainedModel

from tiny_models.causal import HERE

SEED = 1009
HIDDEN = 64
WIDTH = 32
"""Of a head's inner layers."""
LLAMA3 = (
    "{{- bos_token }}{%- for message in messages %}"
    "{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' ~ message.content | trim ~ '<|eot_id|>' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}\n"
)
_SHAPE = {
    "vocab_size": 768, "hidden_size": HIDDEN, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 8192, "initializer_range": 0.2,
    "bos_token_id": 3, "eos_token_id": 6, "pad_token_id": 0,
}  # fmt: skip

Tensors = Mapping[str, torch.Tensor]


def gate(hidden: int, objectives: int, *, batch_norm: bool) -> nn.ModuleList:
    """A gate's layers: of ArmoRM linear ones alone, of QRM each followed by ReLU and a batch norm, but for the last."""
    layers: list[nn.Module] = []
    for inputs in (hidden, WIDTH, WIDTH):
        layers.append(nn.Linear(inputs, WIDTH, bias=not batch_norm))
        layers += [nn.ReLU(), nn.BatchNorm1d(WIDTH)] if batch_norm else []
    return nn.ModuleList([*layers, nn.Linear(WIDTH, objectives)])


def perceptron(*widths: int, between: Callable[[], list[nn.Module]]) -> nn.Sequential:
    """Linear layers of these widths with others between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [*(between() if layers else []), nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


@torch.no_grad()
def stirred(module: nn.Module, prefix: str) -> dict[str, torch.Tensor]:
    """The module's tensors under a prefix, all random, so that none can be left out."""
    tensors = dict(module.state_dict())
    for name, weight in tensors.items():
        if name.endswith("running_var"):
            weight.uniform_(0.2, 2.0)
        elif weight.is_floating_point():
            weight.normal_(std=0.4 if weight.ndim == 1 else 1.5 * weight.shape[-1] ** -0.5)
    return {f"{prefix}{name}": weight for name, weight in tensors.items()}


def gated(objectives: int, quantiles: int, *, batch_norm: bool) -> dict[str, torch.Tensor]:
    """The tensors of ArmoRM's head and QRM's."""
    weighing = stirred(gate(HIDDEN, objectives, batch_norm=batch_norm), "gating.layers.")
    weighing[list(weighing)[-2]] *= 12  # the last weights: the gate's temperature would hide what it has read
    return {
        "regression_layer.weight": torch.randn(objectives * quantiles, HIDDEN) * 0.15 * quantiles**0.5,
        **weighing,
        "gating.logit_scale": torch.tensor([1.7]),
        "reward_transform_matrix": torch.eye(objectives) + 0.2 * torch.randn(objectives, objectives),
    }


def llama() -> tuple[PreTrainedConfig, PreTrainedModel]:
    """A random body and its config."""
    config = LlamaConfig(**_SHAPE)
    return config, LlamaModel(config)


def gemma() -> tuple[PreTrainedConfig, PreTrainedModel]:
    """A random Gemma 2, whose norms add one to their weights."""
    config = Gemma2Config(**_SHAPE, query_pre_attn_scalar=32, sliding_window=4096)
    return config, Gemma2Model(config)


def write(
    folder: Path, body: tuple[PreTrainedConfig, PreTrainedModel], head: Tensors, prefix: str, **config: object
) -> None:
    """A checkpoint in float16: a body under a prefix, its head, and tiny-policy's tokenizer with Llama 3's template."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((HERE / "policy" / file).read_bytes())
    (folder / "chat_template.jinja").write_text(LLAMA3)
    body_tensors = {f"{prefix}{name}": weight for name, weight in body[1].state_dict().items()}
    stored = {name: weight.half().contiguous() for name, weight in {**body_tensors, **head}.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # save_file leaves it to its owner alone
    fields = json.loads(body[0].to_json_string()) | {"dtype": "float32", "id2label": {"0": "LABEL_0"}} | config
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def main() -> None:
    """Write all five."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.heads", description=main.__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    out = parser.parse_args().out
    torch.manual_seed(SEED)
    two = perceptron(HIDDEN, HIDDEN, 1, between=lambda: [nn.ReLU()])
    write(out / "inf-orm", llama(), stirred(two, "score."), "model.", architectures=["INFORMForSequenceClassification"])
    value = stirred(perceptron(HIDDEN, WIDTH, 1, between=lambda: [nn.ReLU()]), "v_head.summary.")
    neurons = {"vhead_layer_type": "mlp", "vhead_num_neurons": WIDTH, "vhead_num_layers": 1}
    write(out / "grm", llama(), value, "model.", architectures=["LlamaForCausalLM"], **neurons)
    names = {"architectures": ["LlamaForRewardModelWithGating"], "auto_map": {"AutoModel": "modeling_custom.Model"}}
    armorm = {**names, "num_objectives": 19, "gating_temperature": 10}
    write(out / "armorm", llama(), gated(19, 1, batch_norm=False), "model.", **armorm)
    qrm = {**names, "num_objectives": 5, "num_quantiles": 19, "gating_temperature": 5.0}
    write(out / "qrm", llama(), gated(5, 19, batch_norm=True), "model.", **qrm)
    write(out / "ldl", gemma(), {}, "", architectures=["Gemma2Model"], num_objectives=220)
    ratings = perceptron(HIDDEN, HIDDEN, HIDDEN, 220, between=lambda: [nn.LeakyReLU()])
    weights = perceptron(HIDDEN, WIDTH, WIDTH, 22, between=lambda: [nn.LeakyReLU(), nn.Dropout()])
    for file, network in (("regression_layer", ratings), ("gating_layer", weights)):
        tensors = {name: weight.half() for name, weight in stirred(network, "network.").items()}
        torch.save(tensors, out / "ldl" / f"{file}.pt")


if __name__ == "__main__":
    main()
