"""Selections over a whole corpus, against the same by sorting everything."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.filtering.filter_step import GROUP, TIE, VALUE, EvaluatedRows
from pipelines.filtering.selection import Boundary, choose
from pipelines.runtime.workers import workers
from pipelines.settings.run_settings import ChoiceSettings
from tests.support.examples import examples

ODD = [0.0, -0.0, 5e-324, -5e-324, 2.3e-308, 1e-300, 1e300, -1e300, 1.7976931348623157e308, -1.7976931348623157e308]
GRADES = [1.0, 2.0, 3.0, 4.0, 5.0]

finite = st.sampled_from(ODD + GRADES) | st.floats(allow_nan=False, allow_infinity=False) | st.floats(-3, 3)
value = finite | st.sampled_from([math.inf, -math.inf])
fractions = st.integers(1, 1000).map(lambda thousandths: thousandths / 1000)


@dataclass(frozen=True)
class Row:
    """A response: the number that it is ranked by, its tie, and its prompt."""

    value: float
    tie: int
    prompt: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Part:
    """Evaluates the rows of part `number`, in two slices."""

    number: int

    def evaluate(self, data: Sequence[Row]) -> Iterator[EvaluatedRows]:
        middle = len(data) // 2
        for first, rows in ((0, data[:middle]), (middle, data[middle:])):
            columns = {
                GROUP[0]: pa.array([row.prompt[0] for row in rows], pa.uint64()),
                GROUP[1]: pa.array([row.prompt[1] for row in rows], pa.uint64()),
                VALUE: pa.array([row.value for row in rows], pa.float64(), from_pandas=True),
                TIE: pa.array([row.tie for row in rows], pa.uint64()),
            }
            answers = pa.table(columns)
            yield EvaluatedRows(self.number, first, answers, np.ones(len(rows), bool), answers)


def parts_of(rows: Sequence[Row], count: int) -> list[Sequence[Row]]:
    size = -(-len(rows) // count)
    return [rows[size * number : size * (number + 1)] for number in range(count)]


def reasons_of(rows: Sequence[Row], parts: int = 3, **settings: Any) -> tuple[list[str | None], dict[str, Any]]:
    """The reason of each row, null where it is kept, and the summary."""
    sources = [(Part(number), data) for number, data in enumerate(parts_of(rows, parts))]
    with workers(1) as pool, choose(pool, ChoiceSettings(**settings), sources) as chosen:
        reasons = [
            reason
            for part, data in sources
            for evaluated in part.evaluate(data)
            for reason in chosen.selection(part.number, part.number).reasons(evaluated).to_pylist()
        ]
        return reasons, chosen.as_json()


def with_ties(values: Sequence[float]) -> list[Row]:
    ties = np.random.default_rng(7).integers(2**64, size=len(values), dtype=np.uint64)
    return [Row(value, int(tie)) for value, tie in zip(values, ties, strict=True)]
