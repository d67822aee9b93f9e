"""From blocks of rows that were drawn at random to totals of the whole corpus, each with a 95 % interval.

A total is the mean of the drawn blocks times how many there are, summed over strata: so it is unbiased, however long rows
are and however they lie together. Its variance is that between blocks, never that between rows, since neighbours are alike;
what was read can't err, so the interval closes as the sample grows, and is the exact number when everything was read.

- An amount (tokens, rows) is its estimate plus and minus Student's t times its standard error, with Satterthwaite's degrees
  of freedom.
- A count of what may be rare (rejected rows) has a score interval, as Wilson's is: its variance is taken to grow with the
  count. How strongly is found in the sample, as if one more block had been drawn in which every response counts: prudent
  where few or none were seen. And it is no narrower than the exact bounds of how many blocks have any.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_CONFIDENCE = 0.95
_Z = 1.959964
_SMALL_T = (math.inf, 12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)
"""Of Student's t at 0.975, by degrees of freedom; from 10 on the expansion below is right to four digits."""

_STRAIGHT = 1e-6
_FEW = 50
"""Of more blocks that have any, the score interval alone is right."""

Values = NDArray[np.float64]


class Estimate(NamedTuple):
    """A number, and the bounds that hold it in 95 of 100 samples; all three are equal if it is known."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> "Estimate":
        """A number that is known."""
        return cls(value, value, value)

    @property
    def is_exact(self) -> bool:
        """Whether it is known."""
        return self.low == self.high

    def times(self, factor: float) -> "Estimate":
        """The same in another unit; `factor` isn't negative."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def plus(self, other: "Estimate") -> "Estimate":
        """Of two that rise and fall together, as both are of the same sample."""
        return Estimate(*(one + two for one, two in zip(self, other, strict=True)))

    def holds(self, fact: float) -> bool:
        """Whether a number lies within the bounds, but for what rounding does."""
        slack = 1e-9 * max(1.0, abs(fact))
        return self.low - slack <= fact <= self.high + slack


@dataclass(frozen=True)
class Stratum:
    """Some of the blocks of a stretch of the corpus, drawn at random: a row of `values` for each, a column for each total.

    `blocks` is how many there are. With `replacement` each of the `values` is an estimate of the whole stretch by itself, as
    of a file that was drawn with a probability (Hansen and Hurwitz), and `blocks` is 1. `in_part`: of some blocks only a
    sample was looked at, so that even all of them leave something unknown.
    """

    blocks: int
    values: Values
    replacement: bool = False
    in_part: bool = False
    sure: Values | None = None
    """What was seen, where `values` isn't that."""

    @classmethod
    def of(cls, blocks: int, values: Values, lengths: Values, length: float, *, amounts: int, in_part: bool) -> "Stratum":
        """Blocks of these lengths, where all have `length` together: the last one of a file is shorter than others.

        Without a block like that in the sample, it would count as a whole one, and nobody would see it in the variance. So
        the `amounts` (the first columns) are taken per length: the ratio estimator, whose bias is nil where all but a few
        lengths are equal.
        """
        seen = values.sum(axis=0)
        if len(values) < blocks:
            values = values.copy()
            rate = values[:, :amounts].sum(axis=0) / max(lengths.sum(), 1e-9)
            values[:, :amounts] -= np.outer(lengths - length / blocks, rate)
        return cls(blocks, values, in_part=in_part, sure=seen)

    @property
    def drawn(self) -> int:
        """How many of them."""
        return len(self.values)

    @property
    def left(self) -> float:
        """The share that wasn't drawn."""
        return 1.0 if self.replacement or self.in_part else 1.0 - self.drawn / self.blocks

    @property
    def seen(self) -> Values:
        """What there is at least."""
        if self.replacement or self.in_part:
            return np.zeros(self.values.shape[1])
        return np.asarray(self.values.sum(axis=0) if self.sure is None else self.sure)

    @property
    def total(self) -> Values:
        """The estimated total of each column."""
        return np.asarray(self.values.sum(axis=0) * (self.blocks / self.drawn))

    @property
    def variance(self) -> Values:
        """Of the total."""
        if self.left <= 0:
            return np.zeros(self.values.shape[1])
        if self.drawn == 1:  # of a single block nothing tells how others may be: as far from it as it is from nothing
            return np.asarray((self.blocks * self.values[0]) ** 2)
        return np.asarray(self.blocks**2 * self.left * self.values.var(axis=0, ddof=1) / self.drawn)

    @property
    def third_moment(self) -> Values:
        """Of the total, about its mean: how lopsided its error is."""
        if self.left <= 0:
            return np.zeros(self.values.shape[1])
        left = self.left * (2 * self.left - 1)  # of a sample without replacement, as with the variance
        third = ((self.values - self.values.mean(axis=0)) ** 3).mean(axis=0)
        return np.asarray(self.blocks**3 * left * third / self.drawn**2)


