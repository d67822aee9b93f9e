"""Metrics of an endpoint, through Ray's metrics agents, which collect those of all replicas on each node.

Names begin with `assay_`, to which Ray's agent adds `ray_`. Nothing here holds a user's text.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from actors.records import Score
from pipelines.run.runtime.ray_meters import counter, gauge, histogram

# Upper edges in seconds: a small head answers in 10 ms; in `/verify` `cohort_timeout_s` comes before `answer_timeout_s`.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
# Of scores, by a counter with a label: Ray's histograms accept positive edges alone, and raw rewards are mostly around 0.
_EDGES = (-50, -20, -10, -5, -3, -2, -1, -0.5, 0, 0.25, 0.5, 0.75, 1, 2, 3, 4, 5, 10, 20, 50)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)  # up to `limits.max_items`


def tokens_of(scores: Sequence[Score]) -> tuple[int, int]:
    """Prompt tokens and completion tokens of some scores.

    What was rejected before the engine has none.
    """
    return sum(score.prompt_tokens or 0 for score in scores), sum(score.completion_tokens or 0 for score in scores)


def count_request(route: str, status: int, seconds: float) -> None:
    """Count an answered request, and observe its seconds. `status` is 499 where the client had left."""
    _count("assay_requests_total", "requests by route and HTTP status", route=route, status=str(status))
    meter = histogram("assay_request_seconds", "how long a request took", _SECONDS, ("route",))
    meter.observe(max(seconds, 1e-9), {"route": route})  # Ray's histograms take positive values alone


def set_under_way(requests: int) -> None:
    """Set the number of requests that this ingress holds."""
    _levels["assay_requests_under_way"] = requests


def count_scores(model: str, scores: Sequence[Score]) -> None:
    """Count responses by outcome, their tokens, and their scores by bucket.

    Tokens are those of the engine's work: what came out of a score store is counted apart.
    """
    if scores:
        histogram("assay_batch_responses", "responses in one request", _SIZES, ("model",)).observe(
            len(scores), {"model": model}
        )
    for score in scores:
        _count(
            "assay_responses_total", "responses by outcome",
            model=model, status=score.status.value, reason=score.reason or "",
        )  # fmt: skip
        # Once under each name: a model may call its only output `reward`, as the reward itself.
        values = score.scores if score.reward is None else {**score.scores, "reward": score.reward}
        for output, value in values.items():
            bucket = bisect_right(_EDGES, value)
            lowest = f"{_EDGES[bucket - 1]:g}" if bucket else "-Inf"
            _count("assay_scores_total", "scores by the bucket's lower edge", model=model, output=output, bucket=lowest)
    fresh = [score for score in scores if not score.from_store]
    if len(fresh) < len(scores):
        stored = len(scores) - len(fresh)
        _count("assay_from_store_total", "responses whose scores came from a store", stored, model=model)
    count_tokens(model, *tokens_of(fresh))


def count_tokens(model: str, prompt_tokens: int, completion_tokens: int) -> None:
    """Count prompt and completion tokens."""
    for kind, tokens in (("prompt", prompt_tokens), ("completion", completion_tokens)):
        if tokens:
            _count("assay_tokens_total", "tokens read and written", tokens, model=model, kind=kind)


# What Ray wasn't told yet: by the name and text of its counter, and the values of its tags.
_counts: Counter[tuple[str, str, tuple[tuple[str, str], ...]]] = Counter()
_levels: dict[str, int] = {}  # the last values of gauges


def _count(name: str, text: str, more: int = 1, /, **tags: str) -> None:
    _counts[name, text, tuple(tags.items())] += more


def tell() -> None:
    """Tell Ray what was counted since the last time.

    A call of Ray's for each count takes as long as all else of a small request, so Serve's health check, every two seconds,
    tells it.
    """
    for (name, text, tags), more in _counts.items():
        counter(name, text, tuple(tag for tag, _ in tags)).inc(more, dict(tags))
    _counts.clear()
    for name, level in _levels.items():
        gauge(name, "requests that an ingress holds").set(level)
