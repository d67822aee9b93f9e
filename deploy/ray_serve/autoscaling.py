"""Autoscaling policy: replicas enough for the requests, and for the prompt tokens, that are under way.

A count of requests alone says little where one has ten tokens and another a million. Serve applies its delays, factors and
bounds to what this returns. The policy runs in Serve's controller, to which Serve pickles it by value: it must import
nothing of ours, which the controller's Python may not have.
"""

from typing import Any


class LoadPolicy:
    """A policy for Serve: called with Serve's AutoscalingContext, returns the number of replicas that are enough.

    Serve makes one in its controller, from `policy_kwargs`.
    """

    def __init__(self, target_requests: float, target_tokens: float) -> None:
        """The requests under way, and the prompt tokens under way, that one replica is enough for."""
        self._target_requests = target_requests
        self._target_tokens = target_tokens

    def __call__(self, context: Any) -> tuple[float, dict[str, Any]]:
        """The larger of both needs, not rounded, and the policy's state for Serve, which stays empty.

        Tokens are counted by replicas, so those of queued requests are missing: the count of requests makes up for that.
        """
        # By replica, as `record_autoscaling_stats` reports them; None before the first report.
        tokens = sum((context.aggregated_metrics or {}).get("tokens", {}).values())
        requests = context.total_num_requests or 0.0
        return max(requests / self._target_requests, tokens / self._target_tokens), {}
