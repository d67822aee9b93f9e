"""The distribution of annotators' ratings 0 to 4, as HelpSteer2's are, from a head of five labels.

The reward is the expected rating. No config.json says what five labels mean: `--family five-class` does.
"""

import math
from collections.abc import Mapping, Sequence

from actors.contracts.distribution import MEAN, STD, Distribution
from actors.contracts.known_model import Golden, KnownModel
from actors.engine.protocol import activation

RATINGS = range(5)


class FiveClass(Distribution):
    """`*ForSequenceClassification` with five labels, one for each rating."""

    name = "five-class"
    summary = "the distribution of ratings 0 to 4 (*ForSequenceClassification, 5 labels)"
    source = "arXiv 2410.14632"
    read_at = "the softmax of the five raw outputs at the last token"
    range = "0 to 4"
    fitting_labels = len(RATINGS)
    models = (KnownModel.built_in("tiny-five-class", Golden.each("What is 3 + 4?", {"7": 3.886, "9": 0.075}, 0.2)),)

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        shares = activation(values)
        mean = sum(rating * share for rating, share in zip(RATINGS, shares, strict=True))
        variance = sum((rating - mean) ** 2 * share for rating, share in zip(RATINGS, shares, strict=True))
        return {MEAN: mean, STD: math.sqrt(variance)}


FAMILY = FiveClass()
