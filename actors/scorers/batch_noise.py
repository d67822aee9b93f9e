"""The noise of batching: by how much a reward differs with the prompts beside which an engine computes it.

A matrix product of other sizes adds up in another order. How much that is depends on model, precision and device, so a run
measures it: it asks some responses again, in another batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchNoise:
    """`largest` is the largest difference between a response's two rewards, of `responses` that were asked again.

    About 1e-7 of a reward in float32, and far more in half precision.
    """

    largest: float
    responses: int


def noise_between(rewards: Iterable[float | None], repeated: Iterable[float | None]) -> BatchNoise | None:
    """The noise between responses' rewards and those of the same responses, asked again; None if no response has both."""
    pairs = zip(rewards, repeated, strict=True)
    differences = [abs(first - second) for first, second in pairs if first is not None and second is not None]
    return BatchNoise(max(differences), len(differences)) if differences else None


def largest_noise(measured: Iterable[BatchNoise]) -> BatchNoise | None:
    """The noise of several engines, or sessions, together; None of none.

    The largest difference is that of all, and the responses add up.
    """
    noises = list(measured)
    if not noises:
        return None
    return BatchNoise(max(noise.largest for noise in noises), sum(noise.responses for noise in noises))
