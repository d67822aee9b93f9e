"""Whether an estimate of a plan is right."""

from pipelines.workflows.estimate.intervals import Estimate


def holds(estimate: Estimate, fact: float) -> bool:
    """Whether a number lies within the bounds, give or take rounding errors (1e-9, relative above 1)."""
    slack = 1e-9 * max(1.0, abs(fact))
    return estimate.low - slack <= fact <= estimate.high + slack
