"""Scoring rows of a Ray Dataset in its workers: rows in, one row per response out. Nothing is committed anywhere."""

import hashlib
import json
from typing import Any

import pyarrow as pa
import ray

from actors.errors import SourceError
from actors.settings.replica import EngineSettings
from actors.workers.batch_actor import BatchActor
from pipelines.corpus.readers import PREPARED
from pipelines.prepare.score_requests import Preparation, prepared_rows, render_table
from pipelines.scoring.score_step import outcomes_of, requests_of, scored_table

ROW_ID = "_row"


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A block in the types of its dataset; a column that it lacks is null. Raises `SourceError` if it doesn't fit."""
    if more := [name for name in table.column_names if name not in schema.names]:
        raise SourceError(f"some rows have a column {more[0]!r}, and the first of the dataset don't; give all rows the same")
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
    """A block of the dataset in, the same rows out with their `PreparedRow` and their id beside them."""
    table = conformed(table, preparation.columns.carried)
    rows: list[dict[str, Any]] = table.to_pylist()
    prepared = render_table([preparation.requests(row) for row in rows], preparation)
    return table.append_column(PREPARED, prepared).append_column(
        ROW_ID, pa.array([row_id(row) for row in rows], pa.string())
    )


def row_id(row: dict[str, Any]) -> str:
    """The MD5 of what a row holds, in hex. A row of a dataset has no place of its own; equal rows have the same id."""
    text = json.dumps(row, default=_plain, sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _plain(value: Any) -> Any:
    # Tensor columns give numpy arrays, whose text leaves most of a long one out.
    return value.tolist() if hasattr(value, "tolist") else str(value)


class RowStep:
    """Ray Data's actor class: a scorer of blocks that `prepare_rows` made."""

    def __init__(self, preparation: Preparation, engine: EngineSettings, ledger: Any) -> None:
        self._columns = preparation.columns
        self._actor = BatchActor(preparation.model, engine, ledger)
        # A block is the same work when Ray gives it to this actor again, after a death; not so when the user runs the
        # dataset again, perhaps after leaving off in the middle.
        self._holder = ray.get_runtime_context().get_actor_id()

    def __call__(self, block: pa.Table) -> pa.Table:
        """Score a block; returns one row per response."""
        ids = block.column(ROW_ID).to_pylist()
        work = f"{self._holder}-{hashlib.md5(''.join(ids).encode(), usedforsecurity=False).hexdigest()}"
        rows = prepared_rows(block)
        outcomes = outcomes_of(rows, self._actor.score(work, requests_of(rows)))
        return scored_table(self._columns, block, ids, outcomes)
