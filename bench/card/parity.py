"""Parity: every family on the card, in float32 against transformers, and in bfloat16 against float32; adapters, too."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.card.drift import print_drift, print_head
from bench.card.hosts import Host, Load, on_gpu, running, start_scorer, sums

HEADS = ("attributes", "first-logit", "five-class", "internlm2", "math-prm", "math-rm", "mean-variance", "principle")
JUDGES = ("criteria", "genrm", "genrm-json", "genrm-principle", "r3", "reward-anything", "rm-r1")
ADAPTED, ADAPTER, MERGED = "tiny-genrm-principle", "tiny-r3-lora", "tiny-r3"
TOGETHER = 4
"""Models on the card at a time, each in two precisions."""


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
    count = 64 if on_gpu() else 4
    eager = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30} if on_gpu() else {}
    start = partial(Host, start=start_scorer, **eager)
    rubric_rows = partial(sums, principles=())
    models = [f"tiny-{model}" for model in ("scalar", *(HEADS + JUDGES if on_gpu() else ()))]
    print_head("bfloat16 against float32, sums with a right and a wrong answer")
    for group in (models[at : at + TOGETHER] for at in range(0, len(models), TOGETHER)):
        with running(
            *(
                partial(
                    start, f"{model} in {dtype}", folder=model, dtype=dtype, rows=rubric_rows if model == MERGED else sums
                )
                for model in group
                for dtype in ("float32", "bfloat16")
            )
        ) as hosts:
            rewards = {title: host.score(Load(0, count)).rewards for title, host in hosts.items()}
        for model in group:
            print_drift(model, *(rewards[f"{model} in {dtype}"] for dtype in ("float32", "bfloat16")))
    with running(
        partial(start, MERGED, folder=MERGED, dtype="bfloat16", rows=rubric_rows),
        partial(start, ADAPTER, folder=ADAPTED, adapter=ADAPTER, dtype="bfloat16", rows=rubric_rows),
    ) as hosts:
        merged, adapted = (hosts[title].score(Load(0, count)).rewards for title in (MERGED, ADAPTER))
    print_head("an adapter against the merged model, both in bfloat16")
    print_drift(f"{ADAPTER} on {ADAPTED}", merged, adapted)
