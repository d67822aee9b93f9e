"""Totals of a corpus, each with a 95 % interval, estimated from a stratified random sample of its blocks of rows.

A total is (mean of the sampled blocks) x (number of blocks), summed over strata. It is unbiased, however long rows are and
however similar neighbours are. Its variance is computed between blocks, never between rows, as neighbouring rows are alike.
The finite population correction (`Stratum.unsampled`) closes the interval as the sample grows: once all is read it is exact.

- An amount (tokens, rows): estimate +- Student's t x standard error, with Satterthwaite's degrees of freedom, and skewed as
  the sample is (Hall, 1992).
- A count that may be rare (rejected rows): a score interval like Wilson's, whose variance grows in proportion to the count.
  The factor (dispersion) is estimated as if one more block had been sampled in which every response counts. That keeps the
  interval open where few or none were seen: their sample variance is about 0, and so would be a t interval.
- Neither is narrower than exact (hypergeometric) bounds for the number of blocks that have any of it.
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
"""Student's t at 0.975, by degrees of freedom; from 10 on the expansion in `t_quantile` is right to four digits."""

_STRAIGHT = 1e-6
"""Skewness below which the correction is left out: it is (0 / 0) at 0. And the relative spread that counts as none."""
_FEW = 50
"""Sampled blocks that have any of an amount; with more of them, the t or score interval holds without the exact bounds."""

Values = NDArray[np.float64]


class Estimate(NamedTuple):
    """A number with its 95 % interval, which covers the truth in 95 of 100 samples; all three are equal if it is exact."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> "Estimate":
        """An exact number: an interval of no width."""
        return cls(value, value, value)

    @property
    def is_exact(self) -> bool:
        """Whether the interval has no width."""
        return self.low == self.high

    def times(self, factor: float) -> "Estimate":
        """The estimate in another unit; `factor` is 0 or more."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def plus(self, other: "Estimate") -> "Estimate":
        """The sum. Bounds add up, since both errors come from one sample and are taken to be fully correlated."""
        return Estimate(*(number + other_number for number, other_number in zip(self, other, strict=True)))

    def holds(self, fact: float) -> bool:
        """Whether a number lies within the bounds, give or take rounding errors (1e-9, relative above 1)."""
        slack = 1e-9 * max(1.0, abs(fact))
        return self.low - slack <= fact <= self.high + slack


@dataclass(frozen=True)
class Stratum:
    """A stretch of the corpus of which some blocks were sampled. `values` is (sampled blocks, totals), float64.

    `blocks` is the number of blocks in the stretch. With `replacement`, each row of `values` is an unbiased estimate of the
    whole stretch by itself, as of files drawn with probabilities (Hansen and Hurwitz), and `blocks` is 1. `in_part`: only
    some rows of some blocks were counted, so even a sample of all blocks has an error.
    """

    blocks: int
    values: Values
    replacement: bool = False
    in_part: bool = False
    unadjusted: Values | None = None
    """The sums over the sampled blocks before the ratio adjustment of `of`; None if `values` are unadjusted."""

    @classmethod
    def of(cls, blocks: int, values: Values, lengths: Values, length: float, *, amounts: int, in_part: bool) -> "Stratum":
        """A stratum of blocks with `lengths`, and `length` over all of its blocks: the last block of a file is shorter.

        A short block that isn't in the sample would count as a full one, with nothing in the variance to show for it. So
        the `amounts` (the first columns) are adjusted for length by the ratio estimator, whose bias is negligible while
        nearly all lengths are equal.
        """
        sums = values.sum(axis=0)
        if len(values) < blocks:
            # The ratio estimator, linearised: from each block take what it owes to being longer than the average block of
            # the stratum. Then the common formulas for total and variance hold for the adjusted values.
            values = values.copy()
            rate = values[:, :amounts].sum(axis=0) / max(lengths.sum(), 1e-9)
            values[:, :amounts] -= np.outer(lengths - length / blocks, rate)
        return cls(blocks, values, in_part=in_part, unadjusted=sums)

    @property
    def sampled(self) -> int:
        """How many blocks were sampled."""
        return len(self.values)

    @property
    def unsampled(self) -> float:
        """The share of blocks that wasn't sampled: the finite population correction of the variance."""
        return 1.0 if self.replacement or self.in_part else 1.0 - self.sampled / self.blocks

    @property
    def sampled_sums(self) -> Values:
        """Lower bound of each total: what the sample has itself; 0 where `values` are extrapolated."""
        if self.replacement or self.in_part:
            return np.zeros(self.values.shape[1])
        return np.asarray(self.values.sum(axis=0) if self.unadjusted is None else self.unadjusted)

    @property
    def total(self) -> Values:
        """The estimated total of each column."""
        return np.asarray(self.values.sum(axis=0) * (self.blocks / self.sampled))

    @property
    def variance(self) -> Values:
        """The sampling variance of each total."""
        if self.unsampled <= 0:
            return np.zeros(self.values.shape[1])
        if self.sampled == 1:  # one block has no sample variance: take a standard error of 100 % of the total
            return np.asarray((self.blocks * self.values[0]) ** 2)
        return np.asarray(self.blocks**2 * self.unsampled * self.values.var(axis=0, ddof=1) / self.sampled)

    @property
    def third_moment(self) -> Values:
        """The third central moment of each total's sampling error, for its skewness."""
        if self.unsampled <= 0:
            return np.zeros(self.values.shape[1])
        # The correction for sampling without replacement, at a sampling fraction f = 1 - `unsampled`: (1 - f)(1 - 2f).
        correction = self.unsampled * (2 * self.unsampled - 1)
        third = ((self.values - self.values.mean(axis=0)) ** 3).mean(axis=0)
        return np.asarray(self.blocks**3 * correction * third / self.sampled**2)


