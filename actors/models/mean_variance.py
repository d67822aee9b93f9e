"""A reward with its uncertainty: the mean and the spread of a normal distribution, from a head of two labels.

The second label is the logarithm of the standard deviation. No config.json says so: `--family mean-variance` does.
"""

import math
from collections.abc import Mapping, Sequence

from actors.contracts.distribution import MEAN, STD, Distribution
from actors.contracts.known_model import Golden, KnownModel

_LARGEST = 700  # the exponential of more is no float


class MeanVariance(Distribution):
    """`*ForSequenceClassification` with two labels, a mean and the logarithm of a standard deviation."""

    name = "mean-variance"
    summary = "the mean and standard deviation of a reward (*ForSequenceClassification, 2 labels)"
    source = "arXiv 2410.14632"
    read_at = "the raw outputs at the last token: the mean, and the logarithm of the standard deviation"
    range = "the model's own; compare responses to one prompt"
    fitting_labels = 2
    models = (KnownModel.built_in("tiny-mean-variance", Golden.each("What is 3 + 4?", {"7": 3.885, "9": 0.060}, 0.2)),)

    def read(self, values: Sequence[float]) -> Mapping[str, float]:
        mean, log_std = values
        return {MEAN: mean, STD: math.exp(log_std) if log_std < _LARGEST else math.inf}


FAMILY = MeanVariance()
