"""Exact selection among more responses than fit into memory: the best k, the best fraction, a quantile, the best per group.

Responses come in chunks, of any size and in any order. A response's *key* is its value (float64), then its tie (uint64):
greater is better, -0.0 equals 0.0, and ties decide among equal values. The caller leaves NaN out, and gives every response
a different tie: a hash of the response's id, not of its text, which another response may share.

The k-th best key is found by a radix search: passes over the chunks, each of which narrows the range that contains the key:

    search = Search(Top(1000))
    while (step := search.step) is not None:
        search = search.next(step.merge(step(values, ties) for values, ties in chunks))
    search.boundary.mask(values, ties)

A step runs in any worker, and its result is small: the counts of the bins that aren't empty. Once the bin with the key has
few enough keys (`Search.limit`), they are gathered, and the last choice is made among them. Most data take two passes. The
worst take six: a pass resolves 22 bits, so each 64-bit half of the key takes three.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.filtering.filter_step import GROUP, TIE, VALUE

Values = NDArray[np.float64]
Words = NDArray[np.uint64]
"""Ties, or values mapped to integers of the same order; one-dimensional."""

StepResult = NDArray[np.uint64]
"""The result of a step, which only its `merge` and `Search.next` read: (3, bins) of `Count`, (2, keys) of `Gather`."""

_BIN_BITS = 22
"""2**22 bins are 96 MiB of counts at most (`Search.limit`), and 22 bits three times are 66: three passes for 64 bits."""
_GREATEST = 2**64 - 1
_SIGN = 2**63


def _to_words(values: Values) -> Words:
    """Map values to integers of the same order: set the sign bit of values from 0 on, flip all bits of negative ones.

    The bits of positive floats, read as integers, are in the order of the values; negative ones are reversed.
    """
    # 1.0 is 0xBFF0... and 2.0 0xC000...; -1.0 is 0x400F... and -2.0 0x3FFF..., so that all are in order.
    bits = (values + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return np.where(bits >> 63 == 1, ~bits, bits | _SIGN)


def _to_value(word: int) -> float:
    """The inverse of `_to_words`."""
    return float(np.uint64(word ^ _SIGN if word & _SIGN else word ^ _GREATEST).view(np.float64))


def _run_starts(*columns: Words) -> NDArray[np.intp]:
    """The indices at which runs of equal rows begin."""
    changes = [column[1:] != column[:-1] for column in columns]
    return np.flatnonzero(np.concatenate([[True], np.logical_or.reduce(changes)])[: columns[0].size])


@dataclass(frozen=True)
class Top:
    """Keep the `count` best, or all if there are fewer. Raises `ValueError` unless the count is 1 or more."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"the best {self.count} can't be kept: the count must be 1 or more")

    def rank(self, total: int) -> int:
        """The place of the last one kept, from 1, among `total` (1 or more)."""
        return min(self.count, total)


@dataclass(frozen=True)
class TopFraction:
    """Keep the best fraction, rounded down, but at least one response: 10 % of five responses is the best one, not nothing.

    The fraction is taken in decimal as it is written: 0.29 of 100 is 29, though the float64 is slightly less than 0.29.
    Raises `ValueError` unless it is over 0, and 1 at most.
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
    """Keep all values at or above the quantile `q`: `numpy.quantile(values, q)` to the bit, but for the sign of a zero.

    Where numpy would give NaN or overflow, as a neighbour is infinite or the two are too far apart, the upper neighbour is
    taken (or the lower one, if the quantile falls exactly on it). That keeps the same responses as any number between the
    two. Raises `ValueError` unless `q` is from 0 to 1.
    """

    q: float

    def __post_init__(self) -> None:
        if not 0 <= self.q <= 1:
            raise ValueError(f"{self.q} isn't a quantile: it must be from 0 to 1")

    def rank(self, total: int) -> int:
        """The place of the lower neighbour, from 1 for the greatest, among `total` (1 or more)."""
        # Of four values and q = 0.5 the quantile has the index 1.5, counted from the least, so its lower neighbour is the
        # third greatest. Above 2**53 the product is rounded, and may come out greater than total - 1.
        return total - min(math.floor((total - 1) * self.q), total - 1)

    def between(self, lower: float, upper: float, total: int) -> float:
        """The quantile, interpolated between its two neighbours among `total` values."""
        weight = (total - 1) * self.q % 1
        if lower == upper or weight == 0:
            return lower
        # The quantile of two values at `weight` is the same interpolation, done by numpy itself: so it is rounded as numpy
        # rounds it among all values.
        return float(np.quantile([lower, upper], weight)) if math.isfinite(upper - lower) else upper


@dataclass(frozen=True)
class KeyRange:
    """A range of keys, both ends included: of values (`value` is None), or of the ties of the keys with one value.

    `low` and `high` are words: values mapped by `_to_words`, or ties.
    """

    low: int = 0
    high: int = _GREATEST
    value: float | None = None

    def find(self, values: Values, ties: Words) -> tuple[Words, NDArray[np.bool_]]:
        """The words that are searched (of values or of ties), and a mask of the chunk's keys that are in the range."""
        words = _to_words(values) if self.value is None else ties
        inside = (words >= self.low) & (words <= self.high)
        return words, inside if self.value is None else inside & (values == self.value)


