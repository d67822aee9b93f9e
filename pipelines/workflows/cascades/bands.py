"""The band of a model's rewards that leaves open what the last model's filter would say, and the bounds that it keeps.

Of all responses, T would be kept by the last model, F are kept and wouldn't be, M would be kept and are lost. The error
is F / (T - M + F), and the miss is M / T. A model's slice, of the responses that reach it, bounds two shares of its own:

    wrong   F of the model / (F of the model + T among what reaches it)
    lost    M of the model / T among what reaches it

If `lost` is at most miss / models, all together lose at most miss * T. If F of each is at most x * T / models, the error
is at most x / (x + 1 - miss): what is allowed for x = error * (1 - miss) / (1 - error). Neither share depends on the other
edge of the band, so each edge is found by a sequence of its own (`pipelines.results.filtering.cuts`), and all bounds hold
together with the confidence, of which each sequence has an equal part of the risk.
"""

import math
from typing import NamedTuple

import numpy as np

from pipelines.results.filtering.cuts import Mask, Numbers, enough_cases, fewest_cases, is_bounded, last_passed
from pipelines.settings.run_settings import BoundSettings

_KEPT_SHARE = 0.25  # that a filter is taken to keep, where a slice must be sized before anything is known


class Band(NamedTuple):
    """A response is dropped below `low`, and kept from `high` on; between them, or without a reward, it stays open."""

    low: float = -math.inf
    high: float = math.inf


class Allowed(NamedTuple):
    """The shares that one model may have wrong and lost, and the chance that a sequence of tests may err by."""

    wrong: float
    lost: float
    risk: float

    @classmethod
    def of(cls, bound: BoundSettings, models: int) -> "Allowed":
        """What each of so many models may do; the last one, which is right by definition, isn't counted."""
        # x / models of the head of this file. `wrong` is F / (F + T) <= y where F <= x T / models, so y = odds / (1 + odds).
        odds = bound.error * (1 - bound.miss) / (1 - bound.error) / models
        sequences = models * (2 if bound.miss else 1)  # without a miss nothing is dropped, and no lower edge is tested
        return cls(odds / (1 + odds), bound.miss / models, (1 - bound.confidence) / sequences)

    @property
    def fewest(self) -> int:
        """The number of responses that the last model keeps below which a slice shows nothing."""
        return min(fewest_cases(share, self.risk) for share in (self.wrong, self.lost) if share)

    @property
    def sample(self) -> int:
        """The size of a slice that shows the shares where half of them is true.

        Shares are of what is kept, so that a slice of responses is larger by `_KEPT_SHARE`.
        """
        return math.ceil(max(enough_cases(self.wrong, self.risk), enough_cases(self.lost, self.risk)) / _KEPT_SHARE)


def calibrate(rewards: Numbers, wanted: Mask, cuts: Numbers, allowed: Allowed) -> Band:
    """The narrowest band that a random slice shows to keep what is allowed; open on a side that it shows nothing of.

    `rewards` are the model's, NaN where there is none, and `wanted` says whether the last model's filter keeps the response.
    `cuts` are possible edges, which mustn't depend on the slice.
    """
    falling, rising = np.sort(cuts)[::-1], np.sort(cuts)
    wrong = np.array([(~wanted & (rewards >= cut)).sum() for cut in falling], int)
    lost = np.array([(wanted & (rewards < cut)).sum() for cut in rising], int)
    total = int(wanted.sum())  # T: those without a reward are among them, which no edge keeps or loses
    high = last_passed(is_bounded(wrong, wrong + total, allowed.wrong, allowed.risk))
    low = last_passed(is_bounded(lost, total, allowed.lost, allowed.risk))
    band = Band(-math.inf if low is None else float(rising[low]), math.inf if high is None else float(falling[high]))
    # Of edges that cross, each cut between them keeps both bounds.
    return band if band.low <= band.high else Band(band.low, band.low)
