"""How a block becomes parts."""

import itertools
import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest

from pipelines.data.corpus.readers import END, FILE, PREPARED, START
from pipelines.run.prepare.score_requests import prepared_rows
from pipelines.run.scoring import score_step
from pipelines.run.scoring.score_step import repeat_rows, stretches


def block(ranges: Sequence[tuple[int, int, int]]) -> pa.Table:
    """Rows without responses: file, start and end of each."""
    files, starts, ends = zip(*ranges, strict=True) if ranges else ((), (), ())
    nothing = [pickle.dumps(None)] * len(ranges)
    types = (pa.int64(), pa.int64(), pa.int64(), pa.large_binary())
    columns = [pa.array(values, type) for values, type in zip((files, starts, ends, nothing), types, strict=True)]
    return pa.table(columns, [FILE, START, END, PREPARED])


def neighbours(count: int, file: int = 0, start: int = 0) -> list[tuple[int, int, int]]:
    return [(file, index, index + 1) for index in range(start, start + count)]


def cut(ranges: Sequence[tuple[int, int, int]], most_rows: int) -> list[tuple[int, int, int]]:
    """File, start and end of each stretch."""
    table = block(ranges)
    actual_stretches = list(stretches(table, most_rows, prepared_rows(table), responses=()))
    assert all(
        len(actual_stretch.table) == len(actual_stretch.rows) == actual_stretch.range.end - actual_stretch.range.start
        for actual_stretch in actual_stretches
    )
    return [
        (actual_stretch.file, actual_stretch.range.start, actual_stretch.range.end) for actual_stretch in actual_stretches
    ]


def test_rows_that_arent_neighbours_are_parts_of_their_own() -> None:
    rows = [*neighbours(2), *neighbours(1, start=5), *neighbours(2, file=1, start=6)]
    assert cut(rows, 10) == [(0, 0, 2), (0, 5, 6), (1, 6, 8)]


def test_a_long_stretch_is_cut_into_equal_pieces() -> None:
    for count in (1, 9, 10, 11, 19, 20, 21, 105):
        result = cut(neighbours(count), 10)
        assert [(start, end) for _, start, end in result] == list(itertools.pairwise([0, *(end for *_, end in result)]))
        sizes = [end - start for _, start, end in result]
        assert sum(sizes) == count
        assert max(sizes) <= 10
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) == -(-count // 10)


def test_files_share_a_stretch_only_where_nothing_lies_between() -> None:
    rows = [*neighbours(2, file=3), *neighbours(3, file=4), *neighbours(1, file=6), *neighbours(2, file=9)]

    def places(extents: dict[int, int]) -> list[tuple[int, int, int, int]]:
        table, by_file = block(rows), pa.array([extents.get(file) for file in range(10)], pa.int64())
        cut_stretches = stretches(table, 10, prepared_rows(table), by_file, responses=())
        return [(stretch.file, stretch.range.start, stretch.further, stretch.range.end) for stretch in cut_stretches]

    alone = [(3, 0, 0, 2), (4, 0, 0, 3), (6, 0, 0, 1), (9, 0, 0, 2)]
    assert places({}) == alone
    assert places({3: 2, 4: 3, 5: 0, 6: 1}) == [(3, 0, 3, 1), (9, 0, 0, 2)]  # the fifth is empty; what is of 7 isn't known
    assert places({3: 2, 4: 3, 5: 7, 6: 1}) == [(3, 0, 1, 3), *alone[2:]]  # the fifth has rows elsewhere
    assert places({3: 5, 4: 3, 5: 0, 6: 1}) == [alone[0], (4, 0, 2, 1), alone[3]]  # the third goes on
    assert places({3: 2, 5: 0, 6: 1}) == alone  # the fourth's end isn't known


def test_a_stretch_of_several_files_is_cut_within_them() -> None:
    table = block([*neighbours(3, file=0), *neighbours(3, file=1), *neighbours(2, file=2)])
    actual_stretches = list(stretches(table, 4, prepared_rows(table), pa.array([3, 3, 2]), responses=()))
    assert [
        (actual_stretch.file, actual_stretch.range.start, actual_stretch.further, actual_stretch.range.end)
        for actual_stretch in actual_stretches
    ] == [(0, 0, 1, 1), (1, 1, 1, 2)]
    assert actual_stretches[1].row_names(pa.array(["a", "b", "c"])) == ["b:1", "b:2", "c:0", "c:1"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_a_stretch_is_cut_where_its_rows_would_take_too_much_once_they_are_repeated(
    kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with best of 256: a few small rows were gigabytes."""
    monkeypatch.setattr(score_step, "_MOST_REPEATED_BYTES", 100_000)
    sizes = [100] * 20 + [10_000] + [100] * 20 + [2000] * 8
    responses = [100] * 20 + [256] + [1] * 20 + [10] * 8
    carried = pa.array(["x" * size for size in sizes], pa.string()).cast(kind)
    table = block(neighbours(len(sizes))).append_column("carried", carried)
    actual_stretches = list(stretches(table, 1000, prepared_rows(table), responses=responses))
    edges = [(actual_stretch.range.start, actual_stretch.range.end) for actual_stretch in actual_stretches]
    assert [0, *(end for _, end in edges)] == [*(start for start, _ in edges), len(sizes)], "they touch"
    for start, end in edges:
        repeated = sum(size * count for size, count in zip(sizes[start:end], responses[start:end], strict=True))
        assert repeated <= 100_000 or end - start == 1
    assert (20, 21) in edges
    assert len(edges) < 16, "and it is cut nowhere else"
    assert len(list(stretches(table, 1000, prepared_rows(table), responses=()))) == 1


def test_a_row_whose_copies_are_more_than_a_column_of_strings_holds_is_repeated() -> None:
    texts = [str(number) * 100_000 for number in range(100, 164)]  # 19 MB in all
    carried = pa.schema([("prompt", pa.string()), ("responses", pa.list_(pa.string()))])
    table = pa.table([["p", "q"], [["r"], texts]], carried)
    repeated = repeat_rows(table, [2, 128])
    assert repeated.schema == carried
    assert repeated.nbytes > 2**31
    assert repeated.column("prompt").to_pylist() == ["p"] * 2 + ["q"] * 128
    assert repeated.column("responses")[1].as_py() == ["r"]
    assert repeated.column("responses")[129].as_py() == texts


def test_nothing_repeated_is_an_empty_table() -> None:
    table = pa.table({"prompt": ["p", "q"]})
    assert repeat_rows(table, [0, 0]).equals(table.slice(0, 0))
