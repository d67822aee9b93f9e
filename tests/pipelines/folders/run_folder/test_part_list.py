"""A packed list of parts reads as the list of those parts."""

import pickle
import random
import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.corpus.corpus_files import Range
from pipelines.data.storage import Entry
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.part_list import PartList

RUN, OTHER_RUN = "0a1b2c3d4e5f6071", "0a1b2c3d00000000"
SMALL, LARGE = st.integers(0, 3), st.integers(0, 10**18 - 1)
NUMBER = SMALL | LARGE
PARTS = st.builds(
    lambda file, further, start, end, counts, run: Part(file, Range(start, end), Counts(*counts), run, further),
    SMALL,
    SMALL,
    NUMBER,
    NUMBER,
    st.tuples(NUMBER, NUMBER, NUMBER, NUMBER),
    st.sampled_from([RUN, OTHER_RUN]),
)


def entry(part: Part, size: int = 100, written: float = 0.5) -> Entry:
    return Entry(part.name, size, written)


@given(st.lists(st.tuples(PARTS, LARGE, st.floats(0, 2e9))), st.sampled_from([RUN, OTHER_RUN]))
def test_it_reads_as_the_sorted_list(listed: list[tuple[Part, int, float]], run: str) -> None:
    files = [Entry("note.txt", 1, 1.0), *(entry(part, size, written) for part, size, written in listed)]
    expected = sorted((part, entry(part, size, written)) for part, size, written in listed if part.run == run)
    parts = PartList.of(run, files)
    assert len(parts) == len(parts.entries) == len(expected)
    assert list(parts) == [part for part, _ in expected]
    # Entries of equal parts, which no folder has, come in any order.
    assert sorted(parts.entries) == expected
    assert [parts[index] for index in range(len(parts))] == list(parts)
    assert [parts.entries[index] for index in range(len(parts))] == list(parts.entries)
    assert parts[1:3] == list(parts)[1:3]
    assert parts.entries[1:3] == list(parts.entries)[1:3]
    assert pickle.loads(pickle.dumps(parts)) == parts
    assert parts.failed.tolist() == [part.counts.failed for part in parts]


def test_some_are_chosen() -> None:
    parts_of_run = [Part(0, Range(index, index + 1), Counts(1, 1 - index % 2, 0, index % 2), RUN) for index in range(10)]
    parts = PartList.of(RUN, map(entry, parts_of_run))
    assert parts.where(parts.failed > 0) == parts_of_run[1::2]
    assert parts.where(np.zeros(10, bool)) == []
    assert parts != parts_of_run[1:]


def test_a_part_takes_a_hundred_bytes() -> None:
    luck, count = random.Random(1), 20_000
    names = (
        Part(
            luck.randrange(10**5),
            Range(index * 10**6, index * 10**6 + luck.randrange(10**6)),
            Counts(4096, 4000, 90, 6),
            RUN,
        )
        for index in range(count)
    )
    tracemalloc.start()
    try:
        parts = PartList.of(RUN, (entry(part, luck.randrange(10**7), luck.random()) for part in names))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(parts) == len(set(parts)) == count
    assert [part for part, _ in parts.entries] == parts
    assert held < 100 * count
    assert peak < 300 * count
