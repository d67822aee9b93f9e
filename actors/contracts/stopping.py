"""When the votes on a question may stop: which verdict they are to settle, and which way each of them leans.

The test itself is `actors.verdicts.settled`. A judge that compares two responses says which is better; of a single response
the verdict is its side of `stop_at`, where the user's filter cuts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actors.contracts.judge import Judge, Verdict
from actors.contracts.showings import Shows
from actors.errors import SettingsError
from actors.settings.replica import Aggregate

# Of fewer votes, all are asked in the first wave.
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Stopping:
    """A judge whose votes stop, with the weights of its outputs in the reward.

    By the weights a vote becomes one number, and that number a leaning.
    """

    judge: Judge
    weights: Mapping[str, float]

    def check(self) -> None:
        """Raise `SettingsError` if what the votes come to has no verdict that could be settled."""
        judge = self.judge
        if judge.shows is Shows.ALL or judge.combined_by is Aggregate.BRADLEY_TERRY:
            number = "a list of responses" if judge.shows is Shows.ALL else "a Bradley-Terry strength"
            raise SettingsError(f"--stop: every vote changes {number}, so there is no verdict that votes could settle")
        if judge.row_outputs or judge.way.principle_reward == "min":
            raise SettingsError("--stop: the least of several numbers, or a sum with gates, isn't a mean of votes")
        if judge.votes < _FEWEST:
            raise SettingsError(f"--stop needs --votes {_FEWEST} or more, and there are {judge.votes}")
        unbounded = sorted(name for name, weight in self.weights.items() if weight and name not in judge.bounds)
        if judge.combined_by is Aggregate.MEAN and unbounded:
            raise SettingsError(f"--stop needs outputs with a least and a greatest value, and {unbounded[0]} has none")
        if judge.shows is Shows.TWO:
            if judge.asks.stop_at is not None:
                raise SettingsError(f"judge.stop_at is for judges of one response, and {judge.name} compares two")
            return
        low, high = self._reward_bounds
        if judge.asks.stop_at is None and (low, high) != (0.0, 1.0):
            raise SettingsError(
                f"--stop: every vote changes a mean from {low:g} to {high:g}; say at which reward your filter "
                "cuts, with --set judge.stop_at=..., and votes end when its side is settled"
            )
        if not low < self._cut < high:
            raise SettingsError(f"judge.stop_at {self._cut:g} isn't between the rewards {low:g} and {high:g}")

    def leaning(self, verdict: Verdict | None, shown: Sequence[int]) -> float:
        """Which way a vote leans, from -1 to 1: above 0 for the lower position of two, or for a reward above the cut.

        A text without a verdict leans nowhere, as it counts for neither side at the end.
        """
        if verdict is None:
            return 0.0
        if self.judge.shows is Shows.ONE:
            low, high = self._reward_bounds
            (reward,) = (self.judge.vote(scores, self.weights) for scores in verdict.scores)
            return (reward - self._cut) / max(high - self._cut, self._cut - low)
        order = 1 if shown[0] < shown[1] else -1
        if self.judge.combined_by is Aggregate.WIN_RATE:
            first, second = verdict.merits
            return float(order * ((first > second) - (first < second)))
        first, second = (self.judge.vote(scores, self.weights) for scores in verdict.scores)
        low, high = self._reward_bounds
        return order * (first - second) / (high - low)

    @property
    def _cut(self) -> float:
        return 0.5 if self.judge.asks.stop_at is None else self.judge.asks.stop_at

    @property
    def _reward_bounds(self) -> tuple[float, float]:
        ends = [
            (weight * low, weight * high) for name, weight in self.weights.items() for low, high in [self.judge.bounds[name]]
        ]
        return sum(map(min, ends)), sum(map(max, ends))
