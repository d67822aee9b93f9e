"""How many replicas a model should have: enough for the requests, and for the tokens, that are under way.

A count of requests alone says little where one may be ten tokens and another a million. Serve puts its delays, factors and
bounds around what this returns. It runs in Serve's controller, which has none of our code: so it travels by value.
"""

from typing import Any


def replicas(context: Any, target_requests: float, target_tokens: float) -> tuple[float, dict[str, Any]]:
    """Replicas for all requests and all tokens, at least one as long as there is anything to do.

    `context` is Serve's AutoscalingContext. Requests that no replica has yet count as requests; their tokens aren't known.
    """
    tokens = sum((context.aggregated_metrics or {}).get("tokens", {}).values())
    requests = context.total_num_requests or 0.0
    return max(requests / target_requests, tokens / target_tokens), {}
