"""Two models on the same items: who is right where the other isn't, and how sure the difference of each figure is.

An item's credit is what it adds to the benchmark's headline, from 0 to 1. Items for which one model has more credit are
counted for each model, and p is the exact chance of a split at least as uneven if both were equally good (McNemar's test; of
items with several comparisons the sign test). The difference of a figure is drawn from the same items for both models, as
`item_matching` finds them.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import bdtr

from pipelines.folders.scored_corpus.databases import connect
from pipelines.results.evaluation.benchmark import Array, Benchmark, MeanCells, Measure
from pipelines.results.evaluation.item_matching import EvaluatedModel, check_fit, unmatched_text, with_keys
from pipelines.results.evaluation.statistics.intervals import (
    DRAWS,
    Prompts,
    effective_items,
    have_repeats,
    mean_cells,
    measure_weights,
    percentiles,
    resampled_means,
    wilson,
)

EVERY_SUBSET = "all items"
_SCHEMA = pa.schema(
    [
        ("benchmark", pa.string()),
        ("row", pa.string()),
        ("subset", pa.string()),
        ("credits", pa.map_(pa.string(), pa.float64())),
    ]
)


@dataclass(frozen=True)
class CreditSplit:
    """Items of a subset that both models graded, those in which only one has more credit, and the exact two-sided p."""

    subset: str
    items: int
    first_ahead: int
    second_ahead: int
    p: float


@dataclass(frozen=True)
class Difference:
    """A figure of the first model less that of the second over the same items, and its 95 % interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedComparison:
    """Two models on the items of a benchmark that both have a grade for. The first split is of all items.

    `unmatched` says how many items, graded or not, one of both has alone, and in which files; empty if none has.
    """

    benchmark: str
    first: str
    second: str
    items: int
    unmatched: str
    differences: tuple[Difference, ...]
    splits: tuple[CreditSplit, ...]
    method: str


def exact_p(first: int, second: int) -> float:
    """The two-sided exact p-value of McNemar's test: of a fair coin, `first` heads and `second` tails or more uneven.

    1.0 where no item is discordant. Right to 8 digits for a million items.
    """
    # A fair coin's binomial distribution is symmetric, so both tails are alike; `bdtr` is its cumulative function.
    # `scipy.stats.binomtest` does the same, and its import takes longer than many an evaluation.
    return min(1.0, 2 * float(bdtr(min(first, second), first + second, 0.5)))


def compare_models(
    benchmark: Benchmark, models: Sequence[EvaluatedModel], seed: int
) -> tuple[list[PairedComparison], pa.Table]:
    """Compare every two models; beside it the items on which any of them disagree. No comparison without common grades.

    A disagreement has the credit by every model that has a grade. Raises `SettingsError` for models of other data.
    """
    keyed = with_keys(models)
    pairs = list(itertools.combinations(keyed, 2))
    for first, second in pairs:
        check_fit(f"{first.name} and {second.name} on {benchmark.name}", first, second)
    with connect() as connection:
        comparisons = [_compare(connection, benchmark, first, second, seed) for first, second in pairs]
        disagreements = _disagreements(connection, benchmark, keyed)
    return [comparison for comparison in comparisons if comparison is not None], disagreements


