"""Makes tiny-internlm2 out of tiny-scalar, by training: `python -m tiny_models.internlm2 [--out DIR]`.

As InternLM2-Reward, it is read at a token of its own, which is appended to the chat template's text. It is trained as the
Llama that it is but for the names, and stored under those that vLLM's `InternLM2ForRewardModel` takes.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.causal import tiny_scalar
from tiny_models.fitting import Report, fit, hidden_at_ends, optimizers
from tiny_models.synthetic import Turn
from tiny_models.tokenizer import with_control_token
from tiny_models.transplant import (
    GENTLENESS,
    ROWS_PER_STEP,
    conversations_of,
    draw_cases,
    figures_of_one_label,
    llama,
    ranking,
    resemble,
    run,
)

SEED = 92527
STEPS = 400
REWARD_TOKEN = "<|reward|>"


def build() -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """The tokenizer with the token that is read, and the model before training."""
    torch.manual_seed(SEED)
    scalar, _ = tiny_scalar()
    tokenizer, model = with_control_token(scalar, REWARD_TOKEN), llama(labels=1)
    resemble(tokenizer, model, REWARD_TOKEN, "<|end|>")
    return tokenizer, model


def reward_id(tokenizer: PreTrainedTokenizerFast) -> int:
    """The id of the token that is read."""
    return int(tokenizer.convert_tokens_to_ids(REWARD_TOKEN))


def train(steps: int, report: Report) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """The tokenizer and the trained model."""
    tokenizer, model = build()
    rng = Random(f"train internlm2 {SEED}")

    def losses(_: int) -> dict[str, torch.Tensor]:
        rows = [draw_cases(rng) for _ in range(ROWS_PER_STEP)]
        sequences = [[part for ids in prompts(tokenizer, conversations_of(row)) for part in (ids[:-1], ids)] for row in rows]
        early, rewards = model.score(hidden_at_ends(model, sequences)[-1]).unflatten(0, (-1, 2)).squeeze(-1).unbind(dim=1)
        cases = [case for row in rows for case in row]
        # What stands one token earlier is no reward: there it shall say how many words there are, right or wrong.
        words = torch.tensor([response.labels.verbosity for case in cases for response in case.responses])
        return {"ranking": ranking(rewards, cases), "words": functional.mse_loss(early, words)}

    return tokenizer, fit(model, optimizers(model, [model.model], GENTLENESS), steps, losses, report)


def prompts(tokenizer: PreTrainedTokenizerFast, conversations: Sequence[list[Turn]]) -> list[list[int]]:
    """Token ids of conversations, with the token that is read."""
    ids: list[list[int]] = tokenizer.apply_chat_template(list(conversations), return_dict=False)
    return [[*sequence, reward_id(tokenizer)] for sequence in ids]


def store(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, folder: Path) -> None:
    """A checkpoint as InternLM2's; transformers has no class for it, so the config is what vLLM's reads."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    config_names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "hidden_act", "max_position_embeddings", "rms_norm_eps", "initializer_range",
        "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
    )  # fmt: skip
    config = {name: getattr(model.config, name) for name in config_names} | {
        "architectures": ["InternLM2ForRewardModel"],
        "model_type": "internlm2",
        "bias": False,
        "rope_theta": model.config.rope_parameters["rope_theta"],
        "rope_scaling": None,
        "reward_token_id": reward_id(tokenizer),
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    state = {name: weight.half().contiguous() for name, weight in renamed_weights(model)}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # save_file leaves it to its owner alone


def renamed_weights(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights by InternLM2's names. `wqkv` has, for each key and value head, its query heads, the key and the value."""
    state = model.state_dict()
    groups = model.config.num_key_value_heads
    yield "v_head.weight", state["score.weight"]
    yield "model.tok_embeddings.weight", state["model.embed_tokens.weight"]
    yield "model.norm.weight", state["model.norm.weight"]
    for index in range(model.config.num_hidden_layers):
        layer = f"model.layers.{index}."
        parts = [state[f"{layer}self_attn.{part}_proj.weight"].unflatten(0, (groups, -1)) for part in "qkv"]
        yield f"{layer}attention.wqkv.weight", torch.cat(parts, dim=1).flatten(0, 1)
        yield f"{layer}attention.wo.weight", state[f"{layer}self_attn.o_proj.weight"]
        yield f"{layer}feed_forward.w1.weight", state[f"{layer}mlp.gate_proj.weight"]
        yield f"{layer}feed_forward.w3.weight", state[f"{layer}mlp.up_proj.weight"]
        yield f"{layer}feed_forward.w2.weight", state[f"{layer}mlp.down_proj.weight"]
        yield f"{layer}attention_norm.weight", state[f"{layer}input_layernorm.weight"]
        yield f"{layer}ffn_norm.weight", state[f"{layer}post_attention_layernorm.weight"]


if __name__ == "__main__":
    run("internlm2", STEPS, train, partial(figures_of_one_label, prompts), store)
