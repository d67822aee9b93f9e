"""Parity: every family on the card, in float32 against transformers, and in bfloat16 against float32; adapters, too."""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.card.drift import print_drift, print_head
from bench.card.hosts import Host, Load, on_gpu, running, start_scorer, sums

HEADS = (
    *("attributes", "first-logit", "five-class", "internlm2", "math-prm", "math-rm", "mean-variance", "principle"),
    *("armorm", "grm", "inf-orm", "ldl", "qrm"),
)
JUDGES = ("criteria", "genrm", "genrm-json", "genrm-principle", "r3", "reward-anything", "rm-r1")
ADAPTED, ADAPTER, MERGED = "tiny-genrm-principle", "tiny-r3-lora", "tiny-r3"
TOGETHER = 8
"""Engines on the card at a time."""


def run_parity(name: str, place: Path) -> None:
    """The tests of models, which compare every family in float32 with transformers.

    Without those of an adapter on a card, where vLLM has none in float32: `compare_precisions` looks at it.
    """
    options = ["-n", "10", "--dist", "loadfile", "-k", "not Adapter"] if on_gpu() else ["-n", "0"]
    tests = "tests/actors/models" + ("" if on_gpu() else "/test_scalar.py")
    command = [sys.executable, "-m", "pytest", "-q", "-rf", *options, tests, "-p", "no:cacheprovider"]
    done = subprocess.run(command, check=False, env=os.environ | {"CI": ""})
    print(f"parity: pytest ended with {done.returncode}", flush=True)


def compare_precisions(name: str, place: Path) -> None:
    """Rewards of every built-in model in bfloat16 against float32, and of an adapter against the merged model."""
    eager: dict[str, Any] = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30} if on_gpu() else {}
    start = partial(Host, start=start_scorer, **eager)
    rubric_rows = partial(sums, principles=())
    starts = [
        partial(start, f"{model} in {dtype}", folder=model, dtype=dtype, rows=rubric_rows if model == MERGED else sums)
        for model in (f"tiny-{model}" for model in (("scalar", *HEADS, *JUDGES) if on_gpu() else ("scalar",)))
        for dtype in ("float32", "bfloat16")
    ]
    adapted = partial(start, ADAPTER, folder=ADAPTED, adapter=ADAPTER, dtype="bfloat16", rows=rubric_rows)
    merged = partial(start, f"{MERGED} in bfloat16", folder=MERGED, dtype="bfloat16", rows=rubric_rows)
    starts += [adapted] if on_gpu() else [adapted, merged]
    rewards: dict[str, Sequence[float | None]] = {}
    for first in range(0, len(starts), TOGETHER):
        with running(*starts[first : first + TOGETHER]) as hosts:
            rewards |= {title: host.score(Load(0, 64 if on_gpu() else 4)).rewards for title, host in hosts.items()}
    print_head("sums with a right and a wrong answer")
    for title in rewards:
        lower = title.replace("float32", "bfloat16")
        if lower != title and lower in rewards:
            print_drift(f"{lower} against float32", rewards[title], rewards[lower])
    if rewards.keys() >= {ADAPTER, f"{MERGED} in bfloat16"}:
        print_drift(f"{ADAPTER} against {MERGED}, both in bfloat16", rewards[f"{MERGED} in bfloat16"], rewards[ADAPTER])
