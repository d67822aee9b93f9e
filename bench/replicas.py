"""Do many replicas stay busy? Fake engines with a fixed service time, over four raylets on this machine.

Each replica answers 16 prompts at a time, each in 8 s, so two a second, and has two minutes of work. The rate of the middle
three fifths of the commits is compared with the ideal one: replicas x 2 a second. `replicas`, or `replicas REPLICAS ...` for
other numbers.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SIZES = (1, 4, 16, 64)
IN_FLIGHT, LATENCY_S = 16, 8.0
ROWS_EACH = 240
PART_ROWS = 16
TEXT_BYTES = 2000
"""Of a response, so that a block holds about a part: a block is at least 64 KiB."""
RAYLETS = 4
STORE_BYTES = 200 * 2**20


def main(arguments: Sequence[str]) -> None:
    """`replicas`, or `replicas REPLICAS ...` for other numbers."""
    if arguments and arguments[0] == "--run":
        _run(Path(arguments[1]), int(arguments[2]))
        return
    for replicas in tuple(map(int, arguments)) or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            _write_corpus(Path(folder), replicas * ROWS_EACH)
            command = [sys.executable, "-m", "bench", "replicas", "--run", folder, str(replicas)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            rate, ideal = _rate(Path(folder)), replicas * IN_FLIGHT / LATENCY_S
            print(f"{replicas:>3} replicas: {rate:,.1f} a second of {ideal:,.0f}, efficiency {rate / ideal:.2f}", flush=True)


def _write_corpus(folder: Path, rows: int) -> None:
    with (folder / "corpus.jsonl").open("w") as corpus:
        for number in range(rows):
            answer = f"{number} ".ljust(TEXT_BYTES, "x")
            turns = [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": answer}]
            corpus.write(json.dumps({"messages": turns}) + "\n")


def _rate(folder: Path) -> float:
    """Responses a second between the first and the last fifth of the commits."""
    written = sorted(path.stat().st_mtime for path in (folder / "out" / "parts").glob("*.parquet"))
    first, last = len(written) // 5, len(written) * 4 // 5
    rows = sum(1 for _ in (folder / "corpus.jsonl").open())
    return (last - first) * rows / len(written) / (written[last] - written[first])


def _run(folder: Path, replicas: int) -> None:
    """Score the corpus on so many replicas of a cluster of its own."""
    from ray.cluster_utils import Cluster

    from pipelines.run.scoring.score_corpus import score
    from pipelines.settings.run_settings import ScoreSettings

    node: dict[str, Any] = {"num_cpus": max(2, replicas // RAYLETS), "object_store_memory": STORE_BYTES}
    cluster: Any = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    for _ in range(RAYLETS - 1):
        cluster.add_node(**node)
    import ray

    ray.init(address=cluster.address, log_to_driver=False)
    try:
        score(
            ScoreSettings.model_validate(
                {
                    "corpus": {"inputs": [str(folder / "corpus.jsonl")]},
                    "output": str(folder / "out"),
                    "model": {"model": "tiny-attributes"},
                    "engine": {"engine": "fake", "engine_args": {"latency_s": LATENCY_S}, "max_in_flight": IN_FLIGHT},
                    "work": {"part_rows": PART_ROWS, "replicas": replicas},
                }
            )
        )
    finally:
        ray.shutdown()
        cluster.shutdown()
