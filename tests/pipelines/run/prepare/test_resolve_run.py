"""What a run is resolved to when an earlier session has looked at its files already."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.folders.run_folder import carried_columns
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import resolve
from pipelines.settings.options import build
from pipelines.settings.run_settings import ScoreSettings
from tests.support.corpora import rows
from tests.support.object_store import BUCKET


def put_parquet(s3: Any, name: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    s3.pipe_file(f"{BUCKET}/in/{name}", sink.getvalue().to_pybytes())


def settings(output: Path, **options: Any) -> ScoreSettings:
    flat = {"inputs": (f"{BUCKET}/in",), "output": str(output), "model": "tiny-attributes", "engine": "fake"}
    return build(ScoreSettings, {**flat, **options})


def begin(run: ScoreSettings) -> None:
    """Write the manifest that a session of the run begins with."""
    manifest_of(resolve(run), run).started().write(run.output)


@pytest.fixture
def corpus(s3: Any) -> Any:
    """Two Parquet files, of which the second has a column more."""
    put_parquet(s3, "a.parquet", pa.Table.from_pylist(rows(6)))
    put_parquet(s3, "b.parquet", pa.Table.from_pylist([row | {"n": 1} for row in rows(4)]))
    return s3


def test_a_resumed_run_has_files_and_columns_without_opening_a_footer(
    corpus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = settings(tmp_path)
    first = resolve(run)
    begin(run)

    def refuse(*_: Any) -> Any:
        raise AssertionError("a file of the earlier session was opened for its columns")

    monkeypatch.setattr(carried_columns, "opened", refuse)
    again = resolve(run)
    assert again.files == first.files
    assert again.preparation.columns == first.preparation.columns
    assert "n" in again.preparation.columns.carried.names


def test_extents_that_a_limit_cut_are_not_taken_over(corpus: Any, tmp_path: Path) -> None:
    """A plan of the whole corpus would count seven rows, if a limited run lay in its output folder."""
    begin(settings(tmp_path, limit=7))
    assert [file.extent for file in resolve(settings(tmp_path, limit=7)).files] == [6, 1]
    assert [file.extent for file in resolve(settings(tmp_path)).files] == [6, 4]


def test_a_file_that_is_appended_adds_its_columns_to_those_of_the_earlier_session(corpus: Any, tmp_path: Path) -> None:
    run = settings(tmp_path)
    begin(run)
    put_parquet(corpus, "c.parquet", pa.Table.from_pylist([row | {"late": "x"} for row in rows(2)]))
    assert {"n", "late"} < set(resolve(run).preparation.columns.carried.names)