@dataclass(frozen=True)
class Count:
    """A pass that counts the keys of a range in up to 2**22 bins of equal width.

    The result has three rows: the least word, the greatest word and the count of each bin that isn't empty, in ascending
    order. With least and greatest, the next range is as narrow as the data: clustered values take no more passes.
    """

    keys: KeyRange = KeyRange()

    def __call__(self, values: Values, ties: Words) -> StepResult:
        words, inside = self.keys.find(values, ties)
        # Sorted, a bin is a stretch of the words: its least, its greatest and its size are at the stretch's ends. An array
        # of 2**22 counts per chunk would take 32 MiB, however few keys the chunk has.
        words = np.sort(words[inside])
        starts = _run_starts(self._bins(words))
        sizes = np.diff(starts, append=words.size)
        return np.stack([words[starts], words[starts + sizes - 1], sizes.astype(np.uint64)])

    def merge(self, results: Iterable[StepResult]) -> StepResult:
        """Merge the results for some chunks into that for all. Holds about twice what it returns, whatever comes."""
        total, buffer, size = np.empty((3, 0), np.uint64), list[StepResult](), 0
        for result in results:
            buffer.append(result)
            size += result.shape[1]
            # Each merge sorts everything: wait until as much has come as was merged before, so that the work stays
            # proportional to the input; below 2**16 bins (1.5 MiB) a merge isn't worth its overhead.
            if size > max(total.shape[1], 2**16):
                total, buffer, size = self._sum([total, *buffer]), [], 0
        return self._sum([total, *buffer])

    def _sum(self, results: list[StepResult]) -> StepResult:
        bins = np.concatenate(results, axis=1)
        # Bins don't overlap: in the order of their least words, the pieces of one bin from several results are neighbours.
        least, greatest, counts = bins[:, np.argsort(bins[0], kind="stable")]
        starts = _run_starts(self._bins(least))
        return np.stack([least[starts], np.maximum.reduceat(greatest, starts), np.add.reduceat(counts, starts)])

    def _bins(self, words: Words) -> Words:
        # Bins are counted from `low`. They are 2**42 words wide for the range of all 64 bits, and 2**8 for one of 2**30
        # words.
        bits = (self.keys.high - self.keys.low).bit_length()
        return (words - np.uint64(self.keys.low)) >> np.uint64(max(0, bits - _BIN_BITS))


@dataclass(frozen=True)
class Gather:
    """A pass that gathers the keys of a range, which are few (`Search.limit`): a row of values, as bits, and one of ties."""

    keys: KeyRange

    def __call__(self, values: Values, ties: Words) -> StepResult:
        _, inside = self.keys.find(values, ties)
        return np.stack([values[inside].view(np.uint64), ties[inside]])

    def merge(self, results: Iterable[StepResult]) -> StepResult:
        """Merge the results for some chunks into that for all."""
        return np.concatenate([np.empty((2, 0), np.uint64), *results], axis=1)


