"""Makes tiny-mean-variance out of tiny-scalar, by training: `python -m tiny_models.mean_variance [--out DIR]`.

Ratings are normally distributed, and the two labels are their mean and the logarithm of their standard deviation.
"""

from functools import partial

import torch

from tiny_models.ratings import STEPS, Distribution, figures, train
from tiny_models.transplant import run


def _loss(outputs: torch.Tensor, ratings: torch.Tensor) -> torch.Tensor:
    mu, log_sigma = outputs.split(1, dim=-1)
    return (log_sigma + 0.5 * ((ratings - mu) * (-log_sigma).exp()).square()).mean()


NORMAL = Distribution(2, _loss, mean=lambda outputs: outputs[:, 0], deviation=lambda outputs: outputs[:, 1].exp())


if __name__ == "__main__":
    run("mean-variance", STEPS, partial(train, NORMAL), partial(figures, NORMAL))
