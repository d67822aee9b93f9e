"""Scores rows of a Ray Dataset in its workers: rows in, one row per response out. Nothing is committed."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import ray

from actors.settings.replica import EngineSettings
from actors.workers.batch_actor import BatchActor
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.corpus.readers import PREPARED
from pipelines.data.formats import RowRequests
from pipelines.folders.score_store.open_store import OpenStore
from pipelines.run.prepare.score_requests import Preparation, prepared_rows, render_table, with_shapes
from pipelines.run.scoring.score_step import outcomes_of, requests_of, scored_table
from pipelines.workflows.datasets.blocks import conform

ROW_ID = "_row"  # a column of row ids between the steps of a dataset

Prepare = Callable[[Sequence[RowRequests], Preparation], pa.Array]  # makes a column of pickled rows


def prepare_rows(
    block: pa.Table, preparation: Preparation, batch_rows: int, prepare: Prepare = render_table
) -> Iterator[pa.Table]:
    """Add to a block of the dataset a column of its prepared rows (pickled) and one of row ids, a batch at a time.

    Raises `SourceError` if the block doesn't fit the columns of the dataset.
    """
    block = conform(block, preparation.columns.carried)
    # At least once, since a step that yields nothing for an empty block would lose the columns of an empty dataset.
    for start in range(0, max(len(block), 1), batch_rows):
        table = block.slice(start, batch_rows)
        rows = python_rows(table)
        requests = [preparation.row_shape.requests(row) for row in rows]
        repeated = with_shapes(table, requests, preparation.columns)
        yield repeated.append_column(PREPARED, prepare(requests, preparation)).append_column(
            ROW_ID, pa.array([row_id(row) for row in rows], pa.string())
        )


def row_id(row: dict[str, Any]) -> str:
    """The MD5 of a row's content, in hex: rows of a dataset have no position as identity, so equal rows share an id."""
    # `default` for dates, bytes and the like. Callers keep the hash with rows, so what it is made of must not change.
    text = json.dumps(row, default=str, sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


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
        ids = block.column(ROW_ID).to_pylist()
        rows = prepared_rows(block)
        outcomes = outcomes_of(rows, self._actor.score(work_of(self._holder, ids), requests_of(rows)))
        return scored_table(self._columns, block, ids, outcomes)


def work_of(holder: str | None, ids: Sequence[str]) -> str:
    """The name of a block's work, equal when a restarted actor repeats it: the actor and the rows."""
    return f"{holder}-{hashlib.md5(''.join(ids).encode(), usedforsecurity=False).hexdigest()}"