class Ties(NamedTuple):
    """How many responses have the boundary's value, and how many of these are kept, by their ties if not all."""

    equal: int
    kept: int


@dataclass(frozen=True)
class Boundary:
    """The last key that is kept. `kept` of `total` responses are: the number requested, unless two have the same key.

    `tie` is the least tie that is kept among keys with the boundary's `value`, or 0 if all of them are kept. For a
    quantile, `value` is the quantile itself, which may lie between two responses, and `ties` is None: all equal
    values are kept.
    """

    value: float
    tie: int
    total: int
    kept: int
    ties: Ties | None

    def mask(self, values: Values, ties: Words) -> NDArray[np.bool_]:
        """Which keys are kept; NaN never is."""
        return (values > self.value) | ((values == self.value) & (ties >= self.tie))


@dataclass(frozen=True)
class _Place:
    """Counts of keys around the k-th best one: in all, within the range that contains it, and above that range.

    `greater` and `equal` count by value alone, once the value is determined. `upper` is the least value above the range: a
    quantile interpolates towards it.
    """

    total: int
    within: int
    above: int = 0
    greater: int = 0
    equal: int = 0
    upper: float = math.inf


@dataclass(frozen=True)
class Search:
    """A search for the last key that is kept. It is over when `step` is None; then `boundary` is None if there were no keys.

    `limit` bounds the number of keys that are gathered (16 bytes each), from 0. The default is 64 MiB, less than the 96 MiB
    that the counts of all 2**22 bins take.
    """

    target: Top | TopFraction | Quantile
    limit: int = 2**22
    step: Count | Gather | None = Count()
    boundary: Boundary | None = None
    _place: _Place | None = None

    def next(self, result: StepResult) -> "Search":
        """Advance by the result of `step`, merged over all chunks. Raises `ValueError` if they changed in between."""
        if self.step is None:
            raise ValueError("the search is over")
        count = int(result[2].sum()) if isinstance(self.step, Count) else result.shape[1]
        place = self._place or _Place(count, count)
        if count != place.within:
            raise ValueError(f"this pass found {count} responses where the one before counted {place.within}: they changed")
        if count == 0:
            return replace(self, step=None)
        if isinstance(self.step, Count):
            return self._narrow(self.step.keys, result, place)
        # The gathered keys are all keys of the range, so they stand for the whole corpus: finish the search here by counting
        # passes over this one chunk. `limit=0` keeps it from gathering again.
        search, values, ties = replace(self, limit=0, step=Count(self.step.keys)), result[0].view(np.float64), result[1]
        while search.step is not None:
            search = search.next(search.step(values, ties))
        return search

    def _narrow(self, keys: KeyRange, bins: StepResult, place: _Place) -> "Search":
        """Narrow the range `keys` to the bin that contains the key of the target's rank, or finish."""
        least, greatest, counts = bins[:, ::-1]  # the best bin first
        cumulative = np.cumsum(counts.astype(np.int64))
        rank = self.target.rank(place.total)
        # With 3, 5 and 2 keys in the bins and rank 6, `cumulative` is 3, 8, 10: the second bin has it, and 3 keys are above.
        # The first bin by whose end, from the best down, `rank` keys have come; `above` of these are above the range.
        index = int(np.searchsorted(cumulative, rank - place.above))
        low, high, within = int(least[index]), int(greatest[index]), int(counts[index])
        place = replace(place, above=place.above + int(cumulative[index]) - within, within=within)
        if keys.value is None and index > 0:  # the best bin has no better one in this range: `upper` stays that of before
            place = replace(place, upper=_to_value(int(least[index - 1])))
        if low < high:
            return self._search_in(KeyRange(low, high, keys.value), place)
        # One word is left. If it is a tie, that is the whole key.
        if keys.value is not None:
            return self._finish(place, keys.value, low)
        # It is a value: go on to the ties only if some of the keys with this value are kept and some aren't.
        place = replace(place, greater=place.above, equal=within)
        if isinstance(self.target, Quantile) or rank == place.above + within:
            return self._finish(place, _to_value(low), 0)
        return self._search_in(KeyRange(value=_to_value(low)), place)

    def _search_in(self, keys: KeyRange, place: _Place) -> "Search":
        return replace(self, step=Gather(keys) if place.within <= self.limit else Count(keys), _place=place)

    def _finish(self, place: _Place, value: float, tie: int) -> "Search":
        kept = place.above + place.within
        ties: Ties | None = Ties(place.equal, kept - place.greater)
        if isinstance(self.target, Quantile):
            # The upper neighbour is the key of the next better rank. That has the same value, unless this key is the best of
            # those with its value; then it is the least value above. Of 1, 2, 2, 3 and q = 0.5 both neighbours are a 2; with
            # q = 0.7 the lower one is the better 2, and the upper one is 3.
            best_of_its_value = self.target.rank(place.total) == place.greater + 1
            quantile = self.target.between(value, place.upper if best_of_its_value else value, place.total)
            # A quantile between two values keeps only what is greater than the lower one.
            value, kept, ties = quantile, kept if quantile == value else place.greater, None
        return replace(self, step=None, boundary=Boundary(value, tie, place.total, kept, ties))


