"""Totals from random blocks: right on the average, and within their bounds as often as they say."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from pipelines.estimate.intervals import Estimate, Stratum, Values, having_bounds, t_quantile, totals

AMOUNTS, COUNTS = ("tokens", "responses"), {"rejected": "responses"}
ROWS, BLOCK_ROWS, BLOCKS, SAMPLES = 20_000, 8, 250, 300
"""The default: some 2,000 rows in blocks of about eight."""

Random = np.random.Generator


def lognormal(random: Random) -> Values:
    return random.lognormal(6, 1, ROWS)


def pareto(random: Random) -> Values:
    """Without a finite variance to speak of."""
    return np.asarray(300 * (1 + random.pareto(1.8, ROWS)))


def by_length(random: Random) -> Values:
    return np.sort(lognormal(random))


def longest_first(random: Random) -> Values:
    return np.sort(pareto(random))[::-1]


def unlike_files(random: Random) -> Values:
    """Ten, the last with rows fifty times as long as the first."""
    return np.concatenate([random.lognormal(mean, 0.5, ROWS // 10) for mean in np.linspace(4, 8, 10)])


def blocks_of_bytes(lengths: Values, most: float) -> Values:
    """As JSONL is cut: a block has the rows that start in it, or none."""
    size = int(lengths.mean() * BLOCK_ROWS)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    blocks = np.zeros((int(np.ceil(lengths.sum() / size)), 3))
    np.add.at(blocks, (starts // size).astype(int), numbers(lengths, most))
    return blocks


def blocks_of_rows(lengths: Values, most: float) -> Values:
    """As Parquet is cut."""
    return np.asarray(numbers(lengths, most).reshape(-1, BLOCK_ROWS, 3).sum(axis=1))


def numbers(lengths: Values, most: float) -> Values:
    """Of each row its tokens, which are a quarter of its bytes unless it is too long; itself; and whether it is."""
    taken = lengths <= most
    return np.stack([np.where(taken, lengths / 4, 0), np.ones(len(lengths)), ~taken], axis=1)


def drawn(blocks: Values, random: Random, count: int = BLOCKS, each: int = 25) -> list[Stratum]:
    """Strata of neighbours."""
    edges = [len(blocks) * at // (count // each) for at in range(count // each + 1)]
    return [Stratum(b - a, blocks[a + random.choice(b - a, each, replace=False)]) for a, b in itertools.pairwise(edges)]


def coverage(blocks: Values, samples: int = SAMPLES) -> dict[str, float]:
    """How often the truth is within."""
    truth = dict(zip((*AMOUNTS, *COUNTS), blocks.sum(axis=0), strict=True))
    random = np.random.default_rng(7)
    found = [totals(drawn(blocks, random), AMOUNTS, COUNTS) for _ in range(samples)]
    return {name: float(np.mean([one[name].holds(fact) for one in found])) for name, fact in truth.items()}


@pytest.mark.parametrize("cut", [blocks_of_bytes, blocks_of_rows])
@pytest.mark.parametrize(
    "rejected", [pytest.param(0.001, marks=pytest.mark.long), 0.01, pytest.param(0.1, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("population", [lognormal, pareto, by_length, longest_first, unlike_files])
def test_the_bounds_hold_the_truth_as_often_as_they_say(
    population: Callable[[Random], Values], rejected: float, cut: Callable[[Values, float], Values]
) -> None:
    lengths = population(np.random.default_rng(1))
    found = coverage(cut(lengths, float(np.quantile(lengths, 1 - rejected))))
    assert found["tokens"] >= 0.92, found
    assert found["rejected"] >= 0.95, found
    # How many rows there are, where only bytes are known and the shortest lie together, is the hardest.
    assert found["responses"] >= 0.90, found


def test_the_estimate_is_unbiased() -> None:
    lengths = longest_first(np.random.default_rng(1))
    blocks = blocks_of_bytes(lengths, float(np.quantile(lengths, 0.99)))
    random = np.random.default_rng(3)
    found = [totals(drawn(blocks, random), AMOUNTS, COUNTS) for _ in range(SAMPLES)]
    for at, name in enumerate((*AMOUNTS, *COUNTS)):
        values = np.array([one[name].value for one in found])
        error = values.std() / np.sqrt(SAMPLES)
        assert values.mean() == pytest.approx(blocks.sum(axis=0)[at], abs=3.5 * error), name


@pytest.mark.parametrize("together", [1, 8, 40, 400])
def test_bad_rows_that_lie_together_are_within_the_bounds(together: int) -> None:
    """As a broken file, or a stretch of one: of 2,500 blocks, some have nothing else."""
    rng = np.random.default_rng(5)
    covered = []
    for _ in range(SAMPLES):
        blocks = np.tile([800.0, 8.0, 0.0], (2500, 1))
        first = int(rng.integers(0, 2500 - together))
        blocks[first : first + together] = [0.0, 8.0, 8.0]
        covered.append(totals(drawn(blocks, rng), AMOUNTS, COUNTS)["rejected"].holds(8 * together))
    assert np.mean(covered) >= 0.92, np.mean(covered)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.98])
def test_none_seen_is_not_none_there(share: float) -> None:
    """Blocks that are wholly bad may have been missed, unless nearly all were drawn."""
    rng = np.random.default_rng(6)
    drawn_blocks = round(200 * share)
    for bad in (1, 2, 4, 10):
        covered = []
        for _ in range(SAMPLES):
            blocks = np.tile([800.0, 8.0, 0.0], (200, 1))
            blocks[rng.choice(200, bad, replace=False), 2] = 8.0
            stratum = Stratum(200, blocks[rng.choice(200, drawn_blocks, replace=False)])
            covered.append(totals([stratum], AMOUNTS, COUNTS)["rejected"].holds(8 * bad))
        assert np.mean(covered) >= 0.92, (bad, np.mean(covered))


def test_none_seen_has_an_upper_bound_that_shrinks_with_the_sample() -> None:
    def upper(blocks: int) -> float:
        strata = [Stratum(100_000, np.tile([800.0, 8.0, 0.0], (blocks, 1)))]
        found = totals(strata, AMOUNTS, COUNTS)
        assert found["rejected"].value == found["rejected"].low == 0
        return found["rejected"].high / found["responses"].value

    assert upper(250) == pytest.approx(0.0154, abs=0.001)  # four blocks' share, as the rule of three has 3.7
    assert upper(1000) == pytest.approx(0.0039, abs=0.0003)


def test_everything_is_exact() -> None:
    blocks = np.floor(blocks_of_rows(pareto(np.random.default_rng(1)), 900.0))
    found = totals([Stratum(len(blocks), blocks)], AMOUNTS, COUNTS)
    for at, name in enumerate((*AMOUNTS, *COUNTS)):
        assert found[name] == Estimate.exact(blocks[:, at].sum())
        assert found[name].is_exact
    assert totals([], AMOUNTS, COUNTS)["tokens"] == Estimate.exact(0)


def test_a_sample_is_never_below_what_was_seen() -> None:
    blocks = np.array([[100.0, 8.0, 0.0], [100.0, 8.0, 8.0], [9000.0, 8.0, 1.0], [100.0, 8.0, 0.0]])
    found = totals([Stratum(5, blocks)], AMOUNTS, COUNTS)
    assert found["tokens"].low >= 9300
    assert found["rejected"].low >= 9
    assert found["rejected"].high <= found["responses"].high


def test_the_last_block_of_a_file_is_no_whole_one() -> None:
    """Of 25 rows in blocks of 8: without the last one in the sample all blocks look alike, and there would be 32."""
    whole = np.tile([800.0, 8.0, 0.0], (3, 1))
    found = totals([Stratum.of(4, whole, np.full(3, 8.0), 25.0, amounts=2, in_part=False)], AMOUNTS, COUNTS)
    assert found["responses"].value == pytest.approx(25)
    assert found["tokens"].value == pytest.approx(2500)


def test_what_was_seen_is_what_was_seen_whatever_blocks_are_made_of() -> None:
    """And not what it is taken for per length, which may be more than there is."""
    some = np.array([[2500.0, 8.0, 0.0], [0.0, 1.0, 0.0]])
    stratum = Stratum.of(4, some, np.array([8.0, 1.0]), 25.0, amounts=2, in_part=False)
    assert stratum.values[:, 0].sum() > 2500
    assert stratum.sampled_sums.tolist() == [2500.0, 9.0, 0.0]
    assert totals([stratum], AMOUNTS, COUNTS)["tokens"].low == pytest.approx(2500)


def test_estimates_of_the_whole_by_drawn_files_have_no_correction_for_what_is_left() -> None:
    draws = np.array([[1000.0, 100.0, 0.0], [1100.0, 100.0, 0.0], [900.0, 100.0, 0.0]])
    found = totals([Stratum(1, draws, replacement=True)], AMOUNTS, COUNTS)
    assert found["tokens"].value == 1000
    assert found["tokens"].high == pytest.approx(1000 + 4.3027 * 100 / np.sqrt(3))


def test_students_t() -> None:
    """Of tables."""
    tables = {1: 12.706, 2: 4.303, 4: 2.776, 5: 2.571, 10: 2.228, 24: 2.064, 30: 2.042, 120: 1.980, 100_000: 1.960}
    for freedom, t in tables.items():
        assert t_quantile(freedom) == pytest.approx(t, abs=0.0006), freedom
    assert t_quantile(0.3) == t_quantile(1)


@pytest.mark.parametrize(
    ("blocks", "drawn_blocks", "having", "least", "most"),
    [
        (10, 10, 3, 3, 3),  # all are known
        (10, 9, 0, 0, 1),  # the last one has a chance of a tenth
        (100, 99, 0, 0, 0),
        (1000, 250, 0, 0, 12),
        (1000, 250, 1, 1, 19),
        (10**8, 250, 0, 0, 1_464_719),  # 3.66 of 250: Clopper and Pearson's 1.46 %
        (10**8, 250, 5, 652_508, 4_605_354),  # 0.65 to 4.61 %
    ],
)
def test_how_many_blocks_may_have_any(blocks: int, drawn_blocks: int, having: int, least: int, most: int) -> None:
    assert list(having_bounds(blocks, drawn_blocks, having)) == pytest.approx([least, most], rel=1e-3)


@pytest.mark.parametrize("blocks", [20, 1000])
def test_equal_blocks_are_certain_only_if_all_were_sampled(blocks: int) -> None:
    values = np.full((20, 2), [50.0, 0.0])
    of = Stratum.of(blocks, values, np.full(20, 8.0), blocks * 8.0, amounts=1, in_part=False)
    tokens = totals([of], ["tokens"], {"rejected": "tokens"})["tokens"]
    assert tokens.value == pytest.approx(50.0 * blocks)
    assert tokens.is_exact is (blocks == 20)
    assert (tokens.low < tokens.value < tokens.high) is (blocks != 20)
