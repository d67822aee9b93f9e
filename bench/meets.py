"""Best of n, shuffled over a file: what does it save that equal prompts meet in the engine?

Each prompt of 400 tokens has 16 answers of 50, a row each. `assay score` (real vLLM, random weights) scores them grouped by
prompt and shuffled, in turns, and shuffled by another checkout, if it is given one.
Seconds are those of the session without the engine's start; CPU seconds are those of vLLM's engine core.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

import psutil

from bench.speed import DUMMY, Size, write_model
from tests.support.processes import family, title
from tiny_models.tasks import WORDS

ANSWERS, PROMPT_WORDS, ANSWER_WORDS, PROMPTS, ROUNDS = 16, 380, 45, 64, 3
ENGINE = {**DUMMY, "num_gpu_blocks_override": 96, "max_num_seqs": 64}
"""A cache for half of the 64 prompts, and a window of all 1,024 rows, of which 64 are in the engine at a time."""
SIZE = Size(4, 320, 880, 5, 1, 1024, 60, 200, "float32")
"""4 million weights: slow enough that rows are there before the engine needs them, as of a model on a GPU."""


class Figures(NamedTuple):
    """Of a run: seconds, CPU seconds, and the share of its prompt tokens that was cached, where it says so."""

    seconds: float
    cpu_seconds: float
    cached: float | None


def main(arguments: Sequence[str]) -> None:
    """`meets`, `meets PROMPTS`, or `meets PROMPTS CHECKOUT ROUNDS`."""
    prompts, checkout, rounds = (*arguments, *(str(PROMPTS), "", str(ROUNDS))[len(arguments) :])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_model(folder / "model", SIZE)
        write_rows(folder, int(prompts))
        ways = {"grouped": "", "shuffled": ""} | ({"shuffled, before": checkout} if checkout else {})
        seen: dict[str, list[Figures]] = {way: [] for way in ways}
        for number in range(int(rounds)):
            for way, where in ways.items():
                seen[way].append(_score(folder, way.partition(",")[0], f"{way}-{number}", where))
                print(f"{way}: {seen[way][-1]}", flush=True)
    for way, figures in seen.items():
        for name in ("seconds", "cpu_seconds"):
            pairs = zip(figures, seen["shuffled"], strict=True)
            ratios = sorted(getattr(shuffled, name) / getattr(then, name) for then, shuffled in pairs)
            print(f"shuffled / {way}, {name}: {ratios[0]:.2f}, {median(ratios):.2f}, {ratios[-1]:.2f}")


def write_rows(folder: Path, prompts: int) -> None:
    """`grouped.jsonl` and `shuffled.jsonl`: the same rows in two orders."""
    draw = Random(0)
    rows: list[str] = []
    for number in range(prompts):
        question = f"{number}: {' '.join(draw.choices(WORDS, k=PROMPT_WORDS))}?"
        for answer in (" ".join(draw.choices(WORDS, k=ANSWER_WORDS)) for _ in range(ANSWERS)):
            rows.append(json.dumps({"prompt": question, "response": answer}) + "\n")
    (folder / "grouped.jsonl").write_text("".join(rows))
    draw.shuffle(rows)
    (folder / "shuffled.jsonl").write_text("".join(rows))


def _score(folder: Path, rows: str, name: str, checkout: str) -> Figures:
    options = [f"--set=engine.engine_args.{key}={value}" for key, value in ENGINE.items()]
    command = [sys.executable, "-m", "assay", "score", str(folder / f"{rows}.jsonl"), str(folder / name), "--json"]
    environment = os.environ | ({"PYTHONPATH": checkout} if checkout else {})
    with subprocess.Popen(
        [*command, "--model", str(folder / "model"), "--family", "scalar", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=checkout or None,
        env=environment,
    ) as process:
        cpu_seconds, over = dict[int, float](), threading.Event()
        watch = threading.Thread(target=_watch, args=(process.pid, cpu_seconds, over))
        watch.start()
        output, _ = process.communicate()
        over.set()
        watch.join()
    work = json.loads((folder / name / "manifest.json").read_text())["summary"]["work"]
    tokens = work.get("cached_tokens"), work.get("computed_tokens")
    cached = None if tokens[0] is None else tokens[0] / sum(tokens)
    assert output
    return Figures(work["seconds"] - work["starting"], sum(cpu_seconds.values()), cached)


def _watch(pid: int, cpu_seconds: dict[int, float], over: threading.Event) -> None:
    """Note the CPU seconds of the engine cores below a process, as long as they live."""
    while not over.wait(0.5):
        try:
            for process in (member for member in family(psutil.Process(pid)) if "EngineCore" in title(member)):
                times = process.cpu_times()
                cpu_seconds[process.pid] = times.user + times.system
        except psutil.Error:
            continue
