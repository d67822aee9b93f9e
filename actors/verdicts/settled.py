"""Whether the votes that haven't been asked can still change a verdict: an anytime-valid test, without replacement.

All votes of a question are decided before one is asked, each by its seed, so they are a finite population: what they come
to is a number that a run without `stop` would give. They are asked in a random order, and each one is a bet against the
hypothesis that the mean of all is 0 or on the other side. If that is true, the wealth of who bets is a non-negative
supermartingale: it ever reaches 1/error with probability `error` at most (Ville's inequality), however often one looks. The
bets are those of Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (JRSS B, 2024), for
samples without replacement.
"""

import math
from collections.abc import Iterable, Sequence

# Shares of the wealth that four gamblers stake; the test is on their mean. The boldest wins soonest where all votes agree,
# and is ruined by the first that doesn't; the most careful one needs 0.8 of 32 votes to agree.
_STAKES = (0.25, 0.5, 0.75, 1.0)


def settled_side(values: Sequence[float], total: int, error: float) -> int:
    """The side of 0 on which the mean of all `total` values lies: 1 above, -1 below, 0 if that isn't settled.

    `values`, each from -1 to 1, are those of the votes asked so far, in the order in which they were drawn. A side that is
    given is wrong with probability `error` at most, over all looks together; it is certain once the others can't change it.
    """
    # Half of the error for each side: a mean of exactly 0 could be called either.
    for side in (1, -1):
        if _wealth((side * value for value in values), total) >= 2 / error:
            return side
    return 0


def _wealth(values: Iterable[float], total: int) -> float:
    # What a stake of 1 against "the mean of all values is 0 or less" has become.
    wealths = [1.0] * len(_STAKES)
    total_seen = 0.0
    for count, value in enumerate(values):
        # With the scale of 0 to 1, the mean of what is left if the mean of all were exactly at the middle.
        expected = (total / 2 - total_seen) / (total - count)
        outcome = (value + 1) / 2
        total_seen += outcome
        if total_seen > total / 2:
            return math.inf  # even if all others are on the other end
        if expected > 0:
            wealths = [
                wealth * (1 + stake * (outcome / expected - 1)) for wealth, stake in zip(wealths, _STAKES, strict=True)
            ]
    return sum(wealths) / len(wealths)