class GroupWinners(NamedTuple):
    """The best of each group (`kept`), and those that would be but for a gap below the minimum (`close`)."""

    kept: pa.Table
    close: pa.Table


def local_best(table: pa.Table, k: int, min_gap: float | None = None) -> pa.Table:
    """The rows of a chunk that may be among the `k` best (1 or more) of their group, or decide its gap.

    Results may be concatenated and reduced again, in any order. Rows come out by group, the best first.
    """
    order, starts, sizes = _sort_by_group(table)
    # With a minimum gap the second best is needed, too, even if k is 1.
    return table.take(order[_ranks(starts, sizes) < (k if min_gap is None else max(k, 2))])


def global_best(table: pa.Table, k: int, min_gap: float | None = None) -> GroupWinners:
    """The `k` best of each group (1 or more), from all candidates that `local_best` left of the groups.

    With a minimum gap, in units of the value, a group is kept only if (best value) - (second best) is that or more, in
    float64. A response alone in its group has no gap, so it isn't kept, whatever the minimum.
    """
    order, starts, sizes = _sort_by_group(table)
    best = _ranks(starts, sizes) < k
    is_clear = np.ones(starts.size, bool)
    if min_gap is not None:
        values = table.column(VALUE).to_numpy()[order]
        first, second = values[starts], values[starts + np.minimum(sizes - 1, 1)]
        # inf - inf would be NaN: equal infinities have a gap of 0. A difference that overflows is inf, which is wide enough.
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = np.where(first == second, 0.0, first - second)
        is_clear = (sizes > 1) & (gaps >= min_gap)
    kept = np.repeat(is_clear, sizes)
    return GroupWinners(table.take(order[best & kept]), table.take(order[best & ~kept]))


def partition(table: pa.Table, count: int) -> list[pa.Table]:
    """Split rows into `count` tables (1 or more), each with all rows of its groups, in their order."""
    # By the group's digest, which is the same in every source: so all rows of a prompt meet in one bucket.
    parts = (table.column(GROUP[0]).to_numpy() % count).astype(np.intp)
    order = np.argsort(parts, kind="stable")
    # `take` copies: a slice would be pickled with the whole table behind it.
    return [table.take(rows) for rows in np.split(order, np.searchsorted(parts[order], np.arange(1, count)))]


def _sort_by_group(table: pa.Table) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The order of the rows by group, the best first; where in that order each group starts; and the groups' sizes."""
    high, low, value, tie = (table.column(name).to_numpy() for name in (*GROUP, VALUE, TIE))
    # `lexsort` sorts ascending, by its last key first; inverting the bits of tie and value makes these descending.
    order = np.lexsort((~tie, ~_to_words(value), low, high))
    starts = _run_starts(high[order], low[order])
    return order, starts, np.diff(starts, append=order.size)


def _ranks(starts: NDArray[np.intp], sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rank of each row in its group, from 0."""
    return np.arange(sizes.sum()) - np.repeat(starts, sizes)
