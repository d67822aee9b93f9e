"""Requests to an object store: how many does a run make, and how many the same command when nothing is left to do?

Puts 60 JSONL objects of 60 rows into a real S3 server on loopback (moto's), scores them on the fake engine into the same
server, and counts what its access log holds: by method, and the most frequent paths. `requests OBJECTS OBJECTS ...` takes
several numbers of objects and fits the exponent: requests = constant x objects^exponent.
"""

import collections
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import fsspec

from tests.support.object_store import serving_s3

ROWS = 60
_LINE = re.compile(r'"([A-Z]+) (\S+) HTTP')
_SHOWN = 12


def main(arguments: Sequence[str]) -> None:
    """`requests`, or `requests OBJECTS ...` for other numbers of objects."""
    sizes = tuple(map(int, arguments)) or (60,)
    counts = [_measure(size) for size in sizes]
    for name, place in (("a run", 0), ("again", 1)):
        if len(sizes) > 1:
            exponent = math.log(counts[-1][place] / counts[0][place]) / math.log(sizes[-1] / sizes[0])
            print(f"{name}: requests grow as objects^{exponent:.2f}")


def _measure(objects: int) -> tuple[int, int]:
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "access.log").open("wb") as log,
        serving_s3(log) as environment,
    ):
        os.environ.update(environment)
        system = fsspec.filesystem("s3", use_listings_cache=False)
        system.mkdir("s3://corpora")
        for number in range(objects):
            rows = [json.dumps({"messages": _turns(number * ROWS + row)}) for row in range(ROWS)]
            system.pipe_file(f"s3://corpora/in/{number:06d}.jsonl", ("\n".join(rows) + "\n").encode())
        command = [sys.executable, "-m", "assay", "score", "s3://corpora/in", "s3://corpora/out"]
        command += ["--model", "tiny-attributes", "--engine", "fake"]
        counts = []
        for name in ("a run", "again"):
            before = os.fstat(log.fileno()).st_size
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            counts.append(_shown(f"{objects} objects, {name}", Path(log.name), before))
        parts = len(system.ls("s3://corpora/out/parts"))
        print(f"{objects} objects: {parts} parts")
    return counts[0], counts[1]


def _turns(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": f"It is {number}."}]


def _shown(name: str, log: Path, start: int) -> int:
    """Print the counts of a log from a byte on; returns the number of requests."""
    requests = _LINE.findall(log.read_bytes()[start:].decode(errors="replace"))
    methods = collections.Counter(method for method, _ in requests)
    kinds = collections.Counter(f"{method} {_kind(path)}" for method, path in requests)
    by_method = ", ".join(f"{count:,} {method}" for method, count in methods.most_common())
    print(f"{name}: {len(requests):,} requests ({by_method})")
    for kind, count in kinds.most_common(_SHOWN):
        print(f"    {count:>6,}  {kind}")
    return len(requests)


def _kind(path: str) -> str:
    """A path with every run of digits and hashes as `#`, so that requests of one kind are counted together."""
    path = re.sub(r"continuation-token=[^&]*|start-after=[^&]*", "", path)
    return re.sub(r"[0-9a-f]{8,}|\d+(?:-\d+)*", "#", path)
