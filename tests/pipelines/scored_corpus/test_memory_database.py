"""The DuckDB of a process, which all conditions and shuffles share: nothing of one is seen by another."""

import time

import duckdb
import pyarrow as pa
import pytest

from pipelines.scored_corpus import memory_database


def test_tables_of_a_cursor_are_its_own() -> None:
    with memory_database.cursor() as first, memory_database.cursor() as second:
        first.register("rows", pa.table({"n": [1]}))
        second.register("rows", pa.table({"n": [2]}))
        assert (first.sql("select n from rows").fetchall(), second.sql("select n from rows").fetchall()) == ([(1,)], [(2,)])
    with memory_database.cursor() as third, pytest.raises(duckdb.CatalogException, match="rows"):
        third.sql("select n from rows")


def test_it_is_in_utc_wherever_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    memory_database._database.cache_clear()  # the next one is opened there
    try:
        with memory_database.cursor() as cursor:
            assert cursor.sql("select '2026-01-01 00:00:00+00'::timestamptz::varchar").fetchall() == [
                ("2026-01-01 00:00:00+00",)
            ]
    finally:
        monkeypatch.undo()
        time.tzset()
        memory_database._database.cache_clear()


@pytest.mark.parametrize("statement", ["set threads = 4", "select * from read_csv('/etc/hostname')", "from table"])
def test_no_file_setting_or_variable_is_reached(statement: str) -> None:
    table = pa.table({"n": [1]})
    with memory_database.cursor() as cursor, pytest.raises(duckdb.Error):
        cursor.execute(statement)
    assert table.num_rows == 1
