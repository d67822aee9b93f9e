"""Toy annotators, who rate a response 0 to 4: all dislike a wrong answer, and some a right one with many words around it.

So they agree about most responses, and diverge about right answers in many words. Needs no torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tiny_models.synthetic import Mix, Response, Turn, draw_conversation
from tiny_models.tasks import Split

RATINGS = range(5)
_MANY_WORDS = 1.0
"""Verbosity from which on some annotators mind: a response has either fewer than five words around the answer, or seven."""
_SLIP = 0.1
"""How often a rating is one off, towards the middle."""


@dataclass(frozen=True, slots=True)
class Rated:
    """A response to a context that ends with a user turn, and whether annotators diverge about it."""

    context: list[Turn]
    response: str
    diverging: bool


def diverge(response: Response) -> bool:
    """Whether the annotators do, about this response."""
    return response.right and response.labels.verbosity >= _MANY_WORDS


def rate(rng: Random, response: Response) -> int:
    """One annotator's rating; each time another annotator's."""
    if not response.right:
        return int(rng.random() < _SLIP)
    minds = rng.random() < 0.5
    if minds and diverge(response):
        return 1 + int(rng.random() < _SLIP)
    return 4 - int(rng.random() < _SLIP)


def rated(seed: int, n: int, split: Split) -> Iterator[Rated]:
    """`n` responses; annotators diverge about half of them, and half of the others are wrong, also in many words."""
    rng = Random(f"rated {split} {seed}")
    for number in range(n):
        diverging, right = number % 2 == 0, number % 4 != 3
        yield _draw(rng, split, diverging=diverging, right=right)


def _draw(rng: Random, split: Split, *, diverging: bool, right: bool) -> Rated:
    while True:
        mix = Mix(rng.choice((1, 1, 1, 2)), right=int(right), wrong=int(not right))
        case = draw_conversation(rng, split, mix)[-1]
        (response,) = case.responses
        if diverge(response) == diverging:
            return Rated(case.context, response.text, diverging)
