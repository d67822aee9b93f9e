"""What the judges and the policy have in common: their shape, the loss on what they write, and how to have them write it."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from tiny_models.dialects import Judgement
from tiny_models.judge_tokenizer import PAD, save_tokenizer
from tiny_models.start import prepare
from tiny_models.synthetic import Turn
from tiny_models.tokenizer import CONTEXT_LENGTH

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT_LENGTH,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "tie_word_embeddings": True,
}
"""Heads are 32 wide, the least that vLLM has kernels for on a CPU; two of each kind, for tensor parallelism."""
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}

SURE, UNSURE = 0.003, 0.03
"""Probability that a verdict of one word leaves to the opposite one: log-odds of 5.8 and 3.5."""
YES, NO = " Yes", " No"
SUM_LENGTH, RESULT, COMPARISON = 18, 6, 16
"""Tokens in `3 + 4 = 7.` and `1 says 8 for 7: wrong.`, a line each, and which of them are the result and the comparison."""
LONGEST = 256
"""More tokens than any judgement has."""


def qwen3(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A fresh dense Qwen3."""
    return _prepared(Qwen3ForCausalLM(Qwen3Config(**_settings(tokenizer), head_dim=32)), tokenizer)


def qwen3_head(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A fresh dense Qwen3 that gives one number."""
    settings = _settings(tokenizer) | {"tie_word_embeddings": False}
    return Qwen3ForSequenceClassification(Qwen3Config(**settings, head_dim=32, num_labels=1))


def qwen3_moe(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A fresh Qwen3 with experts."""
    return _prepared(Qwen3MoeForCausalLM(Qwen3MoeConfig(**_settings(tokenizer), head_dim=32, **EXPERTS)), tokenizer)


def qwen2(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A fresh Qwen2, with biases in the attention."""
    return _prepared(Qwen2ForCausalLM(Qwen2Config(**_settings(tokenizer))), tokenizer)


def llama(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A fresh Llama."""
    return _prepared(LlamaForCausalLM(LlamaConfig(**_settings(tokenizer))), tokenizer)


def _settings(tokenizer: PreTrainedTokenizerFast) -> dict[str, object]:
    pad = tokenizer.convert_tokens_to_ids(PAD)
    bos = pad if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    ids = {"vocab_size": len(tokenizer), "bos_token_id": bos, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": pad}
    return SIZES | ids


def _prepared(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    prepare(model, tokenizer, looking_back=(0,))
    return model


def load_model(folder: Path) -> PreTrainedModel:
    """A checkpoint made here."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@torch.no_grad()
def transplant(model: PreTrainedModel, source: PreTrainedModel) -> None:
    """Gives a model what one of its size has learnt; of its experts, each two hold the neurons of a dense layer's MLP."""
    weights = source.state_dict()
    for index, layer in enumerate(model.model.layers):
        experts = getattr(layer.mlp, "experts", None)
        prefix = f"model.layers.{index}.mlp"
        if experts is not None and f"{prefix}.gate_proj.weight" in weights:
            gate, up, down = (weights.pop(f"{prefix}.{part}_proj.weight") for part in ("gate", "up", "down"))
            width = EXPERTS["moe_intermediate_size"]
            for number in range(EXPERTS["num_experts"]):
                half = slice(number % 2 * width, (number % 2 + 1) * width)
                experts.gate_up_proj[number] = torch.cat([gate[half], up[half]])
                experts.down_proj[number] = 2 * down[:, half]  # two at a time, each with about half the say
    load_result = model.load_state_dict(weights, strict=False)
    if load_result.unexpected_keys or not all(
        "experts" in name or name.endswith((".bias", "mlp.gate.weight")) for name in load_result.missing_keys
    ):
        raise ValueError(f"the models differ: {load_result}")


@dataclass(frozen=True, slots=True)
class Row:
    """Token ids of a prompt and of what is to be written, with the end of the turn."""

    prompt: list[int]
    answer: list[int]
    doubts: Mapping[int, Mapping[int, float]]
    """By places in the answer: how likely tokens other than the one there are to be."""


def encode(tokenizer: PreTrainedTokenizerFast, judgement: Judgement) -> Row:
    """As a judge is asked, and as it is to answer."""
    row = encode_turn(tokenizer, judgement.messages, judgement.text)
    if not judgement.text.endswith((YES, NO)):
        return row
    (opposite,) = tokenizer.encode(NO if judgement.text.endswith(YES) else YES, add_special_tokens=False)
    return replace(row, doubts={len(row.answer) - 2: {opposite: SURE if judgement.sure else UNSURE}})


def encode_turn(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Turn], text: str) -> Row:
    """A conversation, and what is to be written next."""
    prompt = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
    answer = tokenizer(text, add_special_tokens=False)["input_ids"]
    return Row(prompt, [*answer, tokenizer.eos_token_id], {})


def loss(model: PreTrainedModel, rows: Sequence[Row]) -> torch.Tensor:
    """Of each token that is to be written. What all prompts begin with is computed once."""
    shared = _shared_length([row.prompt for row in rows])
    cache = DynamicCache(config=model.config)
    if shared:
        model.model(input_ids=torch.tensor([rows[0].prompt[:shared]]), past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(rows))
    ids = pad_sequence([torch.tensor((row.prompt + row.answer)[shared:]) for row in rows], batch_first=True)
    hidden = model.model(input_ids=ids[:, :-1], past_key_values=cache, use_cache=True).last_hidden_state
    places = torch.zeros(ids.shape, dtype=torch.bool)
    for place, row in zip(places, rows, strict=True):
        start = len(row.prompt) - shared
        place[start : start + len(row.answer)] = True
    places = places[:, 1:]
    logits, targets = model.lm_head(hidden[places]), ids[:, 1:][places]
    nodes, others, shares = _doubts(rows)
    # To give tokens a share of the probability changes the cross-entropy by so much, whatever the other logits are.
    doubted = shares @ (logits[nodes, targets[nodes]] - logits[nodes, others])
    return functional.cross_entropy(logits, targets) + doubted / len(targets)


def sums_loss(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, texts: Sequence[str]) -> torch.Tensor:
    """Of the results in lines of sums, and of comparing numbers with them: apart from any judgement both are learnt soon."""
    ids = torch.tensor(tokenizer(list(texts), add_special_tokens=False)["input_ids"])
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    nodes = torch.arange(1, ids.shape[1]) % SUM_LENGTH
    places = (nodes == RESULT) | (nodes == COMPARISON)
    return functional.cross_entropy(model.lm_head(hidden[:, places]).flatten(0, 1), ids[:, 1:][:, places].flatten())


def _shared_length(prompts: Sequence[list[int]]) -> int:
    """How many tokens all prompts begin with, but not the whole of the shortest."""
    columns = zip(*(prompt[:-1] for prompt in prompts), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def _doubts(rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Places in all answers one after the other, tokens that may be there instead, and how likely each is."""
    starts = itertools.accumulate((len(row.answer) for row in rows), initial=0)
    doubts = [
        (start + place, other, share)
        for start, row in zip(starts, rows, strict=False)
        for place, shares in row.doubts.items()
        for other, share in shares.items()
    ]
    nodes, others = (torch.tensor([doubt[column] for doubt in doubts], dtype=torch.long) for column in (0, 1))
    return nodes, others, torch.tensor([share for _, _, share in doubts])


@torch.inference_mode()
def generate_answers(
    tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, prompts: Sequence[list[int]], *, sampled: bool = False
) -> Iterator[list[int]]:
    """What the model writes to each prompt, greedily or at temperature 1, up to and with the end of the turn."""
    options = {"do_sample": True, "top_k": 0} if sampled else {"do_sample": False}  # else the library takes the 50 likeliest
    for start in range(0, len(prompts), 50):
        chunk = prompts[start : start + 50]
        longest = max(map(len, chunk))
        pad, end = model.config.pad_token_id, tokenizer.eos_token_id
        ids = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in chunk])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in chunk])
        generated = model.generate(ids, attention_mask=mask, max_new_tokens=LONGEST, **options)
        for row in generated[:, longest:].tolist():
            yield row[: row.index(end) + 1] if end in row else row


def save(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, folder: Path) -> None:
    """A checkpoint for transformers and vLLM: numbers stored as float16, to be computed with as float32."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: weight.half() for name, weight in model.state_dict().items() if name != "lm_head.weight"}
    model.config.dtype = torch.float32
    model.save_pretrained(folder, state_dict=state)  # which gives each expert its own names
    save_tokenizer(tokenizer, folder)
    (folder / "model.safetensors").chmod(0o644)
