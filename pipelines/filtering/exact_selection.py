"""Exact selection among more responses than fit into memory: the best k, the best fraction, a quantile, the best per group.

Responses come in chunks, of any size and in any order. A response's *key* is its value (float64), then its tie (uint64):
greater is better, -0.0 is 0.0, and ties decide among equal values. The caller leaves NaN out, and gives every response
a tie of its own: a hash of which response it is, not of its text, which another response may share.

The k-th best key is found in passes over the chunks, each narrowing down where it is:

    search = Search(Top(1000))
    while (step := search.step) is not None:
        search = search.next(step.merge(step(values, ties) for values, ties in chunks))
    search.boundary.mask(values, ties)

A step runs in any worker, and what it returns is small: counts of keys by bin, as sparse as the values are. Once the bin
that holds the key has few enough of them, they are gathered, and the last choice is made among them. Most often that is
two passes. The worst data take six, three for each half of the key.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Values = NDArray[np.float64]
Words = NDArray[np.uint64]
"""Ties, or values mapped to integers of the same order; one-dimensional."""

Found = NDArray[np.uint64]
"""What a step returns, for its `merge` alone to read; two-dimensional, a column per bin or per key."""

_BIN_BITS = 22
_GREATEST = 2**64 - 1
_SIGN = 2**63


def _ordered(values: Values) -> Words:
    """Integers in the order of the values: their bits with the sign bit set, or those of negative values all flipped."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return np.where(bits >> 63 == 1, ~bits, bits | _SIGN)


def _value(word: int) -> float:
    return float(np.uint64(word ^ _SIGN if word & _SIGN else word ^ _GREATEST).view(np.float64))


def _starts(*columns: Words) -> NDArray[np.intp]:
    """Where runs of equal rows begin."""
    changes = [column[1:] != column[:-1] for column in columns]
    return np.flatnonzero(np.concatenate([[True], np.logical_or.reduce(changes)])[: columns[0].size])


@dataclass(frozen=True)
class Top:
    """The `count` best, or all if there are fewer. Raises `ValueError` unless the count is 1 or more."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"the best {self.count} can't be kept: the count must be 1 or more")

    def rank(self, total: int) -> int:
        """The place of the last one kept, from 1, among `total` (1 or more)."""
        return min(self.count, total)


@dataclass(frozen=True)
class TopFraction:
    """The best fraction of all, rounded down, but at least one: who asks for the best of a few wants the best, not nothing.

    The fraction is taken as it is written: 0.29 of 100 is 29, though the float64 is a little less than 0.29. Raises
    `ValueError` unless it is over 0, and 1 at most.
    """

    fraction: float

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(f"the best {self.fraction} can't be kept: the fraction must be over 0, and 1 at most")

    def rank(self, total: int) -> int:
        """The place of the last one kept, from 1, among `total` (1 or more)."""
        return max(1, math.floor(Fraction(str(self.fraction)) * total))


@dataclass(frozen=True)
class Quantile:
    """All values at or above the quantile `q`, which is `numpy.quantile(values, q)` to the bit, but for the sign of a zero.

    Where numpy would give NaN or overflow, because a neighbour is infinite or the two are too far apart, it is the upper
    neighbour (or the lower one, right on it). That keeps the same responses as a number between the two. Raises
    `ValueError` unless `q` is from 0 to 1.
    """

    q: float

    def __post_init__(self) -> None:
        if not 0 <= self.q <= 1:
            raise ValueError(f"{self.q} isn't a quantile: it must be from 0 to 1")

    def rank(self, total: int) -> int:
        """The place of the lower neighbour, from 1 for the greatest, among `total` (1 or more)."""
        # Over 2**53, the product may round to more than there are.
        return total - min(math.floor((total - 1) * self.q), total - 1)

    def between(self, lower: float, upper: float, total: int) -> float:
        """The quantile, by its two neighbours."""
        weight = (total - 1) * self.q % 1
        if lower == upper or weight == 0:
            return lower
        # Between two values, the quantile is the weight: so numpy rounds here just as it does among all of them.
        return float(np.quantile([lower, upper], weight)) if math.isfinite(upper - lower) else upper


@dataclass(frozen=True)
class KeyRange:
    """Some of the keys: those with values of a range, or those of one value with ties of a range. Both ends belong to it."""

    low: int = 0
    high: int = _GREATEST
    value: float | None = None

    def find(self, values: Values, ties: Words) -> tuple[Words, NDArray[np.bool_]]:
        """What is searched, the values or the ties; and which of the chunk's keys are in the range."""
        words = _ordered(values) if self.value is None else ties
        inside = (words >= self.low) & (words <= self.high)
        return words, inside if self.value is None else inside & (values == self.value)


