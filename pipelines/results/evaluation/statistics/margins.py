"""How far the rewards are apart, and how often the right response is then ahead: accuracy by margin, and calibration.

A comparison is a right against a wrong response of a graded item, and its margin the difference of their rewards. Read as
Bradley-Terry, a margin m says that the better response wins with the probability sigmoid(|m|), as reward heads are trained.
The expected calibration error (ECE) is the mean distance, over deciles of |m|, between that and the share that came out so.
"""

import itertools
import math
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.results.evaluation.benchmark import Array, GradedItem
from pipelines.results.evaluation.statistics.intervals import wilson

BINS = 10  # deciles: of 850 pairs 85 each, whose accuracy is known to 10 points


@dataclass(frozen=True)
class MarginBin:
    """Comparisons with margins from `low` to `high`, both included: how many of the labels' responses are ahead.

    `accuracy` has half a credit for a tie, `expected` is the mean of sigmoid(|margin|). The interval is Wilson's, by the
    number of independent items that the comparisons are worth.
    """

    low: float
    high: float
    comparisons: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    expected: float


@dataclass(frozen=True)
class MarginReport:
    """Accuracy by margin, and the calibration error, both from 0 to 1.

    `ece_by_chance` is about what the ECE would be if the probabilities were right, by the number of comparisons alone. Where
    all rewards are equal no probability is stated, and `ece` is None.
    """

    comparisons: int
    items: int
    bins: tuple[MarginBin, ...]
    ece: float | None
    ece_by_chance: float
    method: str = (
        "probability of the response ahead: sigmoid of the difference of rewards (Bradley-Terry); ECE over deciles of the "
        "difference, comparisons weigh alike; a tie counts half; intervals of accuracy: Wilson"
    )


class Margins:
    """The margins of all comparisons: 16 bytes each.

    Kept as arrays and not as objects: RM-Bench's 1,327 items have 11,943, a million labelled pairs 16 MB.
    """

    def __init__(self) -> None:
        self._margins, self._items = array("d"), array("q")
        self._count = 0

    def add(self, item: GradedItem) -> None:
        self._margins.extend(item.margins)
        self._items.extend([self._count] * len(item.margins))
        self._count += bool(item.margins)  # an item without comparisons, as of Ties, isn't one of these

    def report(self) -> MarginReport | None:
        """What the margins come to; None without comparisons.

        Bins have about as many comparisons each, and fewer bins where margins are equal.
        """
        if not self._margins:
            return None
        margins, items = np.frombuffer(self._margins), np.frombuffer(self._items, np.int64)
        sizes = np.abs(margins)
        # `inverted_cdf` gives edges that are margins themselves, and each ends its bin: of 10 margins 0.1, 0.1, 0.1, 0.2 ...
        # the first three deciles are 0.1, so that one bin has all three.
        edges = np.unique(np.quantile(sizes, np.arange(1, BINS) / BINS, method="inverted_cdf"))
        places = np.searchsorted(edges, sizes)  # equal margins are in one bin, so that there may be fewer than ten
        bins = [_bin(margins[places == decile], items[places == decile]) for decile in np.unique(places)]
        # Weighted by comparisons, as bins of equal margins may be far larger than a tenth.
        distances = [entry.comparisons * abs(entry.accuracy - entry.expected) for entry in bins]
        noise = sum(_noise(sizes[places == decile]) for decile in np.unique(places))
        ece = sum(distances) / len(margins) if sizes.any() else None
        return MarginReport(len(margins), self._count, tuple(bins), ece, noise / len(margins))


def differences(item: GradedItem) -> list[float]:
    """How far the rewards are apart that the grade of an item compares; empty if it has no grade.

    Without margins, as of RewardBench 2's Ties, whose grade is of the lowest and the highest rewards, those of any two.
    """
    if item.cells is None:
        return []
    margins = item.margins or [first - second for first, second in itertools.combinations(item.rewards.values(), 2)]
    return list(map(abs, margins))


def _bin(margins: Array, items: np.ndarray[Any, np.dtype[np.int64]]) -> MarginBin:
    sizes = np.abs(margins)
    accuracy = float(((margins > 0) + 0.5 * (margins == 0)).mean())
    per_item = np.unique(items, return_counts=True)[1].astype(float)
    # Kish's effective number: comparisons of one item share its responses, and count as one in the worst case.
    effective = float(per_item.sum() ** 2 / (per_item**2).sum())
    return MarginBin(
        float(sizes.min()),
        float(sizes.max()),
        len(margins),
        accuracy,
        *wilson(accuracy, effective),
        float(_sigmoid(sizes).mean()),
    )


def _noise(sizes: Array) -> float:
    # E|X - np| of a sum of Bernoullis is sqrt(2 / pi) standard deviations: what a perfect model's ECE would be by chance.
    chances = _sigmoid(sizes)
    return math.sqrt(2 / math.pi * float((chances * (1 - chances)).sum()))


def _sigmoid(sizes: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-sizes)))
