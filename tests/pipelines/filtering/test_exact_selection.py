"""Selection in passes, against the same by sorting everything."""

import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.filtering.exact_selection import (
    GROUP,
    TIE,
    VALUE,
    Boundary,
    Count,
    Gather,
    KeyRange,
    Quantile,
    Search,
    StepResult,
    Ties,
    Top,
    TopFraction,
    Values,
    Words,
    global_best,
    local_best,
    partition,
)
from tests.support.examples import examples

Target = Top | TopFraction | Quantile
Chunk = tuple[Values, Words]

ODD = [0.0, -0.0, 5e-324, -5e-324, 2.3e-308, 1e-300, 1e300, -1e300, 1.7976931348623157e308, -1.7976931348623157e308]
INFINITE = [math.inf, -math.inf]
GRADES = [1.0, 2.0, 3.0, 4.0, 5.0]

finite = st.sampled_from(ODD + GRADES) | st.floats(allow_nan=False, allow_infinity=False) | st.floats(-3, 3)
value = finite | st.sampled_from(INFINITE)
fractions = st.integers(1, 1000).map(lambda thousandths: thousandths / 1000)


def chunk(values: Sequence[float] | Values, ties: Sequence[int] | Words | None = None, seed: int = 7) -> Chunk:
    """Random ties unless they are given."""
    if ties is None:
        ties = np.random.default_rng(seed).integers(2**64, size=len(values), dtype=np.uint64)
    return np.asarray(values, np.float64), np.asarray(ties, np.uint64)


def split(whole: Chunk, chunks: int) -> list[Chunk]:
    return [(whole[0][own::chunks], whole[1][own::chunks]) for own in range(chunks)]


class Run:
    """A search over chunks, driven as a filter drives one: through pickles, merged by worker and then in all."""

    def __init__(self, target: Target, chunks: Sequence[Chunk], limit: int = 2**22) -> None:
        self.steps: list[Count | Gather] = []
        self.largest = 0
        search = Search(target, limit)
        while (step := search.step) is not None:
            self.steps.append(step)
            worker: Count | Gather = pickle.loads(pickle.dumps(step))
            results = [worker.merge(self._done(worker, own)) for own in (chunks[:2], chunks[2:])]
            search = pickle.loads(pickle.dumps(search)).next(step.merge(reversed(results)))
        self.boundary = search.boundary

    def _done(self, step: Count | Gather, chunks: Iterable[Chunk]) -> Iterable[StepResult]:
        for values, ties in chunks:
            found = step(values, ties)
            self.largest = max(self.largest, found.shape[1])
            yield found

    @property
    def found(self) -> Boundary:
        assert self.boundary is not None
        return self.boundary


def best(whole: Chunk, rank: int) -> Any:
    """Which responses are the `rank` best, by sorting."""
    order = np.lexsort((whole[1], whole[0]))  # numpy's order has -0.0 equal to 0.0, as ours
    mask = np.zeros(order.size, bool)
    mask[order[order.size - rank :]] = True
    return mask


def check_top(target: Top | TopFraction, whole: Chunk, rank: int, chunks: int = 3, limit: int = 2**22) -> Run:
    run = Run(target, split(whole, chunks), limit)
    mask, found = run.found.mask(*whole), run.found
    assert np.array_equal(mask, best(whole, rank))
    equal = whole[0] == found.value
    assert found.value == np.sort(whole[0])[-rank]
    assert found.tie == (0 if mask[equal].all() else whole[1][mask & equal].min())
    assert (found.total, found.kept) == (len(whole[0]), rank)
    assert found.ties == Ties(int(equal.sum()), int((mask & equal).sum()))
    return run


@given(st.lists(value, min_size=1, max_size=60), st.integers(1, 70), st.integers(1, 5), st.sampled_from([0, 1, 3, 2**22]))
@example([1.0], 1, 5, 0)
@example([-0.0, 0.0, -0.0, 0.0], 2, 2, 0)
@example([math.inf, 1e308, -math.inf, math.inf], 1, 2, 2**22)
def test_the_best_k_are_those_of_a_sort(values: list[float], k: int, chunks: int, limit: int) -> None:
    check_top(Top(k), chunk(values), min(k, len(values)), chunks, limit)


