"""Qwen2.5-Math: a value for a solution to a mathematical problem (RM), or a probability for each of its steps (PRM).

Both are asked with the chat template and the cards' system turn, which a row's own replaces. The RM's head of two layers is
read at the last token of the text.

The PRM's card joins the steps, which blank lines part in a response, by `<extra_0>`, with one after the last; at each the
head gives two logits, and the step's reward is the softmax of the second. The card doesn't define a response's reward: here
it is the product over all steps unless the weights say otherwise, as the authors use for best-of-N (arXiv 2501.07301).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from actors.contracts.family import ChatTemplate, Family, OneLogit, Question, Rows, weighted_reward
from actors.contracts.known_model import Golden, KnownModel
from actors.engine.protocol import Task, activation
from actors.errors import Rejected
from actors.records import Message, Reading, Reason, Role

SYSTEM = Message(Role.SYSTEM, r"Please reason step by step, and put your final answer within \boxed{}.")
STEP = "<extra_0>"
_LICENCE = "Qwen License Agreement"


class MathReward(OneLogit):
    """`Qwen2ForRewardModel`."""

    name = "math-reward"
    summary = "one value at the end of a solution (Qwen2ForRewardModel)"
    source = "Qwen/Qwen2.5-Math-RM-72B model card"
    prompt_form = "the checkpoint's chat template with the card's system turn, without a generation prompt"
    read_at = "the raw output of the two-layer head at the last token"
    range = "unbounded; compare solutions to one problem"
    task = Task.TOKEN_CLASSIFY
    architecture = "Qwen2ForRewardModel"
    recognised = False  # others share the class, and aren't trained on the card's system turn
    head_labels = 1
    skips_padding = True
    head = "score.2.weight"
    models = (
        KnownModel.built_in("tiny-math-rm", Golden.each("What is 3 + 4?", {"7": 3.228, "9": -2.038}, 0.2)),
        KnownModel("Qwen/Qwen2.5-Math-RM-72B", "solutions to problems", _LICENCE, 4096, "arXiv 2409.12122"),
    )

    def text(self, question: Question, template: ChatTemplate) -> str:
        return template(_with_default_system(question.messages))


class MathProcess(Family):
    """`Qwen2ForProcessRewardModel`."""

    name = "math-process"
    summary = "the probability that a step is right, for each step of a solution (Qwen2ForProcessRewardModel)"
    source = "Qwen/Qwen2.5-Math-PRM-7B model card"
    prompt_form = f"the chat template with the card's system turn; steps, parted by blank lines, each end with {STEP}"
    read_at = f"the softmax of two raw outputs at each {STEP}, the second of them"
    range = "0 to 1 for each step"
    task = Task.TOKEN_CLASSIFY
    architecture = "Qwen2ForProcessRewardModel"
    recognised = False  # others share the class, and needn't be trained on the card's system turn and step token
    head_labels = 2
    step_token = STEP
    control_texts = (STEP,)
    head = "score.2.weight"
    models = (
        KnownModel.built_in(
            "tiny-math-prm",
            Golden.each("What is 5 + 4 + 6?", {"5 + 4 = 9\n\n9 + 6 = 15": 1.0, "5 + 4 = 9\n\n9 + 6 = 16": 0.0}, 0.05),
        ),
        KnownModel(
            "Qwen/Qwen2.5-Math-PRM-7B", "solutions to problems, step by step", "Apache-2.0", 4096, "arXiv 2501.07301"
        ),
        KnownModel("Qwen/Qwen2.5-Math-PRM-72B", "solutions to problems, step by step", _LICENCE, 4096, "arXiv 2501.07301"),
        KnownModel("Qwen/Qwen2.5-Math-7B-PRM800K", "solutions to problems, step by step", "Apache-2.0", 4096),
    )

    def outputs(self) -> tuple[str, ...]:
        return ("product", "min", "last")

    def shown(self, question: Question) -> tuple[str, ...]:
        (solution,) = question.responses
        return tuple(map(str.strip, _split_steps(solution)))

    def blank(self, question: Question, word: str) -> Question:
        steps = "\n\n".join([word] * len(self.shown(question)))
        return replace(super().blank(question, word), responses=(steps,))

    def text(self, question: Question, template: ChatTemplate) -> str:
        *context, last = _with_default_system(question.messages)
        if not (steps := _split_steps(last.content)):
            raise Rejected(Reason.EMPTY_CONTENT)
        return template((*context, Message(last.role, "".join(step + STEP for step in steps))))

    def reading(self, answers: Sequence[Rows], weights: Mapping[str, float]) -> Reading:
        (rows,) = answers
        steps = tuple(activation(values)[1] for values in rows)
        return weighted_reward({"product": math.prod(steps), "min": min(steps), "last": steps[-1]}, weights, steps)


def _with_default_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return messages if messages[0].role is Role.SYSTEM else (SYSTEM, *messages)


def _split_steps(solution: str) -> list[str]:
    runs = itertools.groupby(solution.split("\n"), key=lambda line: bool(line.strip()))
    return ["\n".join(lines).strip("\r") for has_text, lines in runs if has_text]


FAMILY = (MathReward(), MathProcess())
