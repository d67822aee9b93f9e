"""The endpoint beside vLLM's own server."""

from pathlib import Path

from bench import serve
from bench.card.hosts import on_gpu
from bench.card.weights import write_weights
from bench.speed import SIZES

BURST = 1024


def measure_endpoint(name: str, place: Path) -> None:
    """`assay serve` beside vLLM's server: prompts of 50, 300 and 1,000 tokens, and bursts of 1,024 requests at once."""
    size = SIZES[name]
    folder = write_weights(place / "model", size)
    # An 8B reads some 40,000 tokens a second, and a round of a server is to take a few seconds.
    budget = 600_000 if size.parameters < 10**9 else 250_000
    loads = [(tokens, min(2000, budget // tokens), 64) for tokens in (50, 300, 1000)]
    loads.append((50, BURST, BURST))
    few = not on_gpu()
    if few:
        loads = [(50, 10, 5)]
    cases = [
        serve.Case(
            f"{name}, {requests} requests of {tokens} tokens, {clients} at a time", folder, requests, tokens, clients=clients
        )
        for tokens, requests, clients in loads
    ]
    engine = serve.ENGINE if few else {"gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 20 << 30}
    serve.measure(cases, place, engine, dtype=size.dtype)