@given(st.lists(value, min_size=1, max_size=60), fractions, st.sampled_from([0, 5]))
def test_the_best_fraction_is_rounded_down_but_never_to_none(values: list[float], fraction: float, limit: int) -> None:
    rank = max(1, round(fraction * 1000) * len(values) // 1000)
    check_top(TopFraction(fraction), chunk(values), rank, limit=limit)


@pytest.mark.parametrize(("fraction", "total", "rank"), [(0.29, 100, 29), (1e-05, 300000, 3), (0.1, 5, 1), (1, 7, 7)])
def test_a_fraction_is_the_one_written(fraction: float, total: int, rank: int) -> None:
    assert TopFraction(fraction).rank(total) == rank


@pytest.mark.parametrize("limit", [0, 2**22])
@pytest.mark.parametrize("k", [1, 2, 500, 999, 1000])
@pytest.mark.parametrize(
    "values",
    [
        np.full(1000, 3.5),
        np.random.default_rng(1).integers(1, 6, 1000).astype(np.float64),
        np.random.default_rng(2).standard_normal(1000),
        np.arange(1, 1001) * 5e-324,
        np.nextafter(1, 2) - np.arange(1000) * 2**-53,
        np.random.default_rng(3).standard_normal(1000) * 10.0 ** np.random.default_rng(3).integers(-300, 300, 1000),
    ],
    ids=["equal", "grades", "normal", "denormal", "next to 1", "all magnitudes"],
)
def test_all_kinds_of_values(values: Values, k: int, limit: int) -> None:
    check_top(Top(k), chunk(values), k, limit=limit)


def test_values_and_ties_that_differ_in_their_last_bits_take_every_level() -> None:
    """Two far away hold each range open, so nothing but the last of three passes tells neighbours apart."""
    near = [1 + own * 2**-52 for own in range(4)]
    wide = [1 + 2**-20, 1 + 2**-40, *near, -1.0, 4.0]
    low = [5, 5 + 2**41, 5 + 2**19, 6, 7, 8, 2**63]
    values = np.concatenate([wide, np.full(len(low), near[2])])
    whole = chunk(values, [100 + own for own in range(len(wide))] + low)
    run = check_top(Top(8), whole, 8, limit=0)
    assert [type(step) for step in run.steps] == [Count] * 6
    assert [step.keys.value for step in run.steps] == [None] * 3 + [near[2]] * 3
    for rank in range(1, len(values) + 1):
        check_top(Top(rank), whole, rank, limit=0)


def test_the_number_of_passes_does_not_change_what_is_found() -> None:
    random = np.random.default_rng(5)
    whole = chunk(random.integers(1, 6, 4000).astype(np.float64), random.permutation(4000).tolist())
    runs = [check_top(Top(1500), whole, 1500, chunks, limit) for chunks in (1, 4) for limit in (0, 10, 200, 2**22)]
    assert len({run.found for run in runs}) == 1
    assert {len(run.steps) for run in runs} == {2, 3}


def test_one_value_is_kept_or_not_by_its_hash() -> None:
    found = check_top(Top(3), chunk([2, 2, 9, 2, 1], [40, 30, 0, 20, 99]), 3).found
    assert found == Boundary(2.0, 30, 5, 3, Ties(3, 2))


def test_responses_with_the_same_key_stay_together_and_are_counted() -> None:
    whole = chunk([1.0, 1.0, 1.0, 2.0, 0.5], [5, 5, 4, 1, 1])
    for limit in (0, 2**22):
        found = Run(Top(2), split(whole, 2), limit).found
        assert found == Boundary(1.0, 5, 5, 3, Ties(3, 2))
        assert found.mask(*whole).sum() == 3


def test_nan_is_not_kept_by_a_mask() -> None:
    assert Boundary(1.0, 0, 1, 1, None).mask(*chunk([math.nan, 1.0])).tolist() == [False, True]


@pytest.mark.parametrize("target", [Top(3), TopFraction(0.5), Quantile(0.5)])
@pytest.mark.parametrize("chunks", [[], [chunk([])], [chunk([])] * 4])
def test_of_nothing_nothing_is_found(target: Target, chunks: list[Chunk]) -> None:
    run = Run(target, chunks)
    assert run.boundary is None
    assert len(run.steps) == 1


def test_empty_chunks_do_no_harm() -> None:
    found = Run(Top(2), [chunk([]), chunk([3, 1, 2], [1, 2, 3]), chunk([]), chunk([5], [4])]).found
    assert found == Boundary(3.0, 0, 4, 2, Ties(1, 1))


def neighbours(values: list[float], q: float) -> tuple[float, float, float]:
    position = (len(values) - 1) * q
    ordered, index = sorted(values), min(math.floor(position), len(values) - 1)
    return ordered[index], ordered[min(index + 1, len(values) - 1)], position % 1


@given(st.lists(finite, min_size=1, max_size=60), st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
@example([-0.0, 5e-324], 0.5)
def test_a_quantile_is_numpys(values: list[float], q: float) -> None:
    lower, upper, _ = neighbours(values, q)
    whole = chunk(values)
    for limit in (0, 2**22):
        found = Run(Quantile(q), split(whole, 3), limit).found
        if math.isfinite(upper - lower):
            assert found.value == np.quantile(whole[0], q)
        mask = found.mask(*whole)
        assert np.array_equal(mask, whole[0] >= found.value)
        assert (found.total, found.kept, found.ties, found.tie) == (len(values), mask.sum(), None, 0)


@given(st.lists(st.sampled_from([math.inf, -math.inf, 1.7e308, -1.7e308, 0.5]), min_size=1, max_size=12), fractions)
def test_a_quantile_where_numpy_gives_nan_is_a_neighbour(values: list[float], q: float) -> None:
    lower, upper, weight = neighbours(values, q)
    found = Run(Quantile(q), [chunk(values)]).found
    if not math.isfinite(upper - lower):
        assert found.value == (upper if weight else lower)
    assert lower <= found.value <= upper
    assert found.kept == sum(own >= found.value for own in values)


def test_the_quantile_1_of_very_many_is_the_greatest() -> None:
    assert Quantile(1).rank(2**53 + 4) == 1


def million(kind: str) -> Values:
    random = np.random.default_rng(11)
    kinds: dict[str, Callable[[], Any]] = {
        "grades": lambda: random.integers(1, 6, 1_000_000),
        "half precision": lambda: random.standard_normal(1_000_000).astype(np.float16),
        "single precision": lambda: random.standard_normal(1_000_000).astype(np.float32),
        "double precision": lambda: random.standard_normal(1_000_000),
    }
    return np.asarray(kinds[kind](), np.float64)


KINDS = ["grades", "half precision", "single precision", "double precision"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_million_take_two_passes(kind: str) -> None:
    whole = chunk(million(kind))
    run = check_top(TopFraction(0.137), whole, 137_000, chunks=8, limit=250_000)
    assert [type(step) for step in run.steps] == [Count, Gather]
    assert run.found.value == np.partition(whole[0], -137_000)[-137_000]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [0.001, 0.5, 0.9, 0.99999])
def test_the_quantile_of_a_million_is_numpys(kind: str, q: float) -> None:
    whole = chunk(million(kind))
    run = Run(Quantile(q), split(whole, 8), 10_000)
    assert run.found.value == np.quantile(whole[0], q)
    assert run.found.kept == (whole[0] >= np.quantile(whole[0], q)).sum()
    # One is enough where a bin of the first has a single value: always with these of 10 bits of mantissa or fewer.
    assert len(run.steps) <= (1 if kind in {"grades", "half precision"} else 2)


def test_what_a_step_returns_does_not_grow_with_the_chunk() -> None:
    """A normal distribution has about 2,000 values to a factor of two (both signs), and few beyond some of these."""
    small, large = (np.random.default_rng(13).standard_normal(count) for count in (100_000, 1_000_000))
    assert [Count()(*chunk(own)).shape[1] < 30_000 for own in (small, large)] == [True, True]
    assert Count()(*chunk(np.tile(GRADES, 200_000))).shape == (3, 5)
    whole = chunk(large)
    run = Run(Top(1000), split(whole, 4), 1000)
    assert isinstance(run.steps[-1], Gather)
    assert run.steps[-1](*whole).shape[1] <= 1000


def test_counts_add_up_however_they_are_merged() -> None:
    whole = chunk(np.random.default_rng(17).standard_normal(200_000))
    step = Count()
    every = step(*whole)
    assert np.array_equal(step.merge(step(*own) for own in split(whole, 9)), every)
    assert np.array_equal(step.merge([step.merge(step(*own) for own in split(whole, 3)), step.merge([])]), every)


def test_counts_of_billions_are_exact() -> None:
    """Counts beyond 2**53, which a float64 would round, as if each response had come 2**60 + 1 times."""
    times = np.array([[1], [1], [2**60 + 1]], np.uint64)
    values, ties = chunk([1.0, 2.0, 3.0])
    for count, found in [(2**60 + 1, 3.0), (2**61 + 2, 2.0), (2**62, 1.0)]:
        boundary = Search(Top(count)).next(Count()(values, ties) * times).boundary
        kept = min(count, 3 * (2**60 + 1))
        assert boundary == Boundary(found, 0, 3 * (2**60 + 1), kept, Ties(2**60 + 1, 2**60 + 1))
    search = Search(Top(2**60 + 2)).next(Count()(values, ties) * times)
    assert search.step == Count(KeyRange(value=2.0))


def test_chunks_that_change_between_passes_are_noticed() -> None:
    step = (search := Search(Top(2))).step
    assert step is not None
    search = search.next(step(*chunk([1.0, 1.0, 1.0])))
    assert search.step is not None
    with pytest.raises(ValueError, match="found 2 responses where the one before counted 3"):
        search.next(search.step(*chunk([1.0, 1.0])))


def test_a_search_that_is_over_does_not_go_on() -> None:
    search = Search(Top(1)).next(Count()(*chunk([1.0])))
    assert search.step is None
    with pytest.raises(ValueError, match="over"):
        search.next(Count()(*chunk([1.0])))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Top(0),
        lambda: TopFraction(0),
        lambda: TopFraction(1.01),
        lambda: TopFraction(math.nan),
        lambda: Quantile(-0.1),
        lambda: Quantile(math.nan),
    ],
)
def test_targets_out_of_range_are_refused(make: Callable[[], Target]) -> None:
    with pytest.raises(ValueError, match="must be"):
        make()


