"""Cuts on a reward that keep a bound with a stated confidence, found by fixed-sequence testing with exact binomial bounds.

Cuts are tested in an order that is fixed before any label is seen, from the one that is safest by itself to the next, until
the first that fails: the last that passed holds, with no loss for the number of tests. A test asks whether the upper
Clopper-Pearson bound of a share of wrong cases is at most what is allowed. It is exact for cases that are drawn at random
with equal chances, and safe where one is drawn from each of equally large strata (Hoeffding 1956). The method is that of
"Trust or Escalate" (Jung et al., ICLR 2025, arXiv 2407.18370) and of "Learn then Test" (Angelopoulos et al. 2021).
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
_MOST_STARTS = 4  # by size: a half, a quarter, an eighth and a sixteenth of the labels; each more takes risk from all others
_CUTS = 200  # of all rewards: cuts at those of the labelled responses would depend on the sample, and break the bound


def possible_cuts(database: DuckDBPyConnection, table: str, value: str) -> Numbers:
    """Quantiles of a column, 200 to 400 of them or all of its values, with the least; nulls count for nothing.

    By a window over the sorted values, which spills to disk as DuckDB's own quantiles don't: 1e9 values are 8 GB.
    """
    step = f"greatest(1, count(*) over () // {_CUTS})"
    values = database.execute(
        f"select distinct {value} from (select {value}, (row_number() over (order by {value}) - 1) % {step} as off "
        f"from {table} where {value} is not null) where off = 0"
    ).fetchnumpy()[value]
    return np.asarray(values, float)


def is_bounded(wrong: object, cases: object, share: float, risk: float) -> Mask:
    """Whether so many wrong cases show, but for a chance of `risk`, that at most `share` of all are wrong.

    That is Clopper-Pearson's upper bound, asked by the distribution itself: elementwise, and without inverting it.
    """
    # P(X <= wrong) for X ~ Binomial(cases, share): as unlikely as this if the true share were `share`, or more so above it.
    return np.asarray(binom.cdf(wrong, cases, share) <= risk)


def fewest_cases(share: float, risk: float) -> int:
    """The number of cases of which not one may be wrong to show that at most `share` of all are.

    0 for a share of 0, which no number of cases shows.
    """
    # None of n is wrong with probability (1 - share)^n, which must be `risk` at most. 5 % at a risk of 5 %: 59 cases.
    return math.ceil(math.log(risk) / math.log1p(-share)) if share else 0


def enough_cases(share: float, risk: float) -> int:
    """The number of cases from which on `share` is shown where half of it are wrong."""
    # What fails isn't a prefix, as `counts * share // 2` jumps by whole cases. At 200 / share, with a hundred wrong cases of
    # the two hundred that are allowed, all have long passed.
    counts = np.arange(1, math.ceil(200 / share)) if share else np.zeros(1, int)
    failures = np.flatnonzero(~is_bounded(counts * share // 2, counts, share, risk))
    return int(counts[failures[-1]]) + 1 if failures.size else 0


@functools.lru_cache(1024)  # scipy finds each bound by a search of 10 ms, and most changes of a certificate move no pair
def interval(cases: int, of: int, confidence: float) -> tuple[float, float]:
    """The two-sided Clopper-Pearson interval of a share; from 0 to 1 without any."""
    if not of:
        return 0.0, 1.0
    bounds = binomtest(cases, of).proportion_ci(confidence, method="exact")
    return float(bounds.low), float(bounds.high)


def last_passed(tests: Mask) -> int | None:
    """The index of the last test before the first that fails; None if the first one fails.

    Tests after that one count for nothing, even where they pass: a sequence ends at its first failure.
    """
    failures = np.flatnonzero(~tests)
    count = int(failures[0]) if failures.size else len(tests)
    return count - 1 if count else None


def choose_starts(rewards: Numbers, cuts: Sequence[float], wrong_share: float, risk: float) -> list[int]:
    """Where the sequences for a precision begin, as places among the cuts from the highest down; each has an equal risk.

    A sequence can't begin at the highest cut, above which there are too few labels. It begins where a half, a quarter ... of
    the labels are kept, and at the highest cut that has enough of them. Their truth has no part in this: starts are fixed
    before it is seen.
    """
    cases = _count_cases(rewards, cuts)
    fewest = fewest_cases(wrong_share, risk)
    sizes = [len(rewards) >> halvings for halvings in range(1, _MOST_STARTS + 1)]
    # Where a start has hardly more cases than may be without a single wrong one, it would mostly fail, and cost the others.
    sizes = [size for size in sizes if size >= 1.5 * fewest] or [len(rewards)]
    starts = set[int]()
    for size in sizes:
        # Rewards of a verifier or a judge are often equal. With 180 of 400 labels at 1 and all others at 0, the start for
        # the size 200 is the cut at 1, and not the one at 0, where all 400 are kept.
        above, below = np.flatnonzero((fewest <= cases) & (cases <= size)), np.flatnonzero(cases >= size)
        starts.update(above[-1:].tolist() or below[:1].tolist())
    highest = np.flatnonzero(cases >= fewest_cases(wrong_share, risk / (len(starts) + 1)))[:1].tolist()
    return sorted({*starts, *(start for start in highest if start < min(starts))})


def precision_cut(rewards: Numbers, labels: Mask, cuts: Sequence[float], precision: float, risk: float) -> float | None:
    """The lowest cut at or above which at least a share `precision` is labelled true; None if none is shown to have it."""
    wrong_share = 1 - precision
    cases, wrong = _count_cases(rewards, cuts), _count_cases(rewards[~labels], cuts)
    starts = choose_starts(rewards, cuts, wrong_share, risk)
    reached: list[int] = []
    for start in starts:
        tests = is_bounded(wrong[start:], cases[start:], wrong_share, risk / len(starts))
        if (last := last_passed(tests)) is not None:
            reached.append(start + last)
    return float(np.sort(cuts)[::-1][max(reached)]) if reached else None


def _count_cases(rewards: Numbers, cuts: Sequence[float]) -> NDArray[np.int64]:
    # How many are at or above each cut, from the highest, where precision is best, down.
    return np.array([(rewards >= cut).sum() for cut in np.sort(cuts)[::-1]], np.int64)


def recall_cut(rewards: Numbers, labels: Mask, cuts: Sequence[float], recall: float, risk: float) -> float | None:
    """The highest cut at or above which at least a share `recall` of all that are labelled true lie; None if none has it."""
    order = np.sort(np.asarray(cuts, float))  # from the lowest, where nothing is lost, up
    lost = np.array([(labels & (rewards < cut)).sum() for cut in order])
    last = last_passed(is_bounded(lost, int(labels.sum()), 1 - recall, risk))
    return None if last is None else float(order[last])


def draw_of_strata(total: int, count: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """So many different places of `total`, one at random of each of equally large strata of neighbours.

    What is over is left out at random before, so that each place has the chance `count / total`. Ascending, int64.
    """
    left_out = np.sort(draw.choice(total, total % count, replace=False))
    size = total // count
    places = np.arange(count) * size + draw.integers(size, size=count)
    # Counted among those that aren't left out: each one that is, before a place, moves it on by one. The k-th of these
    # (from 0) lies before the place p among the others if left_out[k] - k <= p.
    return places + np.searchsorted(left_out - np.arange(left_out.size), places, side="right")
