"""Metrics through Ray's agent on each node, from which Prometheus reads them. Names get the prefix `ray_` there.

A process has one meter of a name: Ray warns of a second one.
"""

from functools import cache

from ray.util.metrics import Counter, Gauge, Histogram

counter, gauge = cache(Counter), cache(Gauge)
"""The meter of a name, a text and names of tags, made once."""


@cache
def histogram(name: str, text: str, edges: tuple[float, ...], tags: tuple[str, ...]) -> Histogram:
    """The histogram of this name, text, edges and names of tags; it takes positive values alone."""
    return Histogram(name, text, list(edges), tags)
