"""How a response stands among those that it was compared with: wins, agreement, what the order decided, and strength."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

WIN_RATE, LOSSES, AGREEMENT = "win_rate", "losses", "agreement"
BOTH_ORDERS, ORDER_DECIDED, FIRST_PREFERRED = "both_orders", "order_decided", "first_preferred"
OUTPUTS = (WIN_RATE, LOSSES, AGREEMENT, BOTH_ORDERS, ORDER_DECIDED, FIRST_PREFERRED)
"""Named outputs of a response that was compared with others."""
_STEPS = 50
_CLOSE = 1e-10


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Comparisons of a response with another: 1 for each win, 0.5 for a tie, by whether it was shown first."""

    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def share(self) -> float:
        """Of the comparisons won. Both orders count alike, however many votes each has."""
        return _mean([_mean(side) for side in (self.first, self.second) if side])

    @property
    def agreement(self) -> float:
        """The share of the comparisons that say the same as most: a win, a tie or a loss."""
        games = Counter((*self.first, *self.second))
        return max(games.values()) / self.games

    @property
    def games(self) -> int:
        """How many comparisons there are."""
        return len(self.first) + len(self.second)


@dataclass(frozen=True, slots=True)
class PairwiseRecord:
    """A response among the others of its request, by its position and theirs."""

    meetings: Mapping[int, _Meeting]

    @classmethod
    def of(cls, compared: Sequence[tuple[Sequence[int], Sequence[float]]]) -> Mapping[int, Self]:
        """From the positions that were shown, in that order, and the merit of each. Who was compared with none has none."""
        outcomes: dict[tuple[int, int], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
        for shown, merits in compared:
            for (one, merit), (other, its) in itertools.combinations(zip(shown, merits, strict=False), 2):
                won = 1.0 if merit > its else 0.0 if merit < its else 0.5
                outcomes[one, other][0].append(won)
                outcomes[other, one][1].append(1 - won)
        found: dict[int, dict[int, _Meeting]] = defaultdict(dict)
        for (one, other), (first, second) in outcomes.items():
            found[one][other] = _Meeting(tuple(first), tuple(second))
        return {at: cls(meetings) for at, meetings in found.items()}

    @property
    def outcomes(self) -> tuple[float, ...]:
        """The share of the comparisons won against each other response."""
        return tuple(meeting.share for meeting in self.meetings.values())

    @property
    def win_rate(self) -> float:
        """The mean of these."""
        return _mean(self.outcomes)

    def as_scores(self) -> dict[str, float]:
        """As named outputs.

        `losses` are how many others won against it: of a knock-out, the winner has none. `agreement` is the share of
        judgements that say the same as most. Of the `both_orders` others that it was compared with in both orders, the
        order alone decided about `order_decided`, and for the first shown about `first_preferred`.
        """
        both = [meeting for meeting in self.meetings.values() if meeting.first and meeting.second]
        decided = [(_mean(one.first), _mean(one.second)) for one in both]
        flipped = [(first, second) for first, second in decided if (first - 0.5) * (second - 0.5) < 0]
        return {
            WIN_RATE: self.win_rate,
            LOSSES: float(sum(share < 0.5 for share in self.outcomes)),
            AGREEMENT: _mean([meeting.agreement for meeting in self.meetings.values()]),
            BOTH_ORDERS: float(len(both)),
            ORDER_DECIDED: float(len(flipped)),
            FIRST_PREFERRED: float(sum(first > second for first, second in flipped)),
        }


def bradley_terry(standings: Mapping[int, PairwiseRecord]) -> dict[int, tuple[float, float]]:
    """The strength of each response and its standard error, in units of the logit of winning (Bradley and Terry, 1952).

    Against the mean of them all, which is 0. The strengths are the most likely ones, with a drawn game of each against an
    average response added: one that won everything has a finite strength, too. The error is that of the normal distribution
    around them. Votes of one model count as games of their own, which they are the less, the more alike they are.
    """
    if not standings:
        return {}
    places = {at: place for place, at in enumerate(sorted(standings))}
    games = np.zeros((len(places), len(places)))
    wins = np.zeros(len(places))
    for at, standing in standings.items():
        for other, meeting in standing.meetings.items():
            games[places[at], places[other]] = meeting.games
            wins[places[at]] += meeting.share * meeting.games
    strengths = np.zeros(len(places))
    for _ in range(_STEPS):
        odds = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))  # of the one in the row against that in the column
        alone = 1 / (1 + np.exp(-strengths))
        slope = wins - (games * odds).sum(axis=1) + 0.5 - alone
        weights = games * odds * (1 - odds)
        curvature = np.diag(weights.sum(axis=1) + alone * (1 - alone)) - weights
        step = np.linalg.solve(curvature, slope)
        strengths += np.clip(step, -2, 2)
        if np.abs(step).max() < _CLOSE:
            break
    centred = np.eye(len(places)) - 1 / len(places)
    strengths = centred @ strengths
    errors = np.sqrt(np.diag(centred @ np.linalg.inv(curvature) @ centred))
    return {at: (float(strengths[place]), float(errors[place])) for at, place in places.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
