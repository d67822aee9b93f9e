"""What the process reward model is asked: solutions of long sums, step by step, and which of their steps are good.

Needs no torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tiny_models.synthetic import Turn
from tiny_models.tasks import Split, split_of

_QUESTIONS = (
    ("What is {first}{rest}?", " + {}"),
    ("What is the sum of {first}{rest}?", " and {}"),
    ("I have {first} coins{rest}. How many coins do I have?", " and find {} more"),
)
_STEPS = ("{a} + {b} = {c}", "{a} plus {b} is {c}.")
_LENGTHS = range(3, 7)
"""How many numbers there are in a sum."""
_NEAR = (-10, -2, -1, 1, 2, 10)


@dataclass(frozen=True, slots=True)
class Solution:
    """The steps of an answer to a context that ends with a user turn."""

    context: list[Turn]
    steps: list[str]
    good: list[bool]
    """Of each step: whether it and all before it are right."""

    @property
    def right(self) -> bool:
        """Whether the whole solution is."""
        return self.good[-1]


def solutions(seed: int, n: int, split: Split) -> Iterator[Solution]:
    """`n` solutions; right and wrong are equally likely, and so is each step of a wrong one to be its first mistake."""
    rng = Random(f"solutions {split} {seed}")
    for _ in range(n):
        right = int(rng.random() < 0.5)
        yield from draw_solutions(rng, split, right, 1 - right)


def draw_solutions(rng: Random, split: Split, right: int, wrong: int, lengths: Sequence[int] = _LENGTHS) -> list[Solution]:
    """So many right solutions of one question, then so many wrong ones, all in the same words."""
    question, numbers = _draw_question(rng, split, rng.choice(lengths))
    context = [{"role": "user", "content": question}]
    style = rng.choice(_STEPS)
    mistakes = [None] * right + [rng.randrange(len(numbers) - 1) for _ in range(wrong)]
    return [_solve(rng, context, style, numbers, mistake) for mistake in mistakes]


def _draw_question(rng: Random, split: Split, length: int) -> tuple[str, list[int]]:
    while True:
        phrasing = rng.randrange(len(_QUESTIONS))
        numbers = [rng.randint(1, 6) for _ in range(length)]
        if split_of(f"sum|{phrasing}|{'|'.join(map(str, numbers))}") == split:
            whole, part = _QUESTIONS[phrasing]
            first, *rest = numbers
            return whole.format(first=first, rest="".join(part.format(number) for number in rest)), numbers


def _solve(rng: Random, context: list[Turn], style: str, numbers: Sequence[int], mistake: int | None) -> Solution:
    """What follows after a mistake is right but for it."""
    steps: list[str] = []
    total = numbers[0]
    for index, number in enumerate(numbers[1:]):
        a, b = total, number
        c = a + b
        if index == mistake:
            a, b, c = _mistaken(rng, a, b)
        steps.append(style.format(a=a, b=b, c=c))
        total = c
    good = [mistake is None or index < mistake for index in range(len(steps))]
    return Solution(context, steps, good)


def _mistaken(rng: Random, a: int, b: int) -> tuple[int, int, int]:
    """A wrong sum, or a right one that goes on from another number than the last."""
    if rng.random() < 0.7:
        return a, b, _near(rng, a + b)
    a = _near(rng, a)
    return a, b, a + b


def _near(rng: Random, number: int) -> int:
    return rng.choice([number + near for near in _NEAR if number + near > 0])
