"""One benchmark a file: which items it has, how its authors grade one, and how they average the grades. Nothing else."""

import functools
from collections.abc import Mapping

from actors.extensions import modules_in
from pipelines.results.evaluation.benchmark import Benchmark


@functools.cache
def benchmarks() -> Mapping[str, Benchmark]:
    """All benchmarks by name. Raises `TypeError` if a module of this folder has none, `ValueError` if two share a name."""
    by_name: dict[str, Benchmark] = {}
    for module in modules_in(__name__, __path__):
        benchmark = getattr(module, "BENCHMARK", None)
        if not isinstance(benchmark, Benchmark):
            raise TypeError(f"{module.__name__} has no BENCHMARK")
        if benchmark.name in by_name:
            raise ValueError(f"two benchmarks are called {benchmark.name}")
        by_name[benchmark.name] = benchmark
    return by_name
