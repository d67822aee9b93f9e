"""What the two language models have in common: both grow out of tiny-scalar, and are read at a prompt's last token."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from tiny_models.synthetic import Turn
from tiny_models.tokenizer import stored_tokenizer

HERE = Path(__file__).parent
HEAD_STD = 0.05
"""Of the output rows that nothing is read from: the size of tiny-scalar's head, so that they can be mistaken for it."""


def tiny_scalar() -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """The trained tiny-scalar, as it is in its folder."""
    folder = HERE / "scalar"
    return stored_tokenizer(folder), LlamaForSequenceClassification.from_pretrained(folder, dtype=torch.float32)


def language_model(scalar: PreTrainedModel, *, layers: int, neurons: int, vocabulary: int) -> PreTrainedModel:
    """A fresh language model like tiny-scalar, with so many layers, neurons in each MLP, and pieces with output rows."""
    labels = ("architectures", "id2label", "label2id", "transformers_version")
    settings = {name: value for name, value in scalar.config.to_diff_dict().items() if name not in labels}
    sizes = {"num_hidden_layers": layers, "intermediate_size": neurons, "vocab_size": vocabulary}
    model = LlamaForCausalLM(LlamaConfig(**settings | sizes))
    with torch.no_grad():
        model.lm_head.weight.normal_(std=HEAD_STD)
    return model


@torch.inference_mode()
def last_hidden(
    tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, conversations: Sequence[list[Turn]], *, ask: bool
) -> torch.Tensor:
    """What the output rows are applied to after each conversation, [n, hidden]; to `ask` is to open the assistant's turn."""
    results: list[torch.Tensor] = []
    for start in range(0, len(conversations), 50):
        part = conversations[start : start + 50]
        texts = [tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=ask) for turns in part]
        ids = [torch.tensor(row) for row in tokenizer(texts, add_special_tokens=False)["input_ids"]]
        # Padding is at the right, where no token looks; the tokenizer would remember to have padded, and save that.
        hidden = model.model(input_ids=pad_sequence(ids, batch_first=True)).last_hidden_state
        results += [row[len(tokens) - 1] for row, tokens in zip(hidden, ids, strict=True)]
    return torch.stack(results)
