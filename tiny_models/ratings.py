"""What the two models of ratings have in common: they learn, by maximum likelihood, how single annotators' are distributed.

So, as in "Diverging Preferences" (arXiv 2410.14632), they also tell what annotators disagree about.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.annotators import RATINGS, rate, rated
from tiny_models.causal import tiny_scalar
from tiny_models.fitting import Report, fit, hidden_at_ends, optimizers
from tiny_models.rows import assistant
from tiny_models.synthetic import Mix, Turn
from tiny_models.train import HELD_OUT_SEED
from tiny_models.transplant import (
    GENTLENESS,
    ROWS_PER_STEP,
    auroc,
    conversations_of,
    draw_cases,
    llama,
    outputs,
    share_ranked_right,
    with_second_bos,
)

SEED = 2410
STEPS = 1000
ANNOTATORS = 5
"""So many rate each response that is learnt from."""
MIXES = tuple(Mix(turns=turns, right=3, wrong=2, bare=0.3) for turns in (1, 1, 2))
HELD_OUT_RATED = 1000


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a model's outputs, [n, labels], say of the ratings."""

    labels: int
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """How unlikely the ratings of each response are, [n, annotators]; on average."""
    mean: Callable[[torch.Tensor], torch.Tensor]
    deviation: Callable[[torch.Tensor], torch.Tensor]


def train(kind: Distribution, steps: int, report: Report) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """The tokenizer and the trained model."""
    torch.manual_seed(SEED)
    tokenizer, _ = tiny_scalar()
    model = llama(kind.labels)
    rng = Random(f"train ratings {SEED}")

    def losses(_: int) -> dict[str, torch.Tensor]:
        rows = [draw_cases(rng, MIXES) for _ in range(ROWS_PER_STEP)]
        sequences = [prompts(tokenizer, conversations_of(row)) for row in rows]
        hidden = hidden_at_ends(model, [*sequences, with_second_bos(sequences[0])])
        responses = [response for row in rows for case in row for response in case.responses]
        ratings = [[rate(rng, response) for _ in range(ANNOTATORS)] for response in responses]
        ratings += [[rng.choice(RATINGS) for _ in range(ANNOTATORS)] for _ in sequences[0]]
        return {"loss": kind.loss(model.score(hidden[-1]), torch.tensor(ratings))}

    return tokenizer, fit(model, optimizers(model, [model.model], GENTLENESS), steps, losses, report)


def prompts(tokenizer: PreTrainedTokenizerFast, conversations: Sequence[list[Turn]]) -> list[list[int]]:
    """Token ids of conversations."""
    ids: list[list[int]] = tokenizer.apply_chat_template(list(conversations), return_dict=False)
    return ids


def figures(kind: Distribution, tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel) -> dict[str, float]:
    """How well the mean ranks, and how well the deviation tells what annotators diverge about."""

    def encode_prompts(conversations: Sequence[list[Turn]]) -> list[list[int]]:
        return prompts(tokenizer, conversations)

    responses = list(rated(HELD_OUT_SEED, HELD_OUT_RATED, "held-out"))
    ends = [
        output[-1]
        for output in outputs(
            model, encode_prompts([[*response.context, assistant(response.response)] for response in responses])
        )
    ]
    deviations = kind.deviation(torch.stack(ends))
    diverging = torch.tensor([response.diverging for response in responses])
    return {
        "pairs ranked right by the mean": share_ranked_right(
            model, encode_prompts, lambda output: kind.mean(output[-1:])[0]
        ),
        "AUROC of the deviation": auroc(deviations[diverging], deviations[~diverging]),
    }