Row = tuple[tuple[int, int], float, int]


def candidates(rows: Sequence[Row]) -> pa.Table:
    """Each with its position, which travels along."""
    return pa.table(
        {
            GROUP[0]: pa.array([group[0] for group, _, _ in rows], pa.uint64()),
            GROUP[1]: pa.array([group[1] for group, _, _ in rows], pa.uint64()),
            VALUE: pa.array([own for _, own, _ in rows], pa.float64()),
            TIE: pa.array([tie for _, _, tie in rows], pa.uint64()),
            "position": pa.array(range(len(rows)), pa.int64()),
        }
    )


def positions(table: pa.Table) -> list[int]:
    return table.column("position").to_pylist()


def brute_force(rows: Sequence[Row], k: int, min_gap: float | None) -> tuple[list[int], list[int]]:
    kept: list[int] = []
    close: list[int] = []
    for group in sorted({own[0] for own in rows}):
        own = [index for index, row in enumerate(rows) if row[0] == group]
        own.sort(key=lambda index: (rows[index][1], rows[index][2]), reverse=True)
        values = [rows[index][1] for index in own[:2]]
        gap = math.nan if len(own) == 1 else 0.0 if values[0] == values[1] else values[0] - values[1]
        (kept if min_gap is None or gap >= min_gap else close).extend(own[:k])
    return kept, close