@dataclass(frozen=True)
class Count:
    """A pass that counts the keys of a range in 2**22 bins. Of each that isn't empty: its least, its greatest, how many."""

    keys: KeyRange = KeyRange()

    def __call__(self, values: Values, ties: Words) -> Found:
        words, inside = self.keys.find(values, ties)
        words = np.sort(words[inside])
        starts = _starts(self._bins(words))
        sizes = np.diff(starts, append=words.size)
        return np.stack([words[starts], words[starts + sizes - 1], sizes.astype(np.uint64)])

    def merge(self, results: Iterable[Found]) -> Found:
        """The result for all chunks, by those for some. Holds about twice what it returns, however many come."""
        merged, waiting, size = np.empty((3, 0), np.uint64), list[Found](), 0
        for found in results:
            waiting.append(found)
            size += found.shape[1]
            if size > max(merged.shape[1], 2**16):
                merged, waiting, size = self._sum([merged, *waiting]), [], 0
        return self._sum([merged, *waiting])

    def _sum(self, results: list[Found]) -> Found:
        found = np.concatenate(results, axis=1)
        least, greatest, counts = found[:, np.argsort(found[0], kind="stable")]
        starts = _starts(self._bins(least))
        return np.stack([least[starts], np.maximum.reduceat(greatest, starts), np.add.reduceat(counts, starts)])

    def _bins(self, words: Words) -> Words:
        bits = (self.keys.high - self.keys.low).bit_length()
        return (words - np.uint64(self.keys.low)) >> np.uint64(max(0, bits - _BIN_BITS))


@dataclass(frozen=True)
class Gather:
    """A pass that gathers the keys of a range, of which there are few."""

    keys: KeyRange

    def __call__(self, values: Values, ties: Words) -> Found:
        _, inside = self.keys.find(values, ties)
        return np.stack([values[inside].view(np.uint64), ties[inside]])

    def merge(self, results: Iterable[Found]) -> Found:
        """The result for all chunks, by those for some."""
        return np.concatenate([np.empty((2, 0), np.uint64), *results], axis=1)


class Ties(NamedTuple):
    """How many have the boundary's value, and how many of these are kept; where fewer are, their ties decided."""

    equal: int
    kept: int


@dataclass(frozen=True)
class Boundary:
    """What is kept of `total` responses: `kept`, as many as were asked for unless two have the same key.

    `tie` is the least that is kept of the boundary's value, or 0 where they all fit in. For a quantile, `value` is the
    quantile, which no response may have, and `ties` is None: it keeps all that are equal.
    """

    value: float
    tie: int
    total: int
    kept: int
    ties: Ties | None

    def mask(self, values: Values, ties: Words) -> NDArray[np.bool_]:
        """Which are kept. NaN isn't."""
        return (values > self.value) | ((values == self.value) & (ties >= self.tie))


@dataclass(frozen=True)
class _Place:
    """What is known of the k-th best key: how many there are in all, above its range, and within it.

    `greater` and `equal` count by value alone, once its value is known; `upper` is the least value above its range.
    """

    total: int
    within: int
    above: int = 0
    greater: int = 0
    equal: int = 0
    upper: float = math.inf


