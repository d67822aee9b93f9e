"""Makes tiny-five-class out of tiny-scalar, by training: `python -m tiny_models.five_class [--out DIR]`.

There is a label for each rating from 0 to 4: the logit of how often annotators give it.
"""

from functools import partial

import torch
from torch.nn import functional

from tiny_models.annotators import RATINGS
from tiny_models.ratings import STEPS, Distribution, figures, train
from tiny_models.transplant import run


def _loss(outputs: torch.Tensor, ratings: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs.repeat_interleave(ratings.shape[1], dim=0), ratings.flatten())


def _expected(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.softmax(dim=-1) @ torch.tensor(RATINGS, dtype=outputs.dtype)


def _deviation(outputs: torch.Tensor) -> torch.Tensor:
    squares = torch.tensor(RATINGS, dtype=outputs.dtype).square()
    return (outputs.softmax(dim=-1) @ squares - _expected(outputs).square()).sqrt()


CLASSES = Distribution(len(RATINGS), _loss, _expected, _deviation)


if __name__ == "__main__":
    run("five-class", STEPS, partial(train, CLASSES), partial(figures, CLASSES))
