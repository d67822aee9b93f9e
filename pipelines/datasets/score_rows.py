"""Scores rows of a Ray Dataset in its workers: rows in, one row per response out. Nothing is committed."""

import hashlib
import json
from typing import Any

import pyarrow as pa
import ray

from actors.errors import SourceError
from actors.settings.replica import EngineSettings
from actors.workers.batch_actor import BatchActor
from pipelines.corpus.python_rows import python_rows
from pipelines.corpus.readers import PREPARED
from pipelines.prepare.score_requests import Preparation, prepared_rows, render_table, with_shapes
from pipelines.score_store.open_store import OpenStore
from pipelines.scoring.score_step import outcomes_of, requests_of, scored_table

ROW_ID = "_row"
"""Column of row ids between the steps of a dataset."""


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a block to the schema of its dataset; missing columns are null. Raises `SourceError` if it doesn't fit."""
    if extra := [name for name in table.column_names if name not in schema.names]:
        raise SourceError(
            f"some rows have a column {extra[0]!r}, and the first of the dataset don't; give all rows the same"
        )
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(len(table), field.type))
            continue
        column = table.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise SourceError(
                f"column {field.name!r} is {column.type} in some rows, and {field.type} in the first of the dataset; "
                "give it one type in all rows"
            ) from error
    return pa.table(columns, schema)


def prepare_rows(table: pa.Table, preparation: Preparation) -> pa.Table:
    """Add to a block of the dataset a column of `PreparedRow`s (pickled) and one of row ids."""
    table = conform(table, preparation.columns.carried)
    rows = python_rows(table)
    requests = [preparation.requests(row) for row in rows]
    repeated = with_shapes(table, requests, preparation.columns)
    return repeated.append_column(PREPARED, render_table(requests, preparation)).append_column(
        ROW_ID, pa.array([row_id(row) for row in rows], pa.string())
    )


def row_id(row: dict[str, Any]) -> str:
    """The MD5 of a row's content, in hex: rows of a dataset have no position as identity, so equal rows share an id."""
    text = json.dumps(row, default=_plain, sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _plain(value: Any) -> Any:
    # Tensor columns give numpy arrays, and `str` abbreviates long ones: different rows would get the same id.
    return value.tolist() if hasattr(value, "tolist") else str(value)


class RowStep:
    """Ray Data's actor class: scores blocks that `prepare_rows` prepared."""

    def __init__(
        self, preparation: Preparation, engine: EngineSettings, ledger: Any, store: OpenStore | None = None
    ) -> None:
        self._columns = preparation.columns
        self._actor = BatchActor(preparation.model, engine, ledger, store)
        # Part of the id of each block's work. Ray restarts a dead actor under the same id and retries its block: that is the
        # same work. A dataset that is executed again has new actors, so its blocks are new work.
        self._holder = ray.get_runtime_context().get_actor_id()

    def __call__(self, block: pa.Table) -> pa.Table:
        """Score a block; returns one row per response."""
        ids = block.column(ROW_ID).to_pylist()
        work = f"{self._holder}-{hashlib.md5(''.join(ids).encode(), usedforsecurity=False).hexdigest()}"
        rows = prepared_rows(block)
        outcomes = outcomes_of(rows, self._actor.score(work, requests_of(rows)))
        return scored_table(self._columns, block, ids, outcomes)
