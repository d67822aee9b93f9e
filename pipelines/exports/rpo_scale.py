"""How NeMo-Aligner's RPO uses the margins of a data set, and which `model.dpo.gt_reward_scale` suits them.

Two of its losses (`rpo_bwd_kl`, `rpo_fwd_kl`) take sigmoid(scale * (chosen_reward - rejected_reward)) as the probability
that the chosen response is better; the third (`rpo_sq`) wants the policy's own rewards to differ by that product. Reward
models differ in their units: at the default scale of 1 every margin above 4.6 is "surely better", as in DPO, which knows no
margins at all, and one below 0.2 is nearly a tie.

Source: NVIDIA/NeMo-Aligner@af2b3bd9, models/nlp/gpt/megatron_gpt_dpo_model.py, loss_func; docs/user-guide/dpo.rst.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.scored_corpus.summary import QUANTILES

SATURATED, NO_SIGNAL, TARGET = 0.99, 0.55, 0.75
"""Probabilities: above the first a larger margin changes nothing, below the second it is nearly a tie; the last is what
the median pair should have."""


@dataclass(frozen=True, slots=True)
class ScaleAdvice:
    """The margins of a data set, and the `gt_reward_scale` at which the median pair's probability is 0.75.

    `quantiles` are the margins at `summary.QUANTILES`; `saturated` and `no_signal` the shares of pairs whose probability at
    a scale of 1 is above 0.99 and below 0.55.
    """

    pairs: int
    quantiles: tuple[float, ...]
    saturated: float
    no_signal: float
    gt_reward_scale: float


def scale_advice(margins: Sequence[float]) -> ScaleAdvice:
    """The advice for pairs with these margins: at least one, each finite and above 0, as `PreferencePair.margin` is."""
    values = np.asarray(margins, dtype=np.float64)
    median = float(np.median(values))
    return ScaleAdvice(
        pairs=len(values),
        quantiles=tuple(np.quantile(values, QUANTILES).tolist()),
        saturated=float(np.mean(values > _logit(SATURATED))),
        no_signal=float(np.mean(values < _logit(NO_SIGNAL))),
        gt_reward_scale=_logit(TARGET) / median,
    )


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))
