"""Qwen2.5-Math-RM: one value for a solution to a mathematical problem, from a head of two layers.

Asked with the chat template and the card's system turn, which a row's own replaces; read at the last token of the text.
"""

from actors.contracts.family import ChatTemplate, OneLogit, Question
from actors.contracts.known_model import Golden, KnownModel
from actors.engine.protocol import Task
from actors.records import Message, Role

SYSTEM = Message(Role.SYSTEM, r"Please reason step by step, and put your final answer within \boxed{}.")
LICENCE = "Qwen License Agreement"


def with_default_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """A conversation with the system turn of the Qwen2.5-Math cards, unless it has one of its own."""
    return messages if messages[0].role is Role.SYSTEM else (SYSTEM, *messages)


class MathReward(OneLogit):
    """`Qwen2ForRewardModel`."""

    name = "math-reward"
    summary = "one value at the end of a solution (Qwen2ForRewardModel)"
    source = "Qwen/Qwen2.5-Math-RM-72B model card"
    asked = "the checkpoint's chat template with the card's system turn, without a generation prompt"
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
        KnownModel("Qwen/Qwen2.5-Math-RM-72B", "solutions to problems", LICENCE, 4096, "arXiv 2409.12122"),
    )

    def text(self, question: Question, template: ChatTemplate) -> str:
        return template(with_default_system(question.messages))


FAMILY = MathReward()
