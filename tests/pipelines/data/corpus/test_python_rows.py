"""Rows of Arrow as objects of Python, also those with values that Python has no object for."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from pipelines.data.corpus.python_rows import Unconvertible, python_rows

NEVER = 2**63 - 1
"""The `infinity` of PostgreSQL and DuckDB, in microseconds since 1970."""
TIME = pa.timestamp("us")
HERE = datetime.datetime.fromisoformat("1970-01-01")
NO_TEXT = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
NONE = Unconvertible.VALUE


def test_a_value_without_an_object_is_marked_and_all_others_are_as_they_were() -> None:
    cases: list[tuple[pa.Array, list[Any]]] = [
        (pa.array([0, NEVER, -NEVER, None], TIME), [HERE, NONE, NONE, None]),
        (pa.array([0, 2**40], pa.timestamp("s")), [HERE, NONE]),  # in the year 36812
        (pa.array([0, None], pa.timestamp("us", "Mars/Olympus")), [NONE, None]),
        (pa.array([0, 2**31 - 1], pa.date32()), [HERE.date(), NONE]),
        (pa.array([0, 2**62], pa.duration("s")), [datetime.timedelta(), NONE]),
        (NO_TEXT, ["a", NONE]),
        (NO_TEXT.dictionary_encode(), ["a", NONE]),
        (pa.array([[0, NEVER], None, []], pa.list_(TIME)), [[HERE, NONE], None, []]),
        (pa.array([[0, NEVER]], pa.list_(TIME, 2)), [[HERE, NONE]]),
        (pa.array([[("a", 0)], [("a", NEVER)]], pa.map_(pa.string(), TIME)), [[("a", HERE)], NONE]),
        (
            pa.array(
                [[{"at": NEVER, "text": "x"}], None, [None]], pa.large_list(pa.struct([("at", TIME), ("text", pa.string())]))
            ),
            [[{"at": NONE, "text": "x"}], None, [None]],
        ),
    ]
    for column, values in cases:
        with pytest.raises((OverflowError, ValueError)):
            column.to_pylist()
        table = pa.table({"x": column, "n": range(len(column))})
        assert python_rows(table) == [{"x": value, "n": number} for number, value in enumerate(values)]
        assert python_rows(table.to_batches()[0]) == python_rows(table)


def test_the_rows_are_those_of_arrow_otherwise() -> None:
    rows = [{"a": 1, "b": [{"c": "x"}]}, {"a": None, "b": None}]
    table = pa.concat_tables([pa.Table.from_pylist(rows)] * 2)
    assert python_rows(table) == rows * 2
    assert python_rows(table.select([])) == [{}] * 4
    assert python_rows(pa.table({"x": pa.array([NEVER], TIME)}), unconvertible=None) == [{"x": None}]
    about = pa.array([{"at": NEVER, "text": "x"}], pa.struct([("at", TIME), ("text", pa.string())]))
    assert python_rows(pa.table({"about": about}), unconvertible=None) == [{"about": {"at": None, "text": "x"}}]
