"""The distribution of annotators' ratings 0 to 4, from a head of five labels.

"Diverging Preferences" (arXiv 2410.14632): trained on the distribution of the annotators' own ratings, as HelpSteer2's are.
The reward is the expected rating; the standard deviation tells where annotators disagree. No config.json says what five
labels mean: `--family five-class` does.
"""

import math
from collections.abc import Mapping, Sequence

from actors.checkpoint import Checkpoint
from actors.engine import activation
from actors.family import KnownModel, OneLogit

RATINGS = range(5)


class FiveClass(OneLogit):
    """`*ForSequenceClassification` with five labels, one for each rating."""

    name = "five-class"
    summary = "the distribution of ratings 0 to 4 (*ForSequenceClassification, 5 labels)"
    source = "arXiv 2410.14632"
    read_at = "the softmax of the five raw outputs at the last token"
    range = "0 to 4"
    models = (KnownModel("tiny-five-class", "built in; for trying things out and for tests", "Apache-2.0"),)

    def fits(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.architecture.endswith("ForSequenceClassification") and checkpoint.labels == len(RATINGS)

    def recognises(self, checkpoint: Checkpoint) -> bool:
        return False  # five labels may be anything

    def outputs(self) -> tuple[str, ...]:
        return ("mean", "reward_std")

    def card_weights(self) -> Mapping[str, float]:
        return {"mean": 1.0}

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        shares = activation(values)
        mean = sum(rating * share for rating, share in zip(RATINGS, shares, strict=True))
        variance = sum((rating - mean) ** 2 * share for rating, share in zip(RATINGS, shares, strict=True))
        return {"mean": mean, "reward_std": math.sqrt(variance)}


FAMILY = FiveClass()
