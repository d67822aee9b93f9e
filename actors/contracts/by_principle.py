"""Families that judge by principles: which principles, and how the numbers of several of them become one reward.

Principles come with the run (`principles`), each a named score, or with each row: then `scores` has their mean and their
minimum. The cards define the reward of one principle only. Several are combined here: by their mean, or, if the settings
say so, by their minimum or a weighted sum.
"""

from collections.abc import Mapping, Sequence

from actors.contracts.family import Family, weighted_reward
from actors.errors import SettingsError
from actors.records import Reading

MEAN, MIN = "mean", "min"


class ByPrinciple(Family):
    """A family that gives a response one number for each principle.

    Principles of the run name the outputs. A row's own may differ from row to row, so `scores` has the mean and the minimum
    over them.
    """

    ways = frozenset({"principles", "principle_reward"})

    @property
    def needs_principles(self) -> bool:
        return self.takes_principles

    def named(self) -> tuple[str, ...]:
        return tuple(self.way.principles or (MEAN, MIN))

    def card_weights(self) -> Mapping[str, float]:
        if self.way.principles and self.way.principle_reward == MIN:
            return {}  # none of them counts by weight
        if self.way.principles:
            return dict.fromkeys(self.way.principles, 1 / len(self.way.principles))
        return {self.way.principle_reward or MEAN: 1.0}

    def weights(self, custom: Mapping[str, float] | None) -> Mapping[str, float]:
        if custom is not None and self.way.principle_reward is not None:
            raise SettingsError(
                f"read.principle_reward={self.way.principle_reward} and read.weights each make one reward of principles; "
                "give one of them"
            )
        return super().weights(custom)

    def combined(self, numbers: Sequence[float], weights: Mapping[str, float]) -> Reading:
        """The reward from the principles' numbers, in the order of the principles.

        Raises `ValueError` for another number of numbers than the run has principles.
        """
        least = min(numbers)
        if not self.way.principles:
            return weighted_reward({MEAN: sum(numbers) / len(numbers), MIN: least}, weights)
        scores = dict(zip(self.way.principles, numbers, strict=True))
        return Reading(least, scores) if self.way.principle_reward == MIN else weighted_reward(scores, weights)