groups = st.tuples(st.integers(0, 3) | st.just(2**64 - 1), st.integers(0, 1) | st.just(2**63))
rows_of_groups = st.lists(st.tuples(groups, value), max_size=40).flatmap(
    lambda rows: st.permutations(range(len(rows))).map(
        lambda ties: [(group, own, tie * 2**58) for (group, own), tie in zip(rows, ties, strict=True)]
    )
)


@examples(200)
@given(
    rows_of_groups,
    st.integers(1, 4),
    st.none() | st.sampled_from([0.0, 0.5, 1.0, 1e300]),
    st.integers(1, 4),
    st.lists(st.integers(0, 40), max_size=3).map(sorted),
)
def test_the_best_of_each_group_are_those_of_a_sort(
    rows: list[Row], k: int, min_gap: float | None, parts: int, cuts: list[int]
) -> None:
    """However the rows are cut into chunks, and the candidates into parts."""
    whole = candidates(rows)
    chunks = [whole.slice(start, end - start) for start, end in pairwise([0, *cuts, max([40, *cuts])])]
    shuffled = [partition(local_best(own, k, min_gap), parts) for own in chunks]
    winners = [global_best(pa.concat_tables(own), k, min_gap) for own in zip(*shuffled, strict=True)]
    kept, close = brute_force(rows, k, min_gap)
    assert sorted(position for own in winners for position in positions(own.kept)) == sorted(kept)
    assert sorted(position for own in winners for position in positions(own.close)) == sorted(close)


