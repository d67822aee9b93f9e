"""Heads on bodies that vLLM converts: seeded ones, made here, at every position against transformers in float32."""

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.engine.protocol import Task
from actors.models.scalar import FAMILY
from tests.support.engines import ask_all, close_vllm, start_vllm

VOCABULARY, WINDOW = 320, 16
_WINDOWS = {
    "num_hidden_layers": 4,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
BODIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "GptOss": ("gpt_oss", {**_WINDOWS, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "Gemma3Text": ("gemma3", {**_WINDOWS, "query_pre_attn_scalar": 32}),
    "Olmo3": ("olmo3", _WINDOWS),
    "Granite": ("granite", {"num_hidden_layers": 2}),
    "NemotronH": (
        "nemotron_h",
        {
            "layers_block_type": ["mamba", "full_attention", "mlp"],
            "mamba_num_heads": 4,
            "mamba_head_dim": 32,
            "ssm_state_size": 32,
            "n_groups": 2,
            "chunk_size": 32,
            "time_step_min": 1e-9,  # transformers makes no step shorter, and vLLM does: 4e-4 of a reward at the usual 0.001
        },
    ),
}
"""Of each its module in transformers, and what of its configuration isn't usual."""
ENGINE_ARGS: Mapping[str, Mapping[str, Any]] = {"NemotronH": {"enable_prefix_caching": False}}
"""vLLM's Mamba on a CPU fails with a prefix cache."""


def write(name: str, folder: Path) -> Any:
    """A checkpoint with one label; returns the model."""
    import torch
    from transformers.modeling_layers import GenericForSequenceClassification

    module, special = BODIES[name]
    torch.manual_seed(1)
    body = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    config = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    settings = getattr(config, f"{name}Config")(
        **{**sizes, **special},
        vocab_size=VOCABULARY,
        max_position_embeddings=1024,
        pad_token_id=0,
        initializer_range=0.1,
        num_labels=1,
    )
    base = getattr(body, f"{name.removesuffix('Text')}PreTrainedModel")
    # Some have such a class, and this is it; of the others somebody's would be no different.
    model = type(f"{name}ForSequenceClassification", (GenericForSequenceClassification, base), {})(settings).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:  # norms and biases, which begin as ones and zeros
                weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    return model


def prompts() -> list[list[int]]:
    """Shorter and longer than the window, and some whose beginning the prefix cache may have."""
    import torch

    drawn = torch.Generator().manual_seed(5)
    lengths = (3, WINDOW + 1, 200, 450)
    first = [torch.randint(1, VOCABULARY, (length,), generator=drawn).tolist() for length in lengths]
    return [*first, first[2][:150], first[2]]


@pytest.mark.long
@pytest.mark.parametrize("name", BODIES)
def test_a_body_gives_the_rewards_of_transformers(name: str, tmp_path: Path) -> None:
    import torch

    model, prompt_ids = write(name, tmp_path), prompts()
    with torch.inference_mode():
        expected = [model.score(model.model(torch.tensor([ids])).last_hidden_state)[0, :, 0] for ids in prompt_ids]
    checkpoint = Checkpoint.find(str(tmp_path), None)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [f"{name}ForSequenceClassification"]
    assert (checkpoint.labels, checkpoint.causal, FAMILY.recognises(checkpoint)) == (1, True, True)
    overrides = FAMILY.overrides(checkpoint)
    for task in (Task.CLASSIFY, Task.TOKEN_CLASSIFY):
        engine = start_vllm(tmp_path, task, hf_overrides=overrides, engine_args=ENGINE_ARGS.get(name, {}))
        try:
            for _ in range(2):  # the second time with a prefix cache
                places: Sequence[Any] = [None if task is Task.CLASSIFY else range(len(ids)) for ids in prompt_ids]
                pooled = ask_all(engine, [engine.pool(ids, at) for ids, at in zip(prompt_ids, places, strict=True)])
                for answer, outputs in zip(pooled, expected, strict=True):
                    rows = torch.tensor(answer.rows)[:, 0]
                    assert (rows - outputs[-len(rows) :]).abs().max() <= 1e-4
        finally:
            close_vllm(engine)
    last = torch.stack([outputs[-1] for outputs in expected])
    before = torch.stack([outputs[-2] for outputs in expected])
    assert (last - before).abs().max() > 1e-2
