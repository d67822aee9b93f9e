"""Grades the items of a scored corpus: cells by subset for the measures, and one line an item for `items.parquet`."""

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.results.evaluation.benchmark import Array, Benchmark, GradedItem
from pipelines.results.evaluation.noise import NoiseReport
from pipelines.results.evaluation.statistics.intervals import Prompts
from pipelines.results.evaluation.statistics.margins import Margins, differences

_BATCH = 10_000  # items of a row group, which are Python objects until it is written

REWARDS = pa.map_(pa.string(), pa.float64())


class Grades:
    """The grades of all items: 8 bytes a cell, 8 an item and 16 a comparison, so a million pairs take 40 MB."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._cells: dict[str, array[float]] = {}
        self._prompts: dict[str, array[int]] = {}
        # By subset, graded or not: coverage is of all.
        self.items: Counter[str] = Counter()
        self.tied: Counter[str] = Counter()
        # Why items have no grade, by subset: `rejected: too_long` and so on.
        self.reasons: dict[str, Counter[str]] = {}
        self.margins = Margins()
        self._contents = array("Q")

    def add(self, item: GradedItem) -> None:
        self.items[item.subset] += 1
        if item.content is not None:
            self._contents.append(item.content)
        if item.cells is None:
            self.reasons.setdefault(item.subset, Counter())[str(item.reason)] += 1
            return
        self.tied[item.subset] += item.tied
        self.margins.add(item)
        self._cells.setdefault(item.subset, array("d")).extend(item.cells)
        self._prompts.setdefault(item.subset, array("Q")).append(item.prompt)

    @property
    def cells(self) -> dict[str, Array]:
        """The cells of the graded items by subset, of shape (items, cells)."""
        return {subset: np.frombuffer(cells).reshape(-1, self._width) for subset, cells in sorted(self._cells.items())}

    @property
    def prompts(self) -> dict[str, Prompts]:
        """Of each graded item a number of its prompt, by subset and in the order of `cells`."""
        return {subset: np.frombuffer(prompts, np.uint64) for subset, prompts in self._prompts.items()}

    @property
    def repeated(self) -> int | None:
        """The number of items that repeat an earlier one; None if no item's texts are known.

        They are told apart by a hash of 64 bits: of a million different ones, two are equal in 3 of 100 million files.
        """
        return len(self._contents) - len(np.unique(np.frombuffer(self._contents, np.uint64))) if self._contents else None

    @property
    def repeats_note(self) -> str | None:
        if not self.repeated:
            return None
        return (
            # Rows joined by mistake, or written twice by an author, as a JudgeBench file once was.
            f"{self.repeated:,} of {self.items.total():,} rows repeat an earlier row's prompt, responses and labels; each "
            "counts, as in the benchmarks' own codes; intervals are by prompt, so that repeats make none narrower."
        )

    def graded(self, subsets: Iterable[str]) -> int:
        # An array holds all cells of its items in a row.
        return sum(len(self._cells.get(subset, ())) // self._width for subset in subsets)


def item_schema(benchmark: Benchmark) -> pa.Schema:
    """The columns of `items.parquet`: one line an item, graded or not.

    A null cell is one that doesn't apply to the item; without a grade all are null, and `reason` says why.
    """
    cells = [(name, pa.float64()) for name in benchmark.cells]
    return pa.schema(
        [
            ("row", pa.string()),
            ("subset", pa.string()),
            *cells,
            ("tied", pa.bool_()),
            ("closest", pa.float64()),
            ("reason", pa.string()),
            ("content", pa.uint64()),
            ("prompt", pa.uint64()),
            ("rewards", REWARDS),
        ]
    )


def grade_items(benchmark: Benchmark, items: Iterable[Any], path: Path, noise: NoiseReport | None = None) -> Grades:
    """Grade items, and write each to a Parquet file at `path`. `noise` counts those that batching's noise may decide.

    Items are graded as they come; a batch of lines is in memory at a time, and the cells of all.
    """
    grades, schema = Grades(len(benchmark.cells)), item_schema(benchmark)

    def lines() -> Iterator[tuple[Any, ...]]:
        for item in benchmark.grade(items):
            grades.add(item)
            if noise is not None:
                noise.add(item)
            yield _line(item, len(benchmark.cells))

    rows = lines()
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := list(itertools.islice(rows, _BATCH)):
            columns = zip(zip(*batch, strict=True), schema, strict=True)
            writer.write_table(pa.table([pa.array(column, field.type) for column, field in columns], schema))
    return grades


def _line(item: GradedItem, width: int) -> tuple[Any, ...]:
    closest, cells = min(differences(item), default=None), item.cells or (None,) * width
    return (
        item.row,
        item.subset,
        *cells,
        item.tied,
        closest,
        item.reason,
        item.content,
        item.prompt,
        list(item.rewards.items()),
    )
