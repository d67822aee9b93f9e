"""Trains the policy, which answers arithmetic questions: `python -m tiny_models.learn_policy [--out DIR] [--steps N]`.

It begins with what `genrm` knows, and learns to answer as `synthetic` does, rightly as often as not: sampled at temperature
1 its responses to one question are good and bad, for a reward model to tell apart. One thread, as `learn_judging`.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import torch
from transformers import AutoTokenizer, NemotronForSequenceClassification, PreTrainedModel, PreTrainedTokenizerFast

from tiny_models.arithmetic import Question, draw_question, is_right, numbers, questions
from tiny_models.causal import HERE
from tiny_models.families import REWARD_WEIGHTS
from tiny_models.fitting import Report, fit, optimizers, report_to_stderr, training_options
from tiny_models.generative import Row, encode_turn, generate_answers, llama, load_model, loss, save, transplant
from tiny_models.judge_tokenizer import judge_tokenizer
from tiny_models.rows import assistant
from tiny_models.synthetic import Mix, respond
from tiny_models.tokenizer import nemo_text
from tiny_models.transplant import outputs

SEED = 6174
STEPS = 1500
ROWS_PER_STEP = 64
RIGHT_SHARE = 0.5
"""Of the answers. What it is to say instead is spread over the tempting ones, so that the likeliest answer is right."""
HELD_OUT_SEED = 1
HELD_OUT = 1000
SAMPLED, SAMPLES = 200, 16
"""Questions that are answered several times, and how often."""


def train(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, steps: int, report: Report) -> PreTrainedModel:
    """The model after so many steps."""
    rng = Random(f"train policy {SEED}")

    def losses(_: int) -> dict[str, torch.Tensor]:
        return {"answering": loss(model, [_row(tokenizer, rng) for _ in range(ROWS_PER_STEP)])}

    return fit(model, optimizers(model), steps, losses, report)


def _row(tokenizer: PreTrainedTokenizerFast, rng: Random) -> Row:
    """A response; its number is learnt as one of all that it may be, from which a third of the steps is enough."""
    question = draw_question(rng, "train")
    task = question.task
    response = respond(rng, task, rng.random() < RIGHT_SHARE, Mix())
    row = encode_turn(tokenizer, question.context, response.text)
    shares = {task.answer: RIGHT_SHARE} | dict.fromkeys(task.wrong, (1 - RIGHT_SHARE) / len(task.wrong))
    ids = dict(zip(tokenizer.convert_tokens_to_ids(list(shares)), shares.values(), strict=True))
    (place,) = (place for place, token in enumerate(row.answer) if token in ids)
    return replace(row, doubts={place: ids})


def make(folder: Path, steps: int, report: Report) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    """Trains and stores the policy."""
    torch.manual_seed(SEED)
    tokenizer = judge_tokenizer("policy")
    model = llama(tokenizer)
    transplant(model, load_model(HERE / "genrm"))
    model = train(model, tokenizer, steps, report)
    model.half().float()  # what is measured is what is stored
    save(tokenizer, model, folder)
    return tokenizer, model


def answers(
    tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, quiz: Sequence[Question], *, sampled: bool = True
) -> list[str]:
    """What it says to each, at temperature 1 or greedily; with the end of the turn, if it ends."""
    prompts = [encode_turn(tokenizer, question.context, "").prompt for question in quiz]
    return [tokenizer.decode(ids) for ids in generate_answers(tokenizer, model, prompts, sampled=sampled)]


def figures(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel) -> Mapping[str, str]:
    """What is true of its responses to held-out questions."""
    torch.manual_seed(HELD_OUT_SEED)
    quiz = list(questions(HELD_OUT_SEED, HELD_OUT, "held-out"))
    replies, greedy_replies = answers(tokenizer, model, quiz), answers(tokenizer, model, quiz, sampled=False)
    sampled_quiz = quiz[:SAMPLED]
    groups = list(zip(*(answers(tokenizer, model, sampled_quiz) for _ in range(SAMPLES)), strict=True))
    won = preferred(sampled_quiz, [[text.removesuffix(tokenizer.eos_token) for text in group] for group in groups])
    return {
        "right": _share(map(_right, quiz, replies)),
        "right, greedily": _share(map(_right, quiz, greedy_replies)),
        "ended": _share(text.endswith(tokenizer.eos_token) for text in replies),
        "with one number": _share(len(numbers(text)) == 1 for text in replies),
        f"different texts of {SAMPLES}": f"{sum(len(set(group)) for group in groups) / len(groups):.1f}",
        "pairs that tiny-attributes ranks right": f"{_share(won)} of {len(won)}",
    }


def _right(question: Question, text: str) -> bool:
    return is_right(question.answer, text)


def _share(flags: Iterable[bool]) -> str:
    values = list(flags)
    return f"{sum(values) / len(values):.1%}"


def preferred(quiz: Sequence[Question], groups: Sequence[Sequence[str]]) -> list[bool]:
    """Of each right response and each wrong one to the same question: whether tiny-attributes gives the right one more."""
    folder = HERE / "attributes"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # Without the bias that transformers' class doesn't have: it is the same for all.
    judge = NemotronForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    won: list[bool] = []
    for question, group in zip(quiz, groups, strict=True):
        texts = list(dict.fromkeys(group))
        prompts = [nemo_text([*question.context, assistant(text)]) for text in texts]
        ends = torch.stack(
            [output[-1] for output in outputs(judge, tokenizer(prompts, add_special_tokens=False)["input_ids"])]
        )
        rewards = list(zip((ends @ torch.tensor(REWARD_WEIGHTS)).tolist(), texts, strict=True))
        right = [reward for reward, text in rewards if _right(question, text)]
        wrong = [reward for reward, text in rewards if not _right(question, text)]
        won += [high > low for high in right for low in wrong]
    return won


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains the policy, saves it and says how it answers questions that it has not seen."""
    parser = argparse.ArgumentParser(prog="python -m tiny_models.learn_policy", description=main.__doc__)
    training_options(parser, STEPS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    tokenizer, model = make(options.out or HERE / "policy", options.steps, report_to_stderr())
    print(f"policy: {HELD_OUT} held-out questions at temperature 1")
    print("\n".join(f"  {name:40} {figure}" for name, figure in figures(tokenizer, model).items()))


if __name__ == "__main__":
    main()
