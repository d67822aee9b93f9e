"""Rates: engines in turns, with what each process and the card were busy with."""

import statistics
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.card.hosts import Host, Load, Scored, made_up_rows, on_gpu, running, start_bare, start_scorer
from bench.card.weights import write_weights
from bench.speed import SIZES, run_job

ROUNDS = 3
SHORT_WORDS = 221
"""Words of a response on average, with which a prompt has 300 tokens."""
RATES = (600, 1000, 1200, 1500)
SECONDS = 5


def measure_in_turns(hosts: Sequence[Host], count: int, against: Sequence[Host]) -> None:
    """Rounds in turns, after one that warms up: tokens and rows a second, and the ratios to some of the engines."""
    rates: dict[str, list[float]] = {host.name: [] for host in hosts}
    for number in range(ROUNDS + 1):
        for host in hosts:
            with utilisation() as busy:
                scored = host.score(Load(1000 + number * count, count))
            if number:
                rates[host.name].append(scored.tokens / scored.seconds)
            print(
                f"round {number}, {host.name}: {scored.tokens / scored.seconds:,.0f} tokens/s, "
                f"{count / scored.seconds:,.0f} rows/s, {scored.failed} failed; {cpus(scored)}; GPU busy {busy[0]}",
                flush=True,
            )
    for peer in against:
        for host in hosts:
            if peer is not host:
                ratios = sorted(ours / theirs for ours, theirs in zip(rates[host.name], rates[peer.name], strict=True))
                print(f"{host.name} / {peer.name}: {ratios[0]:.2f}, {statistics.median(ratios):.2f}, {ratios[-1]:.2f}")


def cpus(scored: Scored) -> str:
    """How many CPUs each process took that took a twentieth of one."""
    shares = {name: seconds / scored.seconds for name, seconds in scored.cpu_seconds.items()}
    return "CPUs: " + ", ".join(f"{share:.2f} {name}" for name, share in shares.items() if share > 0.05)


@contextmanager
def utilisation() -> Iterator[list[str]]:
    """Appends, at its end, the mean of the GPU's use in the block, in percent, sampled four times a second."""
    result: list[str] = []
    if not on_gpu():
        yield result
        result.append("unknown")
        return
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "250"]
    with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as sampler:
        samples: list[float] = []
        assert sampler.stdout is not None
        lines = sampler.stdout
        reader = threading.Thread(target=lambda: samples.extend(float(line) for line in lines if line.strip().isdigit()))
        reader.start()
        try:
            yield result
        finally:
            sampler.terminate()
            reader.join()
            result.append(f"{statistics.fmean(samples):.0f} %" if samples else "unknown")


def compare_fp8(name: str, place: Path) -> None:
    """FP8 beside bare FP8 and our own bfloat16: speed, and how far the rewards are from bfloat16's.

    On a CPU, for which vLLM has no FP8, the lower precision is bfloat16, and the higher one the model's, float32.
    """
    from bench.card.drift import ROWS, print_drift, print_head

    size = SIZES[name]
    folder = write_weights(place / "model", size)
    lower, low = ("fp8", {"quantization": "fp8"}) if on_gpu() else ("bfloat16", {"dtype": "bfloat16"})
    common: dict[str, Any] = {"folder": folder, "rows": partial(made_up_rows, size)}
    with running(
        partial(Host, size.dtype, start_scorer, **common),
        partial(Host, lower, start_scorer, **common, **low),
        partial(Host, f"bare {lower}", start_bare, **common, **low),
    ) as hosts:
        count = ROWS if on_gpu() else 16
        rewards = {title: host.score(Load(0, count, 1)).rewards for title, host in hosts.items()}
        print_head("batch 1")
        for title in [*rewards][1:]:
            print_drift(f"{title} against {size.dtype}", rewards[size.dtype], rewards[title])
        for title, host in hosts.items():
            print_drift(f"{title} at batch 32 against itself", rewards[title], host.score(Load(0, count, 32)).rewards)
        ours = [host for host in hosts.values() if host.name != lower]
        measure_in_turns([*hosts.values()], size.conversations if on_gpu() else 30, against=ours)


def measure_short(name: str, place: Path) -> None:
    """Rows of 300 tokens: our scorer beside vLLM's `LLM`, latencies at steady rates, what is busy, and the whole job."""
    size = SIZES[name]._replace(words=SHORT_WORDS)
    folder = write_weights(place / "model", size)
    count = 4000 if on_gpu() else 30
    common: dict[str, Any] = {"folder": folder, "rows": partial(made_up_rows, size)}
    starts: list[Callable[[], Host]] = [
        partial(Host, "ours", start_scorer, **common),
        partial(Host, "bare", start_bare, **common),
    ]
    if on_gpu():  # on a CPU there are no graphs
        starts.append(partial(Host, "ours without graphs", start_scorer, **common, enforce_eager=True))
    with running(*starts) as hosts:
        measure_in_turns([*hosts.values()], count, against=[host for title, host in hosts.items() if title == "bare"])
        ours = hosts["ours"]
        rendered = ours.score(Load(0, count))
        print(f"rendering and tokenising: {count / rendered.rendering_seconds:,.0f} rows/s in one process")
        for rate in RATES if on_gpu() else (10,):
            _measure_at(ours, rate, rate * SECONDS if on_gpu() else 20)
    run_job(folder, size._replace(conversations=count), place, {})


def _measure_at(host: Host, rate: int, count: int) -> None:
    """Rows that come at random moments: latencies, and how many failed."""
    with utilisation() as busy:
        scored = host.score(Load(100_000, count, rate=rate))
    ordered = sorted(scored.latencies)
    p50, p99 = (1000 * ordered[int(share * len(ordered))] for share in (0.5, 0.99))
    print(
        f"{rate} rows/s, each by itself: {count / scored.seconds:,.0f} rows/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms, "
        f"{scored.failed} failed; {cpus(scored)}; GPU busy {busy[0]}",
        flush=True,
    )
