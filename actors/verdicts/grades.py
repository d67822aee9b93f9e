"""Numbers that are made of grades: equal ones must be equal to the last bit, and fall on the same side of a cut."""

from collections.abc import Sequence
from statistics import fmean

_DIGITS = 12


def round_reward(reward: float) -> float:
    """A weighted sum of grades, rounded to 12 decimals.

    In binary the sums differ in their last bits by the order of the terms: 5, 4, 3 and 5, 2, 5 have the mean 4, and come to
    4.0 and 3.9999999999999996, which are no tie, and of which `reward >= 4` keeps one.
    """
    return round(reward, _DIGITS)


def deviation_of(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1); None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    return float((sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5)
