"""Which responses each prompt of a judge shows, in which order, and how often it is asked."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from actors.records import ScoreRequest
from actors.settings.replica import Aggregate, Pairs


class Shows(StrEnum):
    """How many responses a prompt shows."""

    ONE = "one"
    TWO = "two"
    ALL = "all"


def choose_pairs(shows: Shows, aggregate: Aggregate, weighted: Collection[str]) -> Pairs:
    """Which of several responses are compared: all with all where the reward counts who won. `weighted`: its outputs.

    In a circle each response meets two others. Grades rank those that never met, and NVIDIA's environments grade in one;
    wins don't: a perfect judge that names winners had 59 % on RM-Bench. Authors of such judges compare single pairs.
    """
    counts_wins = aggregate is not Aggregate.MEAN or {*weighted} == {"win"}
    return Pairs.ALL if shows is Shows.TWO and counts_wins else Pairs.CIRCULAR


@dataclass(frozen=True, slots=True)
class Showings:
    """The showings of one judge: it gives `votes` verdicts on each question, both orders of a pair together.

    `greedy`: equal prompts get equal texts. `grades_one`: a response shown alone gets a reward, too.
    """

    shows: Shows
    votes: int
    pairs: Pairs
    seed: int
    greedy: bool
    grades_one: bool

    def of(self, request: ScoreRequest, among: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
        """The positions that each prompt shows, in order, and how many verdicts are sampled for it."""
        if self.shows is Shows.ONE:
            yield from (((position,), self.votes) for position in among)
        elif len(among) == 1:
            # Two votes mean one in each order, and a single response has only one order.
            times = self.votes if self.votes > 2 and not self.greedy else 1
            yield from (((position,), times) for position in among if self.grades_one)
        elif self.shows is Shows.TWO:
            for first, second in self._pairs(among):
                yield (first, second), self.votes - self.votes // 2  # of an odd number, one more in the row's order
                if self.votes > 1:
                    yield (second, first), self.votes // 2
        elif among:
            orders: list[tuple[int, ...]] = []
            for vote in range(self.votes):
                # Every second order is the one before it reversed, so that no response is shown early more often than late.
                # The shuffle is seeded by the prompt's hash: the same orders in every run, on every machine.
                rng = Random(f"{request.prompt_hash} {self.seed} {vote}")
                orders.append(orders[-1][::-1] if vote % 2 else tuple(rng.sample(among, len(among))))
            for shown, times in Counter(orders).items():
                yield shown, 1 if self.greedy else times

    def _pairs(self, among: Sequence[int]) -> list[tuple[int, int]]:
        if self.pairs is Pairs.CIRCULAR and len(among) > 2:
            return [(first, among[(position + 1) % len(among)]) for position, first in enumerate(among)]
        return [(first, second) for position, first in enumerate(among) for second in among[position + 1 :]]

    def count(self, responses: int) -> int:
        # The most prompts for so many responses: a circle of two has one pair, and equal orders share a prompt.
        # A circle of n has n pairs; all with all, and the candidates of a knock-out, are n(n - 1)/2.
        pairs = responses if self.pairs is Pairs.CIRCULAR else responses * (responses - 1) // 2
        return {Shows.ONE: responses, Shows.TWO: max(pairs, 1) * min(self.votes, 2), Shows.ALL: self.votes}[self.shows]
