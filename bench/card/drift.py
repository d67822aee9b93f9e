"""Bytes and drift: rewards of the same prompts in other batches, orders, engines and precisions, as tables in Markdown."""

import itertools
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.card.hosts import Host, Load, Rows, made_up_rows, on_gpu, running, start_scorer
from bench.card.rates import measure_in_turns
from bench.card.weights import write_weights
from bench.speed import SIZES

BATCHES = (7, 32, 256)
ROWS = 256
"""Rewards that are compared, the largest batch of them whole; neighbours are pairs, whose order is looked at."""
FAMILIES = ("tiny-attributes", "tiny-internlm2", "tiny-math-rm", "tiny-first-logit")


def print_head(title: str) -> None:
    """The head of a table of drift."""
    print(f"\n| {title} | equal | largest | mean | order changed | without a reward |\n|---|---|---|---|---|---|")


def print_drift(name: str, reference: Sequence[float | None], rewards: Sequence[float | None]) -> None:
    """A row: equal rewards, the largest and the mean difference, and pairs of neighbours whose order changed.

    A pair without a reward on either side isn't compared, and counted by itself.
    """
    values = list(zip(reference, rewards, strict=True))
    both = [(first, second) for first, second in values if first is not None and second is not None]
    differences = [abs(first - second) for first, second in both]
    pairs = [
        (_side(left[0], right[0]), _side(left[1], right[1]))
        for left, right in zip(values[::2], values[1::2], strict=True)
        if None not in (*left, *right)
    ]
    changed = sum(first != second for first, second in pairs)
    largest, mean = (f"{max(differences):.3g}", f"{statistics.fmean(differences):.3g}") if both else ("", "")
    print(
        f"| {name} | {differences.count(0.0)} of {len(values)} | {largest} | {mean} | {changed} of {len(pairs)} | "
        f"{len(values) - len(both)} |",
        flush=True,
    )


def _side(first: Any, second: Any) -> int:
    return (first > second) - (first < second)


def print_bytes(first: Host, second: Host | None, count: int) -> list[float | None]:
    """The drift of an engine's rewards by batch and order, and of a second engine's; returns the rewards at batch 1."""
    reference = first.score(Load(0, count, 1)).rewards
    print_head(f"{first.name}, against batch 1")
    for batch in BATCHES:
        print_drift(f"batch {batch}", reference, first.score(Load(0, count, batch)).rewards)
        print_drift(f"batch {batch}, shuffled", reference, first.score(Load(0, count, batch, shuffle=batch)).rewards)
    print_drift("batch 1 again", reference, first.score(Load(0, count, 1)).rewards)
    if second is not None:
        print_drift("second engine, batch 1", reference, second.score(Load(0, count, 1)).rewards)
        print_drift("second engine, batch 32, shuffled", reference, second.score(Load(0, count, 32, shuffle=5)).rewards)
        first.send(Load(0, count // 2))
        second.send(Load(count // 2, count - count // 2))
        print_drift("half of both at once", reference, [*first.receive().rewards, *second.receive().rewards])
    read = [reward for reward in reference if reward is not None]
    print(f"\nStandard deviation of these rewards: {statistics.pstdev(read):.3g}; without one: {reference.count(None)}")
    return reference


def compare_bytes(name: str, place: Path) -> None:
    """Bytes and drift of rewards with and without `deterministic`, and the speed of each."""
    size = SIZES[name]
    folder = write_weights(place / "model", size)
    start = partial(Host, start=start_scorer, folder=folder, rows=partial(made_up_rows, size))
    titles = {"default": False, "deterministic": True}
    starts: list[Callable[[], Host]] = [
        partial(start, f"{title}{second}", deterministic=deterministic)
        for title, deterministic in titles.items()
        for second in (("", ", second") if on_gpu() else ("",))
    ]
    with running(*starts) as hosts:
        rewards = {
            title: print_bytes(hosts[title], hosts.get(f"{title}, second"), ROWS if on_gpu() else 16)
            for title in titles
            if title in hosts
        }
        if len(rewards) > 1:
            print_head("batch 1")
            print_drift("deterministic against default", *rewards.values())
        measured = [hosts[title] for title in rewards]
        measure_in_turns(measured, size.conversations // 2 if on_gpu() else 30, against=measured[:1])


def compare_families(name: str, place: Path) -> None:
    """Bytes of built-in models in their precision, float32, on two engines of each, with and without `deterministic`."""
    eager: dict[str, Any] = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30} if on_gpu() else {}
    starts: list[Callable[[], Host]] = []
    rows: Rows = partial(made_up_rows, SIZES[name])
    for model, deterministic in itertools.product(*((FAMILIES, (False, True)) if on_gpu() else (FAMILIES[:1], (True,)))):
        title = f"{model}{', deterministic' if deterministic else ''}"
        start = partial(Host, start=start_scorer, folder=model, rows=rows, deterministic=deterministic, **eager)
        starts += [partial(start, title), partial(start, f"{title}, second")]
    with running(*starts) as hosts:
        for title, host in hosts.items():
            if second := hosts.get(f"{title}, second"):
                print_bytes(host, second, ROWS if on_gpu() else 16)