def totals(strata: Sequence[Stratum], amounts: Sequence[str], counts: Mapping[str, str]) -> dict[str, Estimate]:
    """Estimate the totals of all columns: the `amounts`, then the `counts`, which map to the amount that each is a part of.

    A stratum that wasn't read completely should have two sampled blocks at the least.
    """
    names = [*amounts, *counts]
    if not strata:
        return dict.fromkeys(names, Estimate.exact(0))
    total = np.sum([stratum.total for stratum in strata], axis=0)
    variances = np.array([stratum.variance for stratum in strata])
    thirds = np.array([stratum.third_moment for stratum in strata])
    floors = np.sum([stratum.sampled_sums for stratum in strata], axis=0)
    freedoms = np.array([max(1, stratum.sampled - 1) for stratum in strata])
    estimates: dict[str, Estimate] = {}
    for column, name in enumerate(amounts):
        below, above = _spreads(variances[:, column], thirds[:, column].sum(), freedoms)
        if max(below, above) <= _STRAIGHT * total[column]:
            below = above = _spread_of_equals(strata, total[column])
        least, most = _exact_bounds(strata, column)
        # The exact bounds can only widen the interval; no bound is below what was seen.
        low, high = max(floors[column], min(total[column] - below, least)), max(total[column] + above, most)
        estimates[name] = Estimate(*map(float, (total[column], min(low, total[column]), high)))
    for column, (name, amount) in enumerate(counts.items(), start=len(amounts)):
        bounds = _count_bounds(strata, column, variances[:, column], freedoms, estimates[amount].value)
        # No more can be rejected than there are.
        low, high = max(bounds[0], floors[column]), min(bounds[1], estimates[amount].high)
        estimates[name] = Estimate(*map(float, (total[column], min(low, total[column]), max(high, total[column]))))
    return estimates


def _spreads(variances: Values, third: float, freedoms: NDArray[np.int64]) -> tuple[float, float]:
    """How far the truth may be below and above an estimate: t x standard error, corrected for skewness (Hall, 1992).

    Hall's cubic transformation makes the skewed t statistic symmetric; here its inverse is taken at +t and -t. Lengths of
    rows have heavy tails to the right: a sample without a long row is too low, and then its variance is too small, too.
    """
    error, t = math.sqrt(variances.sum()), t_quantile(_freedom(variances, freedoms))
    skew = third / error**3 if error else 0.0
    if abs(skew) < _STRAIGHT:
        return t * error, t * error
    # `cbrt` takes negative numbers, too, which `** (1 / 3)` doesn't. The upper bound of 250 blocks is 2.1 standard errors
    # above at skew 0.1, 3.2 at 0.4 and 7.8 at 0.5: there the root's argument passes 0, where it is steepest.
    below, above = (float(3 / skew * (np.cbrt(1 + skew * (x - skew / 6)) - 1)) for x in (t, -t))
    # Only ever wider than the symmetric interval: the estimated skewness is itself uncertain.
    return max(t, below) * error, max(t, -above) * error


def _spread_of_equals(strata: Sequence[Stratum], total: float) -> float:
    """A spread where all sampled blocks are equal, and their variance 0: those that weren't sampled may be others.

    As if one more block had been sampled that has none: the standard error of n such blocks is total / n. 0 if all blocks
    were sampled.
    """
    sampled = sum(stratum.sampled for stratum in strata)
    unsampled = max(0.0, *(stratum.unsampled for stratum in strata))
    return _Z * math.sqrt(unsampled) * total / sampled


