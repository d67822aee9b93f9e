"""The responses of both folders side by side in DuckDB, and what can be counted of them.

`matched` has a row for each response of either folder: columns `a_...` of the first and `b_...` of the second, null where it
isn't there. `moves` has those with a number in both, with their ranks. DuckDB keeps both on disk, within `_MEMORY`.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.folders.scored_corpus.databases import spilling

_MEMORY = "400MB"  # DuckDB's bound; what is beyond is spilled to disk
# Each thread has buffers of its own, for sorts, joins and windows.
_THREADS = 2
_SIDE = ("part_at", "row_at", "row", "name", "prompt", "status", "reason", "kept")


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB on disk, in a temporary folder, with a bound on its memory. Raises `RunStopped` if it fails.

    Rows have no order but what a query asks for, so that joins and sorts needn't hold all of them.
    """
    with spilling("diff", _MEMORY, "the folders can't be compared") as connection:
        connection.execute(f"set threads = {_THREADS}; set preserve_insertion_order = false")
        yield connection


def match(connection: duckdb.DuckDBPyConnection, numbers: int) -> None:
    """Make the table `matched` of `first` and `second`, which are dropped."""
    names = [*_SIDE, *(f"n{position}" for position in range(numbers))]
    sides = ", ".join(f"{table}.{name} as {side}_{name}" for side, table in _SIDES for name in names)
    connection.execute(
        f"""
        create table matched as select first.key as key, {sides} from first full join second
        on first.key = second.key and first.nth = second.nth
        """
    )
    for _, table in _SIDES:
        connection.execute(f"drop table {table}")


_SIDES = (("a", "first"), ("b", "second"))
IN_BOTH = "a_row is not null and b_row is not null"
STATUS_CHANGED = f"{IN_BOTH} and (a_status is distinct from b_status or a_reason is distinct from b_reason)"


def number_once(numbers: int) -> str:
    """The condition that one of so many numbers is there on one side only."""
    return " or ".join(f"(a_n{position} is null) <> (b_n{position} is null)" for position in range(numbers))


def rank(connection: duckdb.DuckDBPyConnection, number: int) -> int:
    """Make the table `moves` of the responses with this number in both, and return how many they are.

    `a_rank` and `b_rank` are doubled mean ranks, whole numbers from 2 to twice the count: equal numbers share their mean.
    """
    # `rank()` is 1 + those below, and the mean rank of t equal ones (t - 1) / 2 more. Doubled that is whole: 1, 2, 2 and 4
    # have 2, 5, 5 and 8.
    ranked = ", ".join(
        f"2 * rank() over (order by {side}) + count(*) over (partition by {side}) - 1 as {side}_rank" for side in "ab"
    )
    connection.execute(
        f"""
        create or replace table moves as select *, {ranked} from (
            select a_part_at, a_row_at, a_n{number} as a, b_n{number} as b from matched
            where a_n{number} is not null and b_n{number} is not null
        )
        """
    )
    ((count,),) = connection.execute("select count(*) from moves").fetchall()
    return int(count)


def spearman(connection: duckdb.DuckDBPyConnection) -> float | None:
    """Spearman's rank correlation of `moves`: Pearson's of the mean ranks, right to 15 digits and 1.0 for equal orders.

    None if either side has a single value, or there are fewer than two responses.
    """
    ((count, *sums),) = connection.execute(
        """
        select count(*), sum(a_rank::hugeint), sum(b_rank::hugeint), sum(a_rank::hugeint * a_rank),
            sum(b_rank::hugeint * b_rank), sum(a_rank::hugeint * b_rank) from moves
        """
    ).fetchall()
    if not count:
        return None
    first, second, first_squares, second_squares, products = map(int, sums)
    # Variances and covariance, each times count**2. Of 10^9 responses both terms have 37 digits, and most may cancel: these
    # are whole numbers, so that only the last line rounds.
    first_spread, second_spread = count * first_squares - first**2, count * second_squares - second**2
    if 0 in (first_spread, second_spread):
        return None
    # The square root of a square may be off by its last bit, and `--min-rank-correlation 1` must hold for equal folders.
    return round((count * products - first * second) / math.sqrt(first_spread * second_spread), 15)


def move_sql(unit: str, count: int) -> str:
    """The move of a response from the first folder to the second, as SQL over `moves`.

    In the unit of the number, or in percentile points of rank among `count` responses: 50 is from the median to the best.
    """
    return f"(b_rank - a_rank) * 50.0 / {count}" if unit == "percentile" else "b - a"


def table(connection: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    """The rows of a query, by column."""
    result: pa.Table = connection.sql(sql).to_arrow_table()
    return result.to_pylist()


def counts(connection: duckdb.DuckDBPyConnection, **conditions: str) -> dict[str, int]:
    """How many rows of `matched` meet each condition."""
    columns = ", ".join(f"count(*) filter ({condition}) as {name}" for name, condition in conditions.items())
    (row,) = table(connection, f"select {columns} from matched")
    return row
