"""How many candidates a prompt gets: a fixed number, or rounds until a stopping rule holds."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.settings.run_settings import DrawSettings

FEWEST_FOR_SPREAD = 4  # rewards needed before their standard deviation is used to predict a gain


@dataclass(frozen=True, slots=True)
class CandidateBudget:
    """Decides, round by round, how many more candidates a prompt gets."""

    settings: DrawSettings

    def next_count(self, count: int, rewards: Sequence[float]) -> int:
        """How many candidates to generate next; 0 ends the prompt.

        `count` is the number of all candidates so far, `rewards` holds those of the scored ones alone, and may be shorter.
        An adaptive budget grows by half each round: few rounds, and at most a third of the candidates come after the
        stopping rule held.
        """
        limits = self.settings
        if not limits.adaptive:
            return limits.n if count == 0 else 0
        if limits.enough is not None and rewards and max(rewards) >= limits.enough:
            return 0
        if limits.min_gain is not None and len(rewards) >= FEWEST_FOR_SPREAD and expected_gain(rewards) < limits.min_gain:
            return 0
        # `enough` can be met by the first candidate, so it starts with one; `min_gain` alone can decide nothing before 4.
        first = FEWEST_FOR_SPREAD if limits.enough is None else 1
        # By `count`, not by scored rewards: a prompt whose candidates all fail would otherwise take n rounds to its end.
        # From one candidate: 1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 64, which is 12 rounds for n = 64 instead of 64.
        return min(limits.n - count, max(1, count // 2) if count else first)


def expected_gain(rewards: Sequence[float]) -> float:
    """Expected increase of the best reward by one more candidate, in units of the reward, 0 or more.

    The expected improvement of Bayesian optimisation (Jones et al., 1998), for normally distributed rewards with the mean
    and the sample standard deviation of `rewards`. Needs 2 rewards or more.
    """
    best, mean, spread = max(rewards), statistics.fmean(rewards), statistics.stdev(rewards)
    if spread == 0:  # equal rewards promise nothing better, and `score` below would divide by zero
        return 0.0
    score = (mean - best) / spread  # at most 0: standard deviations from the best down to the mean
    density = math.exp(-score * score / 2) / math.sqrt(2 * math.pi)
    # s * phi(z) + (mean - best) * Phi(z); erfc rather than 1 + erf, which loses all digits where z is far below 0.
    return spread * density + (mean - best) * 0.5 * math.erfc(-score / math.sqrt(2))
