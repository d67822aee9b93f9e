"""What is found under a key, in how much memory."""

import subprocess
import sys

import pytest

from pipelines.folders.score_store.key_index import KeyIndex


def entries(count: int, first: int = 0, scores: bytes = b"a") -> dict[bytes, bytes]:
    return {bytes(16) + number.to_bytes(16, "big"): scores for number in range(first, first + count)}


def test_a_key_has_the_scores_of_the_segment_that_came_first() -> None:
    index = KeyIndex()
    index.add("a", entries(1000))
    index.add("b", entries(1000, first=500, scores=b"b"))
    assert len(index) == 1500
    assert index.find(entries(1502)) == {**entries(1000), **entries(500, first=1000, scores=b"b")}
    assert index.lacking(["a", "c"]) == ["c"]


def test_a_segment_that_was_left_out_is_read_no_more_and_taken_in_where_it_is_written_again() -> None:
    index = KeyIndex()
    index.add("damaged", {})
    assert index.lacking(["damaged"]) == []
    index.add("damaged", entries(5))
    assert index.find(entries(5)) == entries(5)


def test_an_index_that_fails_says_where_it_lies_and_goes_on() -> None:
    index = KeyIndex()
    with pytest.raises(OSError, match="of which TMPDIR decides"):
        index.add("a", {b"key": object()})  # type: ignore[dict-item]
    index.add("b", entries(1))
    assert index.find(entries(1)) == entries(1)
    index._database.close()
    for call in (lambda: index.find(entries(1)), lambda: index.add("c", entries(1))):
        with pytest.raises(OSError, match="of which TMPDIR decides: Cannot operate on a closed database"):
            call()


@pytest.mark.long
def test_a_million_entries_take_tens_of_megabytes() -> None:
    program = (
        "import hashlib; from pathlib import Path; from pipelines.folders.score_store.key_index import KeyIndex\n"
        "peak = lambda: int(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
        "before, index = peak(), KeyIndex()\n"
        "for segment in range(250):\n"
        "    keys = [hashlib.sha256(b'%d %d' % (segment, row)).digest() for row in range(4096)]\n"
        "    index.add(str(segment), dict.fromkeys(keys, bytes(200)))\n"
        "assert len(index) == 250 * 4096\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert 0 < int(done.stdout) < 40_000, "kilobytes: the page cache of 16 MB, and what a segment takes while it is added"