def test_rows_come_out_by_group_the_best_first() -> None:
    rows: list[Row] = [((2, 0), 1.0, 1), ((1, 5), 3.0, 2), ((1, 5), 4.0, 3), ((2, 0), 1.0, 9), ((1, 4), 0.0, 4)]
    assert positions(global_best(candidates(rows), 2).kept) == [4, 2, 1, 3, 0]


def test_a_gap_is_between_the_two_best_of_all_chunks() -> None:
    rows: list[Row] = [((1, 1), 5.0, 1), ((1, 1), 1.0, 2), ((1, 1), 4.8, 3), ((2, 2), 3.0, 4)]
    local = [local_best(candidates(rows).slice(start, 2), 1, 0.5) for start in (0, 2)]
    assert [own.num_rows for own in local] == [2, 2]
    winners = global_best(pa.concat_tables(local), 1, 0.5)
    assert (positions(winners.kept), positions(winners.close)) == ([], [0, 3])
    winners = global_best(pa.concat_tables(local), 1, 0.1)
    assert (positions(winners.kept), positions(winners.close)) == ([0], [3])


def test_a_chunk_leaves_no_more_than_k_candidates_of_a_group() -> None:
    rows: list[Row] = [((own % 10, 0), float(own % 7), own) for own in range(10_000)]
    assert local_best(candidates(rows), 3).num_rows == 30
    assert local_best(candidates(rows), 1, 0.0).num_rows == 20


def test_a_partition_keeps_groups_whole_and_rows_in_order() -> None:
    random = np.random.default_rng(19)
    rows: list[Row] = [((int(own) * 2**57 + 3 * int(own), 1), 0.0, 0) for own in random.integers(0, 100, 1000)]
    parts = partition(candidates(rows), 8)
    assert sorted(position for own in parts for position in positions(own)) == list(range(1000))
    found = [set(own.column(GROUP[0]).to_pylist()) for own in parts]
    assert sum(map(len, found)) == len(set.union(*found)) == len({row[0] for row in rows})
    assert all(positions(own) == sorted(positions(own)) for own in parts)
    assert sum(len(pickle.dumps(own)) for own in parts) < 2 * len(pickle.dumps(candidates(rows)))
