"""Totals of a corpus, estimated from units that were drawn at random, each with a 95 % interval by a bootstrap over units.

A total is (sum over the drawn units / their size) x (size of all units), where a size is in bytes, or in rows where their
number is known. The interval is between the 2.5 % and the 97.5 % quantile of totals of resampled units. Units are resampled
and never rows, as neighbouring rows are alike. It closes as the sample grows: once all is read it is exact.

A bootstrap knows only what was drawn: where no unit has a rejected row, none of its samples has. So its lower bounds are
those of a sample with one more unit that has nothing, and its upper bounds those of one with a unit that has the most.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from pipelines.workflows.estimate.tally import COUNTS, QUANTITIES, Values

_REPLICATES = 1000  # of a bootstrap: its 2.5 % quantile then lies on 25 totals
_TAIL = 0.025


class Estimate(NamedTuple):
    """A number with its 95 % interval, which covers the truth in 95 of 100 samples; all three are equal if it is exact."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> "Estimate":
        return cls(value, value, value)

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    def times(self, factor: float) -> "Estimate":
        """The estimate in another unit; `factor` is 0 or more."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def plus(self, other: "Estimate") -> "Estimate":
        """The sum. Bounds add up, since both errors come from one sample and are taken to be fully correlated."""
        return Estimate(*(number + other_number for number, other_number in zip(self, other, strict=True)))


@dataclass(frozen=True)
class DrawnUnits:
    """Units drawn at random from a part of the corpus: blocks of neighbouring rows, or files.

    `values` is (drawn units, `QUANTITIES`), `sizes` is (drawn units,). `size` is that of all `units` of the part; their
    number is infinite where `values` have errors of their own.
    """

    values: Values
    sizes: Values
    size: float
    units: float
    rows_known: bool = False  # whether sizes are numbers of rows, and that of all units is exact

    @property
    def weight(self) -> float:
        return float(self.size / self.sizes.sum())  # how much of the corpus a drawn unit stands for; 1 if all were drawn

    @property
    def total(self) -> Values:
        return np.asarray(self.values.sum(axis=0) * self.weight)

    def resampled(self, rng: Generator) -> tuple[Values, Values]:
        """Totals of resampled units for the lower and for the upper bounds, each of shape (replicates, `QUANTITIES`)."""
        low_values, high_values = (np.vstack([self.values, values]) for values in self._extreme_units())
        sizes = np.append(self.sizes, self.sizes.mean())
        lows, highs = (np.empty((_REPLICATES, self.values.shape[1])) for _ in range(2))
        for replicate in range(_REPLICATES):
            times = np.bincount(rng.integers(len(sizes), size=len(sizes)), minlength=len(sizes))
            weight = self.size / (times @ sizes)
            lows[replicate] = times @ low_values * weight
            highs[replicate] = times @ high_values * weight
        # The correction for a finite population: what was drawn has no error, and of 200 units 196 have hardly any.
        unread = math.sqrt(max(0.0, 1 - len(self.sizes) / self.units))
        return self.total + unread * (lows - self.total), self.total + unread * (highs - self.total)

    def _extreme_units(self) -> tuple[Values, Values]:
        """Two units of average size: one that has nothing, and one that has more than most.

        The latter has each amount at the highest rate that was seen, and at least twice the average, so that an interval is
        open even where all drawn units are alike; and every response of an average unit is rejected and truncated.
        """
        size = self.sizes.mean()
        average = self.values.mean(axis=0)
        highest = (self.values / self.sizes[:, None]).max(axis=0) * size
        nothing, most = np.zeros_like(average), np.maximum(highest, 2 * average)
        for name, amount in COUNTS.items():
            column = QUANTITIES.index(name)
            most[column] = max(highest[column], average[QUANTITIES.index(amount)])
        if self.rows_known:
            nothing[QUANTITIES.index("rows")] = most[QUANTITIES.index("rows")] = size
        return nothing, most


def totals(parts: Sequence[DrawnUnits], seen: Values, seed: int) -> dict[str, Estimate]:
    """Estimate the totals of all `QUANTITIES` over parts that were sampled independently; none is below what was `seen`."""
    rng = np.random.default_rng(seed)
    total, lows, highs = (np.zeros(shape) for shape in (len(QUANTITIES), (1, len(QUANTITIES)), (1, len(QUANTITIES))))
    for part in parts:
        total = total + part.total
        part_lows, part_highs = part.resampled(rng)
        lows, highs = lows + part_lows, highs + part_highs
    low = np.clip(np.quantile(lows, _TAIL, axis=0), seen, total)
    high = np.maximum(np.quantile(highs, 1 - _TAIL, axis=0), total)
    for name, amount in COUNTS.items():
        # No more responses can be rejected than there are.
        column = QUANTITIES.index(name)
        high[column] = min(high[column], high[QUANTITIES.index(amount)])
    numbers = np.stack([total, low, high], axis=1).tolist()
    return {name: Estimate(*bounds) for name, bounds in zip(QUANTITIES, numbers, strict=True)}
