"""Totals from random units: right on the average, and within their bounds as often as they say."""

from collections.abc import Callable

import numpy as np
import pytest

from pipelines.workflows.estimate.intervals import DrawnUnits, Estimate, totals
from pipelines.workflows.estimate.tally import QUANTITIES, Values
from tests.support.estimates import holds

ROWS, BLOCK_ROWS, BLOCKS, TRIALS = 20_000, 8, 250, 200
"""The default: some 2,000 rows in blocks of about eight."""
SEEN_NOTHING = np.zeros(len(QUANTITIES))

Random = np.random.Generator


POPULATIONS: dict[str, Callable[[Random], Values]] = {
    "lognormal": lambda random: random.lognormal(6, 1, ROWS),
    "without a finite variance": lambda random: 300 * (1 + random.pareto(1.8, ROWS)),
    "by length": lambda random: np.sort(random.lognormal(6, 1, ROWS)),
    "longest first": lambda random: np.sort(300 * (1 + random.pareto(1.8, ROWS)))[::-1],
    # Ten files, the last with rows fifty times as long as the first.
    "unlike files": lambda random: np.concatenate(
        [random.lognormal(mean, 0.5, ROWS // 10) for mean in np.linspace(4, 8, 10)]
    ),
}
QUICK = ("without a finite variance", "by length")


def blocks_of_bytes(lengths: Values, longest: float) -> tuple[Values, float]:
    """Blocks as JSONL is cut, each with the rows that start in it, or none; and the bytes of a block."""
    size = int(lengths.mean() * BLOCK_ROWS)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    blocks = np.zeros((int(np.ceil(lengths.sum() / size)), len(QUANTITIES)))
    np.add.at(blocks, (starts // size).astype(int), quantities(lengths, longest))
    return blocks, size


def blocks_of_rows(lengths: Values, longest: float) -> tuple[Values, float]:
    """Blocks as Parquet is cut, and the rows of a block."""
    return quantities(lengths, longest).reshape(-1, BLOCK_ROWS, len(QUANTITIES)).sum(axis=1), BLOCK_ROWS


def quantities(lengths: Values, longest: float) -> Values:
    """Of each row a quarter of its bytes as tokens, unless it is too long, and a response."""
    accepted = lengths <= longest
    columns = dict.fromkeys(QUANTITIES, np.ones(len(lengths)))
    columns |= {
        "tokens": np.where(accepted, lengths / 4, 0),
        "rejected": np.where(accepted, 0.0, 1.0),
        "truncated": np.zeros(len(lengths)),
    }
    return np.stack([columns[name] for name in QUANTITIES], axis=1)


def draw(blocks: Values, size: float, random: Random, count: int = BLOCKS) -> DrawnUnits:
    numbers = random.choice(len(blocks), count, replace=False)
    return DrawnUnits(blocks[numbers], np.full(count, float(size)), len(blocks) * size, len(blocks))


def estimate(part: DrawnUnits, seed: int = 0) -> dict[str, Estimate]:
    return totals([part], SEEN_NOTHING, seed)


def blocks_with(bad: int, good: int, together: bool = False, seed: int = 0) -> Values:
    """Blocks of eight responses, of which all are rejected in some blocks."""
    columns = {"tokens": 800.0, "rows": 8.0, "responses": 8.0}
    blocks = np.tile([columns.get(name, 0.0) for name in QUANTITIES], (bad + good, 1))
    random = np.random.default_rng(seed)
    first = int(random.integers(0, good + 1))
    numbers = range(first, first + bad) if together else random.choice(bad + good, bad, replace=False)
    blocks[list(numbers), QUANTITIES.index("rejected")] = 8.0
    return blocks


@pytest.mark.parametrize("cut", [blocks_of_bytes, blocks_of_rows])
@pytest.mark.parametrize(
    "rejected", [pytest.param(0.001, marks=pytest.mark.long), 0.01, pytest.param(0.1, marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    "population", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in POPULATIONS]
)
def test_the_bounds_hold_the_truth_and_the_estimate_is_unbiased(
    population: str, rejected: float, cut: Callable[[Values, float], tuple[Values, float]]
) -> None:
    lengths = POPULATIONS[population](np.random.default_rng(1))
    blocks, size = cut(lengths, float(np.quantile(lengths, 1 - rejected)))
    random = np.random.default_rng(7)
    estimates = [estimate(draw(blocks, size, random), seed) for seed in range(TRIALS)]
    for name, truth in zip(QUANTITIES, blocks.sum(axis=0), strict=True):
        coverage = np.mean([holds(trial[name], truth) for trial in estimates])
        values = np.array([trial[name].value for trial in estimates])
        assert coverage >= 0.9, (name, coverage)
        assert values.mean() == pytest.approx(truth, abs=3.5 * values.std() / np.sqrt(TRIALS) + 1e-6), name


@pytest.mark.parametrize(("drawn", "units"), [(250, 2500), (20, 200), (100, 200), (180, 200), (196, 200)])
@pytest.mark.parametrize("bad", [4, *(pytest.param(bad, marks=pytest.mark.long) for bad in (1, 10, 40))])
def test_none_seen_is_not_none_there(bad: int, drawn: int, units: int) -> None:
    """Blocks that are wholly bad may have been missed, unless nearly all were drawn."""
    random = np.random.default_rng(6)
    coverage = []
    for seed in range(TRIALS):
        blocks = blocks_with(bad, units - bad, together=True, seed=seed)
        part = draw(blocks, 8, random, drawn)
        coverage.append(holds(estimate(part, seed)["rejected"], 8 * bad))
    assert np.mean(coverage) >= 0.9, np.mean(coverage)


def test_none_seen_has_an_upper_bound_that_shrinks_with_the_sample() -> None:
    def upper(drawn: int) -> float:
        part = draw(blocks_with(0, 100_000), 8, np.random.default_rng(0), drawn)
        rejected = estimate(part)["rejected"]
        assert rejected.value == rejected.low == 0
        return rejected.high / 800_000

    assert upper(250) == pytest.approx(3 / 250, rel=0.1)
    assert upper(1000) == pytest.approx(3 / 1000, rel=0.1)


def test_all_is_exact() -> None:
    blocks, size = blocks_of_rows(POPULATIONS["without a finite variance"](np.random.default_rng(1)), 900.0)
    part = draw(blocks, size, np.random.default_rng(0), len(blocks))
    for name, sums in zip(QUANTITIES, blocks.sum(axis=0), strict=True):
        assert estimate(part)[name] == pytest.approx(Estimate.exact(sums))
        assert estimate(part)[name].is_exact
    assert totals([], SEEN_NOTHING, 0)["tokens"] == Estimate.exact(0)


def test_no_bound_is_below_what_was_seen_and_no_more_is_rejected_than_there_is() -> None:
    part = draw(blocks_with(3, 2), 8, np.random.default_rng(1), 4)
    seen = part.values.sum(axis=0)
    estimates = totals([part], seen, 0)
    for name, least in zip(QUANTITIES, seen, strict=True):
        assert estimates[name].low >= least
    assert estimates["rejected"].high <= estimates["responses"].high


def test_a_short_block_is_no_whole_one() -> None:
    """Of 25 rows in blocks of 8: without the last one in the sample all blocks look alike, and there would be 32."""
    part = DrawnUnits(blocks_with(0, 3), np.full(3, 8.0), 25.0, 4)
    assert estimate(part)["responses"].value == pytest.approx(25)
    assert estimate(part)["tokens"].value == pytest.approx(2500)


@pytest.mark.parametrize("units", [20, 1000])
def test_equal_blocks_are_certain_only_if_all_were_drawn(units: int) -> None:
    part = DrawnUnits(blocks_with(0, 20), np.full(20, 8.0), 8.0 * units, units, rows_known=True)
    tokens = estimate(part)["tokens"]
    assert tokens.value == pytest.approx(800 * units)
    assert tokens.is_exact is (units == 20)
    assert (tokens.low < tokens.value < tokens.high) is (units != 20)
    assert estimate(part)["rows"] == pytest.approx(Estimate.exact(8 * units))
