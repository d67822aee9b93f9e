"""Metrics through Ray's agent on each node, from which Prometheus reads them. Names get the prefix `ray_` there.

A process has one meter of a name: Ray warns of a second one.
"""

from functools import cache

from ray.util.metrics import Counter, Gauge, Histogram

counter, gauge = cache(Counter), cache(Gauge)  # called with a name, a text and names of tags


@cache
def histogram(name: str, text: str, edges: tuple[float, ...], tags: tuple[str, ...]) -> Histogram:
    """The histogram of this name, text, edges and names of tags; Ray's take positive values alone.

    Edges are upper bounds of buckets, in the unit of what is observed, and ascend.
    """
    return Histogram(name, text, list(edges), tags)
