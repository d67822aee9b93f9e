"""What the principle model is asked: whether a response fulfils a principle, Yes or No. Needs no torch."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from tiny_models.synthetic import Attributes, Mix, Turn, draw_conversation
from tiny_models.tasks import Split

PRINCIPLES: Mapping[str, Callable[[Attributes], bool]] = {
    "correctness": lambda labels: labels.correctness > 2,
    "coherence": lambda labels: labels.coherence > 2,
    "brevity": lambda labels: labels.verbosity == 0,
    "verbosity": lambda labels: labels.verbosity > 0,
}
"""Whether a response fulfils each. The last two are opposites: what doesn't read the principle is at chance on them."""

QUESTION = (
    "Evaluate the response to the previous prompt in terms of whether it satisfies this principle: {principle}. "
    "Only answer Yes or No."
)
"""The card's of Llama-3.3-Nemotron-70B-Reward-Principle, as a user's turn after the response."""

GARBLED = 0.5
"""Share of the responses with more than the bare answer whose words are shuffled: for coherence to be worth asking."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A response to a context that ends with a user turn, and what is true of it."""

    context: list[Turn]
    response: str
    principle: str
    fulfilled: bool

    @property
    def messages(self) -> list[Turn]:
        """The conversation that is answered with Yes or No."""
        return [
            *self.context,
            {"role": "assistant", "content": self.response},
            {"role": "user", "content": QUESTION.format(principle=self.principle)},
        ]


def judgements(seed: int, n: int, split: Split) -> Iterator[Judgement]:
    """`n` judgements, the principles in turn. To each principle Yes and No are equally likely, so that chance is 50 %."""
    rng = Random(f"judgements {split} {seed}")
    names = list(PRINCIPLES)
    for number in range(n):
        yield _judgement(rng, split, names[number % len(names)], rng.random() < 0.5)


def _judgement(rng: Random, split: Split, principle: str, fulfilled: bool) -> Judgement:
    while True:
        mix = Mix(rng.choice((1, 1, 1, 2)), right=1, wrong=1, garbled=GARBLED)
        case = draw_conversation(rng, split, mix)[-1]
        response = rng.choice(case.responses)
        if PRINCIPLES[principle](response.labels) == fulfilled:
            return Judgement(case.context, response.text, principle, fulfilled)


def draw_judgements(rng: Random) -> list[Judgement]:
    """About the responses to one training context: two questions to each, one of them for correctness."""
    case = draw_conversation(rng, "train", Mix(rng.choice((1, 1, 1, 2)), right=2, wrong=2, garbled=GARBLED))[-1]
    others = [name for name in PRINCIPLES if name != "correctness"]
    return [
        Judgement(case.context, response.text, principle, PRINCIPLES[principle](response.labels))
        for response in case.responses
        for principle in ("correctness", rng.choice(others))
    ]
