"""How many candidates a prompt gets: a fixed number, or as many as it takes."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.settings.run_settings import DrawSettings

FEWEST_FOR_SPREAD = 4
"""Rewards that it takes to tell how they are spread."""


@dataclass(frozen=True, slots=True)
class CandidateBudget:
    """Decides, round by round, how many more candidates a prompt gets."""

    settings: DrawSettings

    def more(self, drawn: int, rewards: Sequence[float]) -> int:
        """How many to draw next, after so many, of which those that were scored have these rewards. 0 is the end.

        An adaptive budget grows by half each time: rounds are few, and at most a third of the candidates is drawn in vain.
        """
        own = self.settings
        if not own.adaptive:
            return own.n if drawn == 0 else 0
        if own.enough is not None and rewards and max(rewards) >= own.enough:
            return 0
        if own.min_gain is not None and len(rewards) >= FEWEST_FOR_SPREAD and expected_gain(rewards) < own.min_gain:
            return 0
        first = FEWEST_FOR_SPREAD if own.enough is None else 1
        return min(own.n - drawn, max(1, drawn // 2) if drawn else first)


def expected_gain(rewards: Sequence[float]) -> float:
    """By how much one more candidate is expected to better the best reward, were rewards normally distributed.

    The expected improvement of Bayesian optimisation (Jones et al., 1998), with the mean and spread of those there are.
    """
    best, mean, spread = max(rewards), statistics.fmean(rewards), statistics.stdev(rewards)
    if spread == 0:
        return 0.0
    score = (mean - best) / spread
    density = math.exp(-score * score / 2) / math.sqrt(2 * math.pi)
    return spread * density + (mean - best) * 0.5 * math.erfc(-score / math.sqrt(2))