@dataclass(frozen=True)
class Search:
    """A search for the last key that is kept. It is over when `step` is None; `boundary` is None if there were no keys.

    `limit` bounds the keys gathered (16 bytes each), from 0. The default is 64 MiB; all 2**22 bins would be 96 MiB.
    """

    target: Top | TopFraction | Quantile
    limit: int = 2**22
    step: Count | Gather | None = Count()
    boundary: Boundary | None = None
    _place: _Place | None = None

    def next(self, found: Found) -> "Search":
        """Go on by what the step found in all chunks. Raises `ValueError` if they aren't those of the pass before."""
        if self.step is None:
            raise ValueError("the search is over")
        seen = int(found[2].sum()) if isinstance(self.step, Count) else found.shape[1]
        place = self._place or _Place(seen, seen)
        if seen != place.within:
            raise ValueError(f"this pass found {seen} responses where the one before counted {place.within}: they changed")
        if seen == 0:
            return replace(self, step=None)
        if isinstance(self.step, Count):
            return self._narrowed(self.step.keys, found, place)
        # The gathered keys are a chunk like any other: the counting goes on among them, here.
        search, values, ties = replace(self, limit=0, step=Count(self.step.keys)), found[0].view(np.float64), found[1]
        while search.step is not None:
            search = search.next(search.step(values, ties))
        return search

    def _narrowed(self, keys: KeyRange, bins: Found, place: _Place) -> "Search":
        least, greatest, counts = bins[:, ::-1]  # the best bin first
        through = np.cumsum(counts.astype(np.int64))
        rank = self.target.rank(place.total)
        at = int(np.searchsorted(through, rank - place.above))
        low, high, within = int(least[at]), int(greatest[at]), int(counts[at])
        place = replace(place, above=place.above + int(through[at]) - within, within=within)
        if keys.value is None and at > 0:
            place = replace(place, upper=_value(int(least[at - 1])))
        if low < high:
            return self._among(KeyRange(low, high, keys.value), place)
        if keys.value is not None:
            return self._over(place, keys.value, low)
        place = replace(place, greater=place.above, equal=within)
        if isinstance(self.target, Quantile) or rank == place.above + within:
            return self._over(place, _value(low), 0)
        return self._among(KeyRange(value=_value(low)), place)

    def _among(self, keys: KeyRange, place: _Place) -> "Search":
        return replace(self, step=Gather(keys) if place.within <= self.limit else Count(keys), _place=place)

    def _over(self, place: _Place, value: float, tie: int) -> "Search":
        kept = place.above + place.within
        ties: Ties | None = Ties(place.equal, kept - place.greater)
        if isinstance(self.target, Quantile):
            best_of_its_value = self.target.rank(place.total) == place.greater + 1
            quantile = self.target.between(value, place.upper if best_of_its_value else value, place.total)
            value, kept, ties = quantile, kept if quantile == value else place.greater, None
        return replace(self, step=None, boundary=Boundary(value, tie, place.total, kept, ties))


GROUP = ("group_high", "group_low")
VALUE = "value"
TIE = "tie"
"""The columns that candidates have: the halves of a 128-bit digest, spread evenly, and the key. Others travel along."""


class GroupWinners(NamedTuple):
    """The best of each group, and what would have been if their group had been decided by the minimum gap."""

    kept: pa.Table
    close: pa.Table


def local_best(table: pa.Table, k: int, min_gap: float | None = None) -> pa.Table:
    """The rows of a chunk that may be among the `k` best (1 or more) of their group, or decide how far ahead its best is.

    Chunks may be joined and cut down again, in any order. Rows come out by group, the best first.
    """
    order, starts, sizes = _by_group(table)
    return table.take(order[_ranks(starts, sizes) < (k if min_gap is None else max(k, 2))])


def global_best(table: pa.Table, k: int, min_gap: float | None = None) -> GroupWinners:
    """The `k` best of each group (1 or more), by all candidates that `local_best` left of its groups.

    With a minimum gap, in units of the value, a group is decided if its best value, less the next best, is that or more
    as float64 has it. A response alone in its group is ahead of nothing, so it isn't kept, whatever the gap.
    """
    order, starts, sizes = _by_group(table)
    best = _ranks(starts, sizes) < k
    decided = np.ones(starts.size, bool)
    if min_gap is not None:
        values = table.column(VALUE).to_numpy()[order]
        first, second = values[starts], values[starts + np.minimum(sizes - 1, 1)]
        with np.errstate(over="ignore", invalid="ignore"):  # two infinite values are equal; too far apart is far enough
            gaps = np.where(first == second, 0.0, first - second)
        decided = (sizes > 1) & (gaps >= min_gap)
    kept = np.repeat(decided, sizes)
    return GroupWinners(table.take(order[best & kept]), table.take(order[best & ~kept]))


def partition(table: pa.Table, count: int) -> list[pa.Table]:
    """Split rows into `count` tables (1 or more), each with all rows of its groups. Their order within stays as it was."""
    parts = (table.column(GROUP[0]).to_numpy() % count).astype(np.intp)
    order = np.argsort(parts, kind="stable")
    # `take` and not a slice, which drags the whole table along when it is pickled.
    return [table.take(rows) for rows in np.split(order, np.searchsorted(parts[order], np.arange(1, count)))]


def _by_group(table: pa.Table) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The rows by group, the best first; and where in this order each group starts, and its size."""
    high, low, value, tie = (table.column(name).to_numpy() for name in (*GROUP, VALUE, TIE))
    order = np.lexsort((~tie, ~_ordered(value), low, high))
    starts = _starts(high[order], low[order])
    return order, starts, np.diff(starts, append=order.size)


def _ranks(starts: NDArray[np.intp], sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    """The place of each row in its group, from 0."""
    return np.arange(sizes.sum()) - np.repeat(starts, sizes)
