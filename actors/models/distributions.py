"""Rewards with their uncertainty, from a `*ForSequenceClassification` with several labels: a mean and its spread.

No config.json says what two or five labels mean: `--family mean-variance` and `--family five-class` do.
"""

import math
from collections.abc import Mapping, Sequence

from actors.contracts.distribution import MEAN, STD, Distribution
from actors.contracts.known_model import Golden, KnownModel
from actors.engine.protocol import activation

_LARGEST = 700  # the largest float64 is e ** 709.8
_RATINGS = range(5)  # HelpSteer2's annotators rate from 0 to 4


class MeanVariance(Distribution):
    """Two labels: the mean and the logarithm of the standard deviation of a normal distribution."""

    name = "mean-variance"
    summary = "the mean and standard deviation of a reward (*ForSequenceClassification, 2 labels)"
    source = "arXiv 2410.14632"
    read_at = "the raw outputs at the last token: the mean, and the logarithm of the standard deviation"
    range = "the model's own; compare responses to one prompt"
    fitting_labels = 2
    models = (KnownModel.built_in("tiny-mean-variance", Golden.each("What is 3 + 4?", {"7": 3.885, "9": 0.060}, 0.2)),)

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        mean, log_std = values
        # `math.exp` raises for more: an infinite spread leaves the row a reward that isn't finite, and so a reason.
        return {MEAN: mean, STD: math.exp(log_std) if log_std < _LARGEST else math.inf}


class FiveClass(Distribution):
    """Five labels, one for each rating of an annotator; the reward is the expected rating."""

    name = "five-class"
    summary = "the distribution of ratings 0 to 4 (*ForSequenceClassification, 5 labels)"
    source = "arXiv 2410.14632"
    read_at = "the softmax of the five raw outputs at the last token"
    range = "0 to 4"
    fitting_labels = len(_RATINGS)
    models = (KnownModel.built_in("tiny-five-class", Golden.each("What is 3 + 4?", {"7": 3.886, "9": 0.075}, 0.2)),)

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        shares = activation(values)
        mean = sum(rating * share for rating, share in zip(_RATINGS, shares, strict=True))
        # Of annotators who agree on 2 it is 0; of halves that say 0 and 4 it is 4, and the spread 2, at the same mean.
        variance = sum((rating - mean) ** 2 * share for rating, share in zip(_RATINGS, shares, strict=True))
        return {MEAN: mean, STD: math.sqrt(variance)}


FAMILY = (MeanVariance(), FiveClass())