def _compare(
    connection: duckdb.DuckDBPyConnection, benchmark: Benchmark, first: EvaluatedModel, second: EvaluatedModel, seed: int
) -> PairedComparison | None:
    width = len(benchmark.cells)
    # Shape (items, 2 * cells + 1) by subset: the first model's cells, then the second's, and the number of the prompt.
    cells = _common_cells(connection, benchmark, first, second)
    if not cells:
        return None
    of_first = {subset: values[:, :width] for subset, values in cells.items()}
    of_second = {subset: values[:, width : 2 * width] for subset, values in cells.items()}
    # Both models' cells of an item are side by side, so each draw takes the same items of both, and what makes an item hard
    # for both drops out of the difference.
    prompts = {subset: values[:, -1].astype(np.uint64) for subset, values in cells.items()}
    cells = {subset: values[:, :-1] for subset, values in cells.items()}
    draws = resampled_means(cells, False, np.random.default_rng(seed), prompts)
    share = effective_items(np.concatenate(list(prompts.values()))) / sum(map(len, cells.values()))
    unit, test = "within subsets", "McNemar (sign test)"
    if have_repeats(prompts):
        unit, test = "of prompts", "sign-flip test by prompt"
    sides = [
        _figures(benchmark, mean_cells(cells, False), model, position) for position, model in enumerate((first, second))
    ]
    spreads = [_figures(benchmark, draws, model, position) for position, model in enumerate((first, second))]
    differences = tuple(
        _difference(
            figure, float(figure.value - sides[1][name].value), spreads[0][name].value - spreads[1][name].value, share
        )
        for name, figure in sides[0].items()
        if name in sides[1] and np.isfinite(figure.value - sides[1][name].value)
    )
    return PairedComparison(
        benchmark.name,
        first.name,
        second.name,
        sum(map(len, cells.values())),
        unmatched_text({first.name: first, second.name: second}),
        differences,
        _splits(
            item_credits(benchmark, of_first, judged=first.judged),
            item_credits(benchmark, of_second, judged=second.judged),
            prompts,
        ),
        f"differences: paired bootstrap of {DRAWS} draws {unit}, seed {seed}, or Wilson's bound where no item differs; "
        f"p: exact {test}, not corrected for the number of comparisons",
    )


def _common_cells(
    connection: duckdb.DuckDBPyConnection, benchmark: Benchmark, first: EvaluatedModel, second: EvaluatedModel
) -> dict[str, Array]:
    names = [f'{side}."{cell}"' for side in ("a", "b") for cell in benchmark.cells]
    columns = ", ".join(f"{name} as c{position}" for position, name in enumerate(names))
    connection.register("first_items", first.items)
    connection.register("second_items", second.items)
    table = connection.sql(
        f"""select a.subset, {columns}, dense_rank() over (order by a.prompt) as prompt
        from first_items a join second_items b using (key, subset)
        where a.reason is null and b.reason is null order by a.subset, a.row"""
    ).to_arrow_table()
    return _cells_by_subset(table, table.column_names[1:])


def _cells_by_subset(table: pa.Table, names: Sequence[str]) -> dict[str, Array]:
    if not len(table):
        return {}
    # Null becomes NaN, by which means leave an item out of the cells that it lacks.
    values = np.stack([table[name].to_numpy(zero_copy_only=False).astype(float) for name in names], axis=1)
    subsets, starts = np.unique(table["subset"].to_numpy(zero_copy_only=False).astype(str), return_index=True)
    return dict(zip(map(str, subsets), np.split(values, starts[1:]), strict=True))


def _figures(benchmark: Benchmark, means: MeanCells, model: EvaluatedModel, place: int) -> dict[str, Measure]:
    width = len(benchmark.cells)
    by_subset, cell_counts = (
        {subset: cells[..., place * width : (place + 1) * width] for subset, cells in of_both.items()}
        for of_both in (means.by_subset, means.cell_counts)
    )
    figures = benchmark.measures(MeanCells(by_subset, means.counts, model.judged, model.compared, cell_counts))
    return {figure.name: figure for figure in figures}


def _difference(measure: Measure, value: float, draws: Array, share: float) -> Difference:
    # Models that never differ on 20 items may still do so on others: by Wilson's bound of 0 of 20 on up to 16 % of them.
    low, high = percentiles(draws)
    least = wilson(0.0, share * measure.n)[1] if high - low < 1e-9 else 0.0
    return Difference(measure.name, value, low - least, high + least)


def item_credits(benchmark: Benchmark, cells: Mapping[str, Array], *, judged: bool) -> dict[str, Array]:
    """What each item adds to the headline, scaled so that the cells it consists of, all 1, are 1; NaN without these cells.

    `judged`: by the headline of judges, whose tie may be half a credit. Subsets that the headline doesn't count are graded
    by their first cell.
    """
    means = mean_cells(cells, judged)
    headline = benchmark.measures(means)[0].name
    weights = measure_weights(means, benchmark.measures).get(headline, {})
    return {subset: _credit(values, weights.get(subset)) for subset, values in cells.items()}


def _credit(values: Array, weights: Array | None) -> Array:
    # The headline isn't a weighted sum (an F1), or doesn't count this subset.
    if weights is None or np.abs(weights).sum() == 0:
        return values[:, 0]
    used = np.abs(weights) > 0
    credit = np.nan_to_num(values[:, used]) @ (weights[used] / np.abs(weights).sum())
    return np.where(np.isnan(values[:, used]).all(1), np.nan, credit)


