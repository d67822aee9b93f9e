"""How many replicas a model should have: enough for the requests, and for the tokens, that are under way.

A count of requests alone says little where one may be ten tokens and another a million. Serve puts its delays, factors and
bounds around what this returns. It runs in Serve's controller, to which Serve sends this file by value:
it imports nothing of ours.
"""

from typing import Any


class Enough:
    """A policy of Serve's: called with its AutoscalingContext, it says how many replicas there should be."""

    def __init__(self, target_requests: float, target_tokens: float) -> None:
        """How many requests, and how many prompt tokens, one replica is enough for."""
        self._target_requests = target_requests
        self._target_tokens = target_tokens

    def __call__(self, context: Any) -> tuple[float, dict[str, Any]]:
        """Replicas for all requests and for all tokens. Of a request that no replica has yet, the tokens aren't known."""
        tokens = sum((context.aggregated_metrics or {}).get("tokens", {}).values())
        requests = context.total_num_requests or 0.0
        return max(requests / self._target_requests, tokens / self._target_tokens), {}
