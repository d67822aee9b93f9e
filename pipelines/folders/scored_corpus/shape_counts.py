"""Counts the input rows of a mixed corpus by their shape."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.folders.run_folder.columns import ROW, SHAPE, Columns
from pipelines.folders.run_folder.parts import Parts, read_tables

_THREADS = 8


def count_shapes(parts: Parts, columns: Columns) -> dict[str, int]:
    """The input rows of each shape, the most frequent first. Raises `SourceError` if a part can't be read."""
    row, shape = columns.prefix + ROW, columns.prefix + SHAPE
    with ThreadPoolExecutor(_THREADS) as threads:
        by_part = threads.map(lambda part: _shapes_in(parts.path(part), row, shape), parts.listing())
        counts = sum(by_part, Counter[str]())
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _shapes_in(path: str, row: str, shape: str) -> Counter[str]:
    """The rows of one part, which holds each of its rows whole: the responses to a row are neighbours, and the first counts.

    In SQL, `count(distinct row)` would hold the names of all rows of the corpus in memory.
    """
    counts: Counter[str] = Counter()
    last: str | None = None
    for table in read_tables(path, [row, shape]):
        rows, shapes = (column.combine_chunks() for column in table.columns)
        before = pa.concat_arrays([pa.array([last], rows.type), rows[:-1]])
        firsts = shapes.filter(pc.fill_null(pc.not_equal(rows, before), True)).drop_null()
        counts.update({entry["values"]: entry["counts"] for entry in pc.value_counts(firsts).to_pylist()})
        last = rows[-1].as_py()
    return counts
