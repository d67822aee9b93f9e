"""Families that give a distribution of rewards: its mean, its spread, and whether annotators diverge about two responses.

"Diverging Preferences" (arXiv 2410.14632): trained on each annotator's own judgement, the spread tells where annotators
disagree. Of two responses A and B the diverging score is |mean A - mean B| - lambda (std A + std B): low where the means are
close beside their spreads, so that annotators diverge about which is better.
"""

from collections.abc import Mapping, Sequence

from actors.contracts.family import OneLogit
from actors.errors import SettingsError

MEAN, STD, DIVERGING = "mean", "reward_std", "diverging"


class Distribution(OneLogit):
    """A family whose outputs are a mean, which is the reward, and a standard deviation.

    Both are on the model's own scale. A response of which one isn't finite has no reward. A response with others in its
    request also has `diverging`: the score between it and the best of the others.
    """

    ways = frozenset({"diverging_lambda"})
    recognised = False  # a head with this many labels may mean anything
    skips_padding = True

    def outputs(self) -> tuple[str, ...]:
        return (MEAN, STD, DIVERGING)

    def weights(self, custom: Mapping[str, float] | None) -> Mapping[str, float]:
        if custom is not None and DIVERGING in custom:
            raise SettingsError(f"weights name {DIVERGING}, which only pairs of responses have; there are {MEAN} and {STD}")
        return super().weights(custom)

    def compared(self, scores: Sequence[Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
        return [
            self._diverging(outputs, [*scores[:position], *scores[position + 1 :]])
            for position, outputs in enumerate(scores)
        ]

    def _diverging(self, outputs: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        best = max(filter(None, others), key=lambda other: other[MEAN], default=None)
        if not outputs or best is None:
            return {}
        spread = self.way.diverging_lambda * (outputs[STD] + best[STD])
        return {DIVERGING: abs(outputs[MEAN] - best[MEAN]) - spread}
