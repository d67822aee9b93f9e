"""A score store of a million entries: what its index takes in memory and on the disk, and how fast it answers.

Writes segments of 4,096 entries of a reward head with five outputs, opens the store in a process of its own, and looks up
blocks of which all is stored, and of which nothing is.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from actors.records import Prompt, RenderedRequest, RenderedResponse, Score, Status
from actors.scorers.head_scorer import Scores
from pipelines.data.storage import folder
from pipelines.folders.score_store.entries import encode, key_of, units_of
from pipelines.folders.score_store.key_index import KeyIndex
from pipelines.folders.score_store.segments import write_segment
from pipelines.folders.score_store.stored_scores import StoredScores

_SEGMENT = 4096
_BLOCKS = 20
_IDENTITY = "0" * 32


def main(arguments: Sequence[str]) -> None:
    """`store`, or `store ENTRIES`."""
    if arguments and arguments[0] == "--one":
        _look_up(arguments[1], int(arguments[2]))
        return
    entries = int(arguments[0]) if arguments else 1_000_000
    with tempfile.TemporaryDirectory() as place:
        start = time.monotonic()
        _fill(place, entries)
        size = sum(path.stat().st_size for path in Path(place).iterdir())
        print(f"{entries:,} entries in {time.monotonic() - start:,.0f} s, {size / entries:.0f} bytes each")
        subprocess.run([sys.executable, "-m", "bench", "store", "--one", place, str(entries)], check=True)


def _fill(place: str, entries: int) -> None:
    for first in range(0, entries, _SEGMENT):
        requests = [_request(number) for number in range(first, min(first + _SEGMENT, entries))]
        units = [units_of(request, compares=False)[0] for request in requests]
        values = {
            key_of(_IDENTITY, unit): encode(unit, scores) for unit, scores in zip(units, _score(requests), strict=True)
        }
        write_segment(folder(place), _IDENTITY, values)


def _request(number: int) -> RenderedRequest:
    return RenderedRequest("", (RenderedResponse("final"),), (Prompt((*range(60), number), (0,)),))


def _score(requests: Sequence[RenderedRequest]) -> list[Scores]:
    scores = list[Scores]()
    for request in requests:
        digest = hashlib.sha256(str(request.prompts[0].ids[-1]).encode()).digest()
        outputs = {f"output_{place}": digest[place] / 7 for place in range(5)}
        scores.append((Score(Status.SCORED, reward=sum(outputs.values()), scores=outputs, prompt_tokens=61),))
    return scores


def _look_up(place: str, entries: int) -> None:
    before = _memory()
    store = StoredScores(folder(place), _IDENTITY, _score, print, compares=False)
    start = time.monotonic()
    store([_request(0)])
    opened = time.monotonic() - start
    print(f"opened in {opened:,.1f} s; memory grew by {(_memory() - before) / 1024:,.0f} MB at the peak")
    keys = KeyIndex(content_bytes=0)
    for first in range(0, entries, _SEGMENT):
        names = range(first, min(first + _SEGMENT, entries))
        keys.add(str(first), [hashlib.sha256(str(name).encode()).digest() for name in names], b"")
    print(f"{keys.size / entries:.0f} bytes a key in the index on the disk, without the segments' bytes")
    for name, offset in (("all stored", 0), ("nothing stored", entries)):
        blocks = [[_request(offset + block * _SEGMENT + row) for row in range(_SEGMENT)] for block in range(_BLOCKS)]
        start = time.monotonic()
        stored = sum(score.from_store for block in blocks for scores in store(block) for score in scores)
        rate = _BLOCKS * _SEGMENT / (time.monotonic() - start)
        print(json.dumps({"blocks": name, "from_store": stored, "responses_per_s": round(rate)}))


def _memory() -> int:
    """The peak of this process' memory so far, in KiB."""
    # Not `ru_maxrss`, which counts what the process was before it became this program.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
