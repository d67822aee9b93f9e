"""A start: what its steps take and which of them overlap, with compiled caches cold and warm."""

import os
import subprocess
import sys
import time
from pathlib import Path

from actors import timeline
from bench.card.hosts import on_gpu
from bench.card.weights import write_weights
from bench.speed import SIZES, conversations, write_corpus

CACHES = ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "CUDA_CACHE_PATH")
"""Variables that say where compiled code is kept."""
ROWS = 300


def measure_start(name: str, place: Path) -> None:
    """`assay score` of 300 rows with nothing compiled, and again with all of it: the moments of each step."""
    size = SIZES[name]
    folder = write_weights(place / "model", size)
    rows = ROWS if on_gpu() else 20
    write_corpus(place / "corpus.jsonl", conversations(size, 0, rows))
    os.environ |= {variable: str(place / "caches" / variable.lower()) for variable in CACHES}
    for number, title in enumerate(("cold", "warm")):
        file, start = place / f"timeline-{number}", time.time()
        command = [
            *(sys.executable, "-m", "assay", "score", str(place / "corpus.jsonl"), str(place / f"scored-{number}")),
            *("--model", str(folder), "--family", "scalar"),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {timeline.FILE: str(file)})
        seconds = time.time() - start
        print(
            f"\n{name}, {title}: assay score of {rows} rows in {seconds:.1f} s; a step goes on until its process' next one"
        )
        print(*timeline.lines_of(timeline.read(file), start), sep="\n", flush=True)