def _count_bounds(
    strata: Sequence[Stratum], column: int, variances: Values, freedoms: NDArray[np.int64], among: float
) -> tuple[float, float]:
    """The score interval of a count out of `among` responses, no narrower than the exact bounds by blocks."""
    unsampled = max(stratum.unsampled for stratum in strata)
    sampled = sum(stratum.sampled for stratum in strata)
    total = sum(float(stratum.total[column]) for stratum in strata)
    block = among / sampled  # the count that one sampled block stands for, if every response in it counts
    if unsampled <= 0 or not block:
        return total, total
    # None in 250 of 10,000 blocks of eight rows: at most 1,210 of the 80,000, or 1.5 %, about 3.8 blocks' share of 250.
    # Variance / count, with the one extra block in both: without it, a sample that saw none would have 0 / 0.
    dispersion = (variances.sum() + block**2 * unsampled) / (total + block)
    # The bounds are the counts x at which (x - total)**2 = t**2 * dispersion * x: the roots of a quadratic equation.
    c = t_quantile(_freedom(variances, freedoms)) ** 2 * dispersion
    spread = math.sqrt(c * total + c * c / 4)
    low, high = total + c / 2 - spread, total + c / 2 + spread
    least, most = _exact_bounds(strata, column, among)
    return min(low, least), max(high, most)


def _exact_bounds(strata: Sequence[Stratum], column: int, among: float = 0.0) -> tuple[float, float]:
    """Bounds of a total: those of the number of blocks that have any of it, times the average of a block that has some.

    If no sampled block has any, a block that does is taken to have its even part of `among`. Returns (inf, 0), which widen
    no interval, where many or all of the sampled blocks have some.
    """
    sampled, blocks = sum(stratum.sampled for stratum in strata), sum(stratum.blocks for stratum in strata)
    having = sum(int(np.count_nonzero(stratum.values[:, column])) for stratum in strata)
    # The hypergeometric distribution is that of whole blocks, drawn without replacement; where all have some, none is rare.
    if having > _FEW or having == sampled or any(stratum.replacement or stratum.in_part for stratum in strata):
        return math.inf, 0.0
    least, most = having_bounds(blocks, sampled, having)
    per_block = sum(float(stratum.values[:, column].sum()) for stratum in strata) / having if having else among / blocks
    return least * per_block, most * per_block


def having_bounds(blocks: int, sampled: int, having: int) -> tuple[int, int]:
    """Exact 95 % bounds for how many of all `blocks` have something, if `having` of the `sampled` ones do.

    Inverts the two tails of the hypergeometric distribution, 2.5 % each, by bisection: both are monotonic in the number
    sought, and the corpus may have millions of blocks.
    """
    tail = (1 - _CONFIDENCE) / 2

    def chance(among: int, counts: range) -> float:
        """Probability that the number of sampled blocks that have it is in `counts`, if `among` of all blocks have it."""
        # By logarithms: 250 of 10,000 blocks can be drawn in about 10**506 ways, and floats end at 10**308.
        samples = _log_binomial(blocks, sampled)
        possible = range(max(counts.start, sampled - blocks + among), min(counts.stop, among + 1))
        return sum(
            math.exp(_log_binomial(among, x) + _log_binomial(blocks - among, sampled - x) - samples) for x in possible
        )

    # None of 250 sampled blocks of 10,000: at most 144 have it. 3 of them: from 26 to 343.
    # Those seen to have it are a lower bound; those seen to lack it leave an upper bound.
    candidates = range(having, blocks - sampled + having + 1)
    least = bisect_left(candidates, True, key=lambda among: 1 - chance(among, range(having)) >= tail)
    most = bisect_left(candidates, True, key=lambda among: chance(among, range(having + 1)) < tail)
    return candidates[least], candidates[most - 1]


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def t_quantile(freedom: float) -> float:
    """Student's t at 0.975, for a two-sided 95 % interval. Degrees of freedom are rounded down: wider bounds."""
    n = math.floor(freedom)
    if n < len(_SMALL_T):
        return _SMALL_T[max(1, n)]
    z = _Z  # the Cornish-Fisher expansion of t about the normal quantile, in powers of 1 / n
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def _freedom(variances: Values, freedoms: NDArray[np.int64]) -> float:
    """Satterthwaite's degrees of freedom of a sum of independent variances; if all are 0, the sum of their degrees."""
    if not variances.any():
        return float(freedoms.sum())
    return float(variances.sum() ** 2 / (variances**2 / freedoms).sum())
