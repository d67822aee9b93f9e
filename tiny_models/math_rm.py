"""Makes tiny-math-rm out of tiny-scalar, by training: `python -m tiny_models.math_rm [--out DIR]`.

As Qwen2.5-Math-RM-72B, it is a Qwen2 with a head of two layers, which is read at the last token of a conversation that
begins with the model card's system turn.
"""

from functools import partial
from random import Random

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.causal import tiny_scalar
from tiny_models.fitting import Report, fit, hidden_at_ends, optimizers
from tiny_models.qwen2 import Qwen2ForRewardModel, prompts, qwen2
from tiny_models.tokenizer import as_qwen2
from tiny_models.transplant import (
    GENTLENESS,
    ROWS_PER_STEP,
    conversations_of,
    draw_cases,
    figures_of_one_label,
    ranking,
    run,
)

SEED = 72
STEPS = 600


def build() -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """The tokenizer and the model before training."""
    torch.manual_seed(SEED)
    scalar, _ = tiny_scalar()
    tokenizer = as_qwen2(scalar)
    rng = Random(SEED)
    conversations = [turns for _ in range(10) for turns in conversations_of(draw_cases(rng))]
    model = qwen2(Qwen2ForRewardModel, tokenizer, conversations, labels=1)
    first, _, last = model.score
    # What the first layer's biases give adds up in the reward; with random signs chance would say whether it cancels out.
    with torch.no_grad():
        last.weight.copy_(last.weight.abs() * first.bias.sign())
    return tokenizer, model


def train(steps: int, report: Report) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """The tokenizer and the trained model."""
    tokenizer, model = build()
    rng = Random(f"train math-rm {SEED}")

    def losses(_: int) -> dict[str, torch.Tensor]:
        rows = [draw_cases(rng) for _ in range(ROWS_PER_STEP)]
        hidden = hidden_at_ends(model, [prompts(tokenizer, conversations_of(row)) for row in rows])
        return {"ranking": ranking(model.score(hidden[-1])[:, 0], [case for row in rows for case in row])}

    return tokenizer, fit(model, optimizers(model, [model.model], GENTLENESS), steps, losses, report)


if __name__ == "__main__":
    run("math-rm", STEPS, train, partial(figures_of_one_label, prompts))