def _splits(
    first_credits: Mapping[str, Array], second_credits: Mapping[str, Array], prompts: Mapping[str, Prompts]
) -> tuple[CreditSplit, ...]:
    # Credits are sums of weights such as 1/9, and equal ones differ in their last bits.
    signs_by_subset = {
        subset: np.sign(np.round(first_credits[subset] - second_credits[subset], 9)) for subset in first_credits
    }
    graded = {subset: signs[~np.isnan(signs)] for subset, signs in signs_by_subset.items()}
    of_graded = {subset: prompts[subset][~np.isnan(signs)] for subset, signs in signs_by_subset.items()}
    by_subset = [_split(subset, signs, of_graded[subset]) for subset, signs in graded.items() if len(signs)]
    overall = _split(EVERY_SUBSET, np.concatenate(list(graded.values())), np.concatenate(list(of_graded.values())))
    return (overall, *(by_subset if len(by_subset) > 1 else []))


def flip_p(signs: Array, prompts: Prompts) -> float:
    """The two-sided exact p of items that are +1, -1 or 0, where the sign of each prompt's sum is that of a fair coin.

    With one item a prompt it is McNemar's. Right to 1e-13.
    """
    leads = np.bincount(np.unique(prompts, return_inverse=True)[1], signs).round().astype(int)
    sizes, counts = np.unique(np.abs(leads[leads != 0]), return_counts=True)
    if len(sizes) < 2:
        return exact_p(int((leads > 0).sum()), int((leads < 0).sum()))
    total, ahead = int(sizes @ counts), int(leads[leads > 0].sum())
    # The generating function of the sum on heads, a factor of (1 + z^size) / 2 a prompt, at the roots of unity.
    roots = np.exp(-2j * np.pi * np.arange(total + 1) / (total + 1))
    factors = [((1 + roots**size) / 2) ** count for size, count in zip(sizes, counts, strict=True)]
    chances = np.fft.ifft(np.prod(factors, axis=0)).real
    return float(min(1.0, max(0.0, 2 * chances[: min(ahead, total - ahead) + 1].sum())))


def _split(subset: str, signs: Array, prompts: Prompts) -> CreditSplit:
    first, second = int((signs > 0).sum()), int((signs < 0).sum())
    return CreditSplit(subset, len(signs), first, second, flip_p(signs, prompts))


def _disagreements(
    connection: duckdb.DuckDBPyConnection, benchmark: Benchmark, models: Sequence[EvaluatedModel]
) -> pa.Table:
    for position, model in enumerate(models):
        connection.register(f"credits{position}", credits_table(benchmark, model.items, judged=model.judged))
    connection.register("names", pa.table({"model": range(len(models)), "name": [model.name for model in models]}))
    union = " union all ".join(f"select {position} as model, * from credits{position}" for position in range(len(models)))
    # By the first model's place of an item, as others may have it elsewhere. Equal credits may differ in their last bits.
    rows = connection.sql(
        f"""select '{benchmark.name}' as benchmark, arg_min(row, model) as row, subset,
            map_from_entries(list((name, credit) order by model)) as credits
        from ({union}) join names using (model) where key is not null
        group by key, subset having max(credit) - min(credit) > 1e-9 order by subset, row"""
    )
    return rows.to_arrow_table().cast(_SCHEMA)


def credits_table(benchmark: Benchmark, items: pa.Table, *, judged: bool) -> pa.Table:
    """The row, the subset, the key and the credit of each item that has one. `judged`: as `item_credits`."""
    # Sorted as `_cells_by_subset` and the join of credits to rows below need it.
    table = items.filter(pc.is_null(items.column("reason"))).sort_by([("subset", "ascending"), ("row", "ascending")])
    cells = _cells_by_subset(table, benchmark.cells)
    credit = item_credits(benchmark, cells, judged=judged) if cells else {}
    credits_in_order = np.concatenate([np.zeros(0), *credit.values()])
    table = table.select(["row", "subset", "key"]).append_column("credit", pa.array(credits_in_order, pa.float64()))
    return table.filter(pa.array(~np.isnan(credits_in_order)))
