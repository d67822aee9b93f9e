"""Metrics through Ray's agent on each node, from which Prometheus reads them. Names get the prefix `ray_` there.

A process has one meter of a name: Ray warns of a second one.
"""

from functools import cache

from ray.util.metrics import Counter, Gauge, Histogram


@cache
def counter(name: str, text: str, *tags: str) -> Counter:
    """The counter of this name."""
    return Counter(name, text, tags)


@cache
def histogram(name: str, text: str, edges: tuple[float, ...], *tags: str) -> Histogram:
    """The histogram of this name; it takes positive values alone."""
    return Histogram(name, text, list(edges), tags)


@cache
def gauge(name: str, text: str, *tags: str) -> Gauge:
    """The gauge of this name, a value for each process."""
    return Gauge(name, text, tags)
