"""Makes tiny-first-logit out of tiny-scalar, without training: `python -m tiny_models.first_logit [--out DIR]`.

As in Llama-3.1-Nemotron-70B-Reward-HF, the reward head is the output row of token 0 of a language model.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.causal import HERE, language_model, last_hidden, tiny_scalar
from tiny_models.rows import assistant
from tiny_models.synthetic import Pair, pairs
from tiny_models.train import HELD_OUT_PAIRS, HELD_OUT_SEED, save
from tiny_models.transplant import INTERMEDIATE_SIZE, transplant

SEED = 3170
REWARD_ID = 0


def build() -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """Tiny-scalar's layers, narrower, its head as output row 0, and for other tokens random rows that know nothing of it.

    Without care most rows would tell right from wrong or wrong from right, up to 96 %: that is the largest difference
    between hidden states by far. So they are turned to be at right angles to it.
    """
    torch.manual_seed(SEED)
    tokenizer, scalar = tiny_scalar()
    layers = scalar.config.num_hidden_layers
    model = language_model(scalar, layers=layers, neurons=INTERMEDIATE_SIZE, vocabulary=len(tokenizer))
    transplant(model)
    model.eval()
    difference = functional.normalize(_differences(tokenizer, model, list(pairs(SEED, 500, "train"))).mean(dim=0), dim=0)
    with torch.no_grad():
        rows = model.lm_head.weight
        rows -= torch.outer(rows @ difference, difference)
        rows[REWARD_ID] = scalar.score.weight[0]
    return tokenizer, model


def held_out() -> list[Pair]:
    """Pairs to measure it by: those of tiny-scalar."""
    return list(pairs(HELD_OUT_SEED, HELD_OUT_PAIRS, "held-out"))


@torch.inference_mode()
def accuracies(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel) -> torch.Tensor:
    """Share of the held-out pairs ranked right by each token's logit, [vocabulary]; the reward is that of `REWARD_ID`."""
    return (_differences(tokenizer, model, held_out()) @ model.lm_head.weight.T > 0).float().mean(dim=0)


def _differences(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, examples: Sequence[Pair]) -> torch.Tensor:
    """Of the last hidden states of right and wrong responses, [pairs, hidden]."""
    chosen = last_hidden(tokenizer, model, [[*pair.context, assistant(pair.chosen)] for pair in examples], ask=False)
    rejected = last_hidden(tokenizer, model, [[*pair.context, assistant(pair.rejected)] for pair in examples], ask=False)
    return chosen - rejected


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the model, saves it and says how often it is right about questions it has not seen."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.first_logit", description=main.__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "first-logit", help="folder of the checkpoint")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    tokenizer, model = build()
    model.half().float()  # what is measured is what is stored
    save(tokenizer, model, options.out)
    shares = accuracies(tokenizer, model)
    other_shares = shares[torch.arange(len(shares)) != REWARD_ID].sort().values
    print(f"first-logit: share of {HELD_OUT_PAIRS} held-out pairs ranked right")
    print(f"  by token {REWARD_ID}, {tokenizer.convert_ids_to_tokens(REWARD_ID)}: {shares[REWARD_ID]:.2%}")
    print(f"  by any other token: {other_shares[0]:.2%} to {other_shares[-1]:.2%}")


if __name__ == "__main__":
    main()
