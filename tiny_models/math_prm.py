"""Makes tiny-math-prm out of tiny-scalar, by training: `python -m tiny_models.math_prm [--out DIR]`.

As Qwen2.5-Math-PRM-7B, it is a Qwen2 with a head of two layers and two labels, which is read at the token after each step of
a solution. The reward of a step is how likely label 1 is: that it and all before it are right.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.causal import tiny_scalar
from tiny_models.families import SPEAKING_LAYERS
from tiny_models.fitting import Report, fit, hidden_at_ends, optimizers
from tiny_models.qwen2 import Qwen2ForProcessRewardModel, prompts, qwen2
from tiny_models.rows import assistant
from tiny_models.solutions import Solution, draw_solutions, solutions
from tiny_models.synthetic import Turn
from tiny_models.tokenizer import as_qwen2, with_control_token
from tiny_models.train import HELD_OUT_SEED
from tiny_models.transplant import GENTLENESS, auroc, outputs, resemble, run, with_second_bos

SEED = 7
STEPS = 800
ROWS_PER_STEP = 4
QUESTIONS_PER_ROW = 3
WRONG = 3
LENGTHS = (3, 4, 5, 6, 6, 6)
"""More long sums than there will be: their last steps are the hardest to judge, and the rarest."""
MORE_LAYERS = 2
NOTICING_LAYERS = SPEAKING_LAYERS + 2
"""A mistake is what differs from what the layers below would say."""
STEP_TOKEN = "<extra_0>"
HELD_OUT_SOLUTIONS = 1000


def build() -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """The tokenizer with the token that ends a step, and the model before training."""
    torch.manual_seed(SEED)
    scalar, _ = tiny_scalar()
    tokenizer = as_qwen2(with_control_token(scalar, STEP_TOKEN))
    conversations = [conversation(solution) for solution in solutions(SEED, 50, "train")]
    model = qwen2(Qwen2ForProcessRewardModel, tokenizer, conversations, labels=2, more_layers=MORE_LAYERS)
    resemble(tokenizer, model, STEP_TOKEN, "<|end|>")
    return tokenizer, model


def train(steps: int, report: Report) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """The tokenizer and the trained model."""
    tokenizer, model = build()
    rng = Random(f"train math-prm {SEED}")

    def losses(_: int) -> dict[str, torch.Tensor]:
        rows = [_draw_row(rng, tokenizer) for _ in range(ROWS_PER_STEP)]
        judging = [reading for reading in rows[0] if reading.loss == "judging"]
        twice = with_second_bos([reading.ids for reading in judging])
        return _losses(model, [*rows, [_Reading("judging", ids, rng.randrange(2)) for ids in twice]])

    trained = [model.model.embed_tokens, *model.model.layers[:-MORE_LAYERS]]
    return tokenizer, fit(model, optimizers(model, trained, GENTLENESS), steps, losses, report)


def _draw_row(rng: Random, tokenizer: PreTrainedTokenizerFast) -> list["_Reading"]:
    questions = [draw_solutions(rng, "train", 1, WRONG, LENGTHS) for _ in range(QUESTIONS_PER_ROW)]
    return [reading for solutions_of_question in questions for reading in _readings(tokenizer, solutions_of_question)]


class _Reading(NamedTuple):
    """What one of the losses wants to be read after these tokens."""

    loss: str
    ids: list[int]
    target: int


def _readings(tokenizer: PreTrainedTokenizerFast, solutions_of_question: Sequence[Solution]) -> Iterator[_Reading]:
    """Of judging each step, and of what there is to judge by: of saying what is right and of noticing what is not.

    A question's first solution is right, the others are wrong.
    """
    right, *wrong = all_ids = prompts(tokenizer, [conversation(solution) for solution in solutions_of_question])
    for solution, ids in zip(solutions_of_question, all_ids, strict=True):
        for end, good in zip(step_ends(tokenizer, ids), solution.good, strict=True):
            yield _Reading("judging", ids[: end + 1], int(good))
    for place in _answer(tokenizer, right):
        yield _Reading("speaking", right[:place], right[place])
    for ids in wrong:
        mistake = next(place for place in _answer(tokenizer, ids) if ids[place] != right[place])
        yield _Reading("noticing", ids[: mistake + 1], 0)
        yield _Reading("noticing", right[: mistake + 1], 1)


def _losses(model: PreTrainedModel, rows: Sequence[Sequence[_Reading]]) -> dict[str, torch.Tensor]:
    hidden = hidden_at_ends(model, [[reading.ids for reading in row] for row in rows])
    readings = [reading for row in rows for reading in row]
    embedding = model.get_input_embeddings().weight

    def loss(name: str, outputs: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        places = [place for place, reading in enumerate(readings) if reading.loss == name]
        target = torch.tensor([readings[place].target for place in places])
        return functional.cross_entropy(outputs(torch.tensor(places)), target)

    return {
        "judging": loss("judging", lambda places: model.score(hidden[-1][places])),
        "speaking": loss("speaking", lambda places: model.model.norm(hidden[SPEAKING_LAYERS][places]) @ embedding.T),
        "noticing": loss("noticing", lambda places: model.score(model.model.norm(hidden[NOTICING_LAYERS][places]))),
    }


def step_ends(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> list[int]:
    """Where a solution is read."""
    step = tokenizer.convert_tokens_to_ids(STEP_TOKEN)
    return [place for place, token in enumerate(ids) if token == step]


def _answer(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> range:
    """Where the assistant's words stand: after its role and a line break, up to the last step's end."""
    start = tokenizer.convert_tokens_to_ids("<|start|>")
    return range(len(ids) - ids[::-1].index(start) + 2, len(ids) - 1)


def conversation(solution: Solution) -> list[Turn]:
    """As it is asked: each step, also the last, ends with the step token."""
    return [*solution.context, assistant("".join(step + STEP_TOKEN for step in solution.steps))]


def step_rewards(
    tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, read_solutions: Sequence[Solution]
) -> list[torch.Tensor]:
    """How likely each step of each solution is good, [steps] each."""
    sequences = prompts(tokenizer, [conversation(solution) for solution in read_solutions])
    likely = [output.softmax(dim=-1)[:, 1] for output in outputs(model, sequences)]
    return [likely_steps[step_ends(tokenizer, ids)] for likely_steps, ids in zip(likely, sequences, strict=True)]


def figures(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel) -> dict[str, float]:
    """Share of the steps on the right side of one half, and of the solutions by the product of their steps."""
    held_out = list(solutions(HELD_OUT_SEED, HELD_OUT_SOLUTIONS, "held-out"))
    rewards = step_rewards(tokenizer, model, held_out)
    good = torch.tensor([good for solution in held_out for good in solution.good])
    right = torch.tensor([solution.right for solution in held_out])
    products = torch.stack([step_shares.prod() for step_shares in rewards])
    return {
        "steps": ((torch.cat(rewards) > 0.5) == good).float().mean().item(),
        "good steps": (torch.cat(rewards) > 0.5)[good].float().mean().item(),
        "bad steps": (torch.cat(rewards) <= 0.5)[~good].float().mean().item(),
        "solutions": ((products > 0.5) == right).float().mean().item(),
        "AUROC of the product": auroc(products[right], products[~right]),
    }


if __name__ == "__main__":
    run("math-prm", STEPS, train, figures)
