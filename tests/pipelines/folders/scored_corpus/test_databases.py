"""DuckDB's connections; that of a process is shared by all conditions and shuffles: nothing of one is seen by another."""

import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from pipelines.folders.scored_corpus import databases
from tests.conftest import REPOSITORY


@pytest.mark.parametrize("file", ["", "str(Path(sys.argv[1], 'rows.db'))"])
def test_duckdb_draws_no_bar_into_the_output_of_a_program_that_is_no_file(file: str, tmp_path: Path) -> None:
    """By itself it does, after 2 s: seen in the output of `python -c` with a large summary."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom pipelines.folders.scored_corpus.databases import connect\n"
        f"with connect({file}) as connection:\n"
        "    print(connection.execute(\"select current_setting('enable_progress_bar')\").fetchall())"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "[(False,)]\n"


def test_tables_of_a_cursor_are_its_own() -> None:
    with databases.cursor() as first, databases.cursor() as second:
        first.register("rows", pa.table({"n": [1]}))
        second.register("rows", pa.table({"n": [2]}))
        assert (first.sql("select n from rows").fetchall(), second.sql("select n from rows").fetchall()) == ([(1,)], [(2,)])
    with databases.cursor() as third, pytest.raises(duckdb.CatalogException, match="rows"):
        third.sql("select n from rows")


def test_it_is_in_utc_wherever_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    databases._database.cache_clear()  # the next one is opened there
    try:
        with databases.cursor() as cursor:
            assert cursor.sql("select '2026-01-01 00:00:00+00'::timestamptz::varchar").fetchall() == [
                ("2026-01-01 00:00:00+00",)
            ]
    finally:
        monkeypatch.undo()
        time.tzset()
        databases._database.cache_clear()


@pytest.mark.parametrize("statement", ["set threads = 4", "select * from read_csv('/etc/hostname')", "from table"])
def test_no_file_setting_or_variable_is_reached(statement: str) -> None:
    table = pa.table({"n": [1]})
    with databases.cursor() as cursor, pytest.raises(duckdb.Error):
        cursor.execute(statement)
    assert table.num_rows == 1
