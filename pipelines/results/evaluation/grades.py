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
from pipelines.results.evaluation.statistics.margins import Margins, differences

_BATCH = 10_000

REWARDS = pa.map_(pa.string(), pa.float64())


class Grades:
    """The grades of all items: 8 bytes a cell and 16 a comparison, so a million pairs take 32 MB."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._cells: dict[str, array[float]] = {}
        self.items: Counter[str] = Counter()
        """Items by subset, graded or not."""
        self.tied: Counter[str] = Counter()
        self.reasons: dict[str, Counter[str]] = {}
        """Why items have no grade, by subset."""
        self.margins = Margins()
        self._contents = array("Q")

    def watch(self, items: Iterable[GradedItem], noise: NoiseReport | None) -> Iterator[GradedItem]:
        """The items as they are, each taken in on its way, also by `noise`."""
        for item in items:
            self.add(item)
            if noise is not None:
                noise.add(item)
            yield item

    def add(self, item: GradedItem) -> None:
        """Count an item, and keep its cells."""
        self.items[item.subset] += 1
        if item.content is not None:
            self._contents.append(item.content)
        if item.cells is None:
            self.reasons.setdefault(item.subset, Counter())[str(item.reason)] += 1
            return
        self.tied[item.subset] += item.tied
        self.margins.add(item)
        self._cells.setdefault(item.subset, array("d")).extend(item.cells)

    @property
    def cells(self) -> dict[str, Array]:
        """The cells of the graded items by subset, of shape (items, cells)."""
        return {subset: np.frombuffer(cells).reshape(-1, self._width) for subset, cells in sorted(self._cells.items())}

    @property
    def repeated(self) -> int | None:
        """The number of items that repeat an earlier one; None if no item's texts are known.

        They are told apart by a hash of 64 bits: of a million different ones, two are equal in 3 of 100 million files.
        """
        return len(self._contents) - len(np.unique(np.frombuffer(self._contents, np.uint64))) if self._contents else None

    @property
    def repeats_note(self) -> str | None:
        """A sentence for people, if items are repeated: joined by mistake, or written twice, as a JudgeBench once was."""
        if not self.repeated:
            return None
        return (
            f"{self.repeated:,} of {self.items.total():,} rows repeat an earlier row's prompt, responses and labels; each "
            "counts, as in the benchmarks' own codes, and the intervals take each for an item of its own."
        )

    def graded(self, subsets: Iterable[str]) -> int:
        """How many items of these subsets have a grade."""
        return sum(len(self._cells.get(subset, ())) // self._width for subset in subsets)


def item_schema(benchmark: Benchmark) -> pa.Schema:
    """The columns of `items.parquet`: one line an item, graded or not."""
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
            ("rewards", REWARDS),
        ]
    )


def grade_items(benchmark: Benchmark, items: Iterable[Any], path: Path, noise: NoiseReport | None = None) -> Grades:
    """Grade items, and write each to a Parquet file at `path`. `noise` counts those that batching's noise may decide."""
    grades, schema = Grades(len(benchmark.cells)), item_schema(benchmark)
    lines = (_line(item, len(benchmark.cells)) for item in grades.watch(benchmark.grade(items), noise))
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := list(itertools.islice(lines, _BATCH)):
            columns = zip(zip(*batch, strict=True), schema, strict=True)
            writer.write_table(pa.table([pa.array(column, field.type) for column, field in columns], schema))
    return grades


def _line(item: GradedItem, width: int) -> tuple[Any, ...]:
    closest, cells = min(differences(item), default=None), item.cells or (None,) * width
    return (item.row, item.subset, *cells, item.tied, closest, item.reason, item.content, list(item.rewards.items()))
