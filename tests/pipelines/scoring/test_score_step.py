"""How a block becomes parts."""

import itertools
import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest

from pipelines.corpus.readers import END, FILE, PREPARED, START
from pipelines.prepare.score_requests import prepared_rows
from pipelines.scoring.score_step import stretches


def block(ranges: Sequence[tuple[int, int, int]]) -> pa.Table:
    """Rows without responses: file, start and end of each."""
    files, starts, ends = zip(*ranges, strict=True) if ranges else ((), (), ())
    nothing = [pickle.dumps(None)] * len(ranges)
    types = (pa.int64(), pa.int64(), pa.int64(), pa.large_binary())
    columns = [pa.array(values, type) for values, type in zip((files, starts, ends, nothing), types, strict=True)]
    return pa.table(columns, [FILE, START, END, PREPARED])


def neighbours(count: int, file: int = 0, start: int = 0) -> list[tuple[int, int, int]]:
    return [(file, at, at + 1) for at in range(start, start + count)]


def cut(ranges: Sequence[tuple[int, int, int]], most_rows: int) -> list[tuple[int, int, int]]:
    """File, start and end of each stretch."""
    table = block(ranges)
    found = list(stretches(table, most_rows, prepared_rows(table)))
    assert all(len(one.table) == len(one.rows) == one.range.end - one.range.start for one in found)
    return [(one.file, one.range.start, one.range.end) for one in found]


def test_rows_that_arent_neighbours_are_parts_of_their_own() -> None:
    rows = [*neighbours(2), *neighbours(1, start=5), *neighbours(2, file=1, start=6)]
    assert cut(rows, 10) == [(0, 0, 2), (0, 5, 6), (1, 6, 8)]


@pytest.mark.parametrize("count", [1, 9, 10, 11, 19, 20, 21, 105])
def test_a_long_stretch_is_cut_into_equal_pieces(count: int) -> None:
    found = cut(neighbours(count), 10)
    assert [(start, end) for _, start, end in found] == list(itertools.pairwise([0, *(end for *_, end in found)]))
    sizes = [end - start for _, start, end in found]
    assert sum(sizes) == count
    assert max(sizes) <= 10
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-count // 10)


def test_files_share_a_stretch_only_where_nothing_lies_between() -> None:
    rows = [*neighbours(2, file=3), *neighbours(3, file=4), *neighbours(1, file=6), *neighbours(2, file=9)]

    def places(extents: dict[int, int]) -> list[tuple[int, int, int, int]]:
        table = block(rows)
        cut_stretches = stretches(table, 10, prepared_rows(table), extents)
        return [(stretch.file, stretch.range.start, stretch.further, stretch.range.end) for stretch in cut_stretches]

    alone = [(3, 0, 0, 2), (4, 0, 0, 3), (6, 0, 0, 1), (9, 0, 0, 2)]
    assert places({}) == alone
    assert places({3: 2, 4: 3, 5: 0, 6: 1}) == [(3, 0, 3, 1), (9, 0, 0, 2)]  # the fifth is empty; what is of 7 isn't known
    assert places({3: 2, 4: 3, 5: 7, 6: 1}) == [(3, 0, 1, 3), *alone[2:]]  # the fifth has rows elsewhere
    assert places({3: 5, 4: 3, 5: 0, 6: 1}) == [alone[0], (4, 0, 2, 1), alone[3]]  # the third goes on
    assert places({3: 2, 5: 0, 6: 1}) == alone  # the fourth's end isn't known


def test_a_stretch_of_several_files_is_cut_within_them() -> None:
    table = block([*neighbours(3, file=0), *neighbours(3, file=1), *neighbours(2, file=2)])
    found = list(stretches(table, 4, prepared_rows(table), {0: 3, 1: 3, 2: 2}))
    assert [(one.file, one.range.start, one.further, one.range.end) for one in found] == [(0, 0, 1, 1), (1, 1, 1, 2)]
    assert found[1].row_names({1: "b", 2: "c"}) == ["b:1", "b:2", "c:0", "c:1"]
