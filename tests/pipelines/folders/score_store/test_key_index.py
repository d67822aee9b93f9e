"""Where keys lie, in how much memory."""

import subprocess
import sys

import pytest

from pipelines.folders.score_store.key_index import KeyIndex, Place


def keys(count: int, first: int = 0) -> list[bytes]:
    return [number.to_bytes(16, "big") + bytes(16) for number in range(first, first + count)]


def test_a_key_has_the_place_of_the_segment_that_came_first() -> None:
    index = KeyIndex()
    index.add("a", keys(1000), b"aa")
    index.add("b", keys(1000, first=500), b"bb")
    assert len(index) == 1500
    assert index.places(keys(3, first=499)) == dict(
        zip(keys(3, first=499), [Place("a", 499), Place("a", 500), Place("a", 501)], strict=True)
    )
    assert index.places(keys(2, first=1499)) == {keys(1, first=1499)[0]: Place("b", 999)}
    assert index.lacking(["a", "c"]) == ["c"]


def test_a_segment_that_is_dropped_has_no_places_and_doesnt_come_back() -> None:
    index = KeyIndex()
    index.add("a", keys(10), b"aa")
    index.drop("a")
    index.drop("never added")
    assert index.places(keys(10)) == {}
    assert index.lacking(["a", "never added"]) == []


def test_a_segment_that_was_written_again_after_it_was_dropped_is_taken_in() -> None:
    index = KeyIndex()
    for name in ("damaged", "also damaged"):
        index.drop(name)
    index.add("c", keys(5, first=20), b"cc")
    index.add("damaged", keys(5), b"aa")
    index.add("also damaged", keys(5, first=5), b"bb")
    assert index.places(keys(1, first=2)) == {keys(1, first=2)[0]: Place("damaged", 2)}
    assert index.places(keys(1, first=7)) == {keys(1, first=7)[0]: Place("also damaged", 2)}
    assert (index.content("damaged"), index.content("also damaged"), index.content("c")) == (b"aa", b"bb", b"cc")
    index.drop("c")  # of which the content is here already
    assert index.places(keys(1, first=22)) == {}
    index.add("c", keys(5, first=20), b"c!")
    assert index.places(keys(1, first=22)) == {keys(1, first=22)[0]: Place("c", 2)}
    assert index.content("c") == b"c!"


def test_an_index_goes_on_after_an_error() -> None:
    index = KeyIndex()
    with pytest.raises(OSError, match="of which TMPDIR decides"):
        index.add("a", [], [1])  # type: ignore[arg-type]
    index.add("b", keys(1), b"bb")
    assert index.places(keys(1)) == {keys(1)[0]: Place("b", 0)}


def test_segments_are_kept_while_there_is_room() -> None:
    index = KeyIndex(content_bytes=5)
    index.add("a", keys(1), b"aaa")
    index.add("b", keys(1, first=1), b"bbb")
    assert (index.content("a"), index.content("b")) == (b"aaa", None)
    index.add("c", keys(1, first=2), b"cc")
    assert index.content("c") == b"cc"


def test_an_index_that_fails_says_where_it_lies() -> None:
    index = KeyIndex()
    index._database.close()
    for call in (lambda: index.places(keys(1)), lambda: index.add("a", keys(1), b""), lambda: index.content("a")):
        with pytest.raises(OSError, match="of which TMPDIR decides: Cannot operate on a closed database"):
            call()


@pytest.mark.long
def test_a_million_keys_take_tens_of_megabytes() -> None:
    program = (
        "import hashlib; from pathlib import Path; from pipelines.folders.score_store.key_index import KeyIndex\n"
        "peak = lambda: int(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
        "before, index = peak(), KeyIndex()\n"
        "for segment in range(250):\n"
        "    some = [hashlib.sha256(b'%d %d' % (segment, row)).digest() for row in range(4096)]\n"
        "    index.add(str(segment), some, bytes(100_000))\n"
        "assert len(index) == 250 * 4096\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert 0 < int(done.stdout) < 40_000, "kilobytes: the page cache of 16 MB, and what a segment takes while it is added"