def totals(strata: Sequence[Stratum], amounts: Sequence[str], counts: Mapping[str, str]) -> dict[str, Estimate]:
    """The totals of all columns: first the `amounts`, then the `counts`, each of which names the amount it is a part of.

    A stratum of which not all was drawn needs two blocks at the least.
    """
    names = [*amounts, *counts]
    if not strata:
        return dict.fromkeys(names, Estimate.exact(0))
    total = np.sum([one.total for one in strata], axis=0)
    variances = np.array([one.variance for one in strata])
    thirds = np.array([one.third_moment for one in strata])
    seen = np.sum([one.seen for one in strata], axis=0)
    free = np.array([max(1, one.drawn - 1) for one in strata])
    found: dict[str, Estimate] = {}
    for at, name in enumerate(amounts):
        below, above = _spreads(variances[:, at], thirds[:, at].sum(), free)
        least, most = _sure(strata, at)
        low, high = max(seen[at], min(total[at] - below, least)), max(total[at] + above, most)
        found[name] = Estimate(*map(float, (total[at], min(low, total[at]), high)))
    for at, (name, of) in enumerate(counts.items(), start=len(amounts)):
        bounds = _count_bounds(strata, at, variances[:, at], free, found[of].value)
        low, high = max(bounds[0], seen[at]), min(bounds[1], found[of].high)
        found[name] = Estimate(*map(float, (total[at], min(low, total[at]), max(high, total[at]))))
    return found


def _spreads(variances: Values, third: float, free: NDArray[np.int64]) -> tuple[float, float]:
    """How far below and above an estimate the truth may be: Student's t, bent by how lopsided the error is (Hall, 1992)."""
    error, t = math.sqrt(variances.sum()), t_quantile(_freedom(variances, free))
    skew = third / error**3 if error else 0.0
    if abs(skew) < _STRAIGHT:
        return t * error, t * error
    below, above = (float(3 / skew * (np.cbrt(1 + skew * (at - skew / 6)) - 1)) for at in (t, -t))
    return max(t, below) * error, max(t, -above) * error


def _count_bounds(
    strata: Sequence[Stratum], at: int, variances: Values, free: NDArray[np.int64], among: float
) -> tuple[float, float]:
    """The score interval of a count `among` so many, and no narrower than what is sure of the blocks that have any."""
    left = max(one.left for one in strata)
    drawn = sum(one.drawn for one in strata)
    total = sum(float(one.total[at]) for one in strata)
    block = among / drawn  # what a drawn block stands for, if every response in it counts
    if left <= 0 or not block:
        return total, total
    dispersion = (variances.sum() + block**2 * left) / (total + block)
    c = t_quantile(_freedom(variances, free)) ** 2 * dispersion
    spread = math.sqrt(c * total + c * c / 4)
    low, high = total + c / 2 - spread, total + c / 2 + spread
    least, most = _sure(strata, at, among)
    return min(low, least), max(high, most)


def _sure(strata: Sequence[Stratum], at: int, among: float = 0.0) -> tuple[float, float]:
    """The bounds of a total by those of how many blocks have any of it; none that bind if many of the drawn ones do.

    If none does, a block may have as much as its part of `among`.
    """
    drawn, blocks = sum(one.drawn for one in strata), sum(one.blocks for one in strata)
    having = sum(int(np.count_nonzero(one.values[:, at])) for one in strata)
    if having > _FEW or having == drawn or any(one.replacement or one.in_part for one in strata):
        return math.inf, 0.0
    least, most = having_bounds(blocks, drawn, having)
    each = sum(float(one.values[:, at].sum()) for one in strata) / having if having else among / blocks
    return least * each, most * each


def having_bounds(blocks: int, drawn: int, having: int) -> tuple[int, int]:
    """How many of all blocks have something at least and at most, if `having` of those drawn do: exact, at 95 %."""
    tail = (1 - _CONFIDENCE) / 2

    def chance(among: int, seen: range) -> float:
        """That as many as one of `seen` are drawn, if `among` so many have it."""
        every = _log_ways(blocks, drawn)
        possible = range(max(seen.start, drawn - blocks + among), min(seen.stop, among + 1))
        return sum(math.exp(_log_ways(among, x) + _log_ways(blocks - among, drawn - x) - every) for x in possible)

    candidates = range(having, blocks - drawn + having + 1)
    least = bisect_left(candidates, True, key=lambda among: 1 - chance(among, range(having)) >= tail)
    most = bisect_left(candidates, True, key=lambda among: chance(among, range(having + 1)) < tail)
    return candidates[least], candidates[most - 1]


def _log_ways(of: int, some: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)


def t_quantile(freedom: float) -> float:
    """Student's t for a two-sided interval of 95 %; the fraction of a degree of freedom doesn't count."""
    n = math.floor(freedom)
    if n < len(_SMALL_T):
        return _SMALL_T[max(1, n)]
    z = _Z
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def _freedom(variances: Values, free: NDArray[np.int64]) -> float:
    """Satterthwaite's degrees of freedom of a sum of independent variances; of zeros, all there are."""
    if not variances.any():
        return float(free.sum())
    return float(variances.sum() ** 2 / (variances**2 / free).sum())
