"""Rows of a part, ready to be scored again: read from the part itself, which holds the input's columns.

A *request* is a context with its responses within one input row. It is the unit that is scored again: judges compare its
responses, and some heads give outputs relative to the others.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from actors.records import RenderedRequest
from actors.scorers.head_scorer import Scores
from pipelines.data.corpus.readers import END, FILE, JSON_SCHEMA, NOTE, RECORD, START
from pipelines.folders.run_folder.columns import ROW, Columns
from pipelines.folders.run_folder.part import Part
from pipelines.run.prepare.score_requests import Outcome, Preparation, PreparedRow, prepare, prepared_rows

# The key in a part's metadata of the requests that were drawn again: `ROW RESPONSE` to `Redraws`, as JSON.
REDRAWS_KEY = "assay_redraws"


class Redraws(NamedTuple):
    """How often a request was drawn again, and which of these draws (0: the first) its outcomes in the part are of.

    They differ where a draw was no better than what was there: the next one needs new seeds, and `verify` the kept ones.
    """

    tried: int = 0
    kept: int = 0


@dataclass(frozen=True)
class RescoredRequest:
    """A request that is scored again. `texts` are the judged texts by response, as the part has them."""

    row: str
    request: RenderedRequest
    texts: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(response.name for response in self.request.responses)

    @property
    def id(self) -> str:
        """The row and the first response, which no other request has."""
        return f"{self.row} {self.names[0]}"

    def with_redraw(self, redraw: int) -> "RescoredRequest":
        """The same with prompts that are drawn again for the `redraw`-th time."""
        prompts = tuple(replace(prompt, redraw=redraw) for prompt in self.request.prompts)
        return replace(self, request=replace(self.request, prompts=prompts))

    def outcomes(self, scores: Scores) -> list[Outcome]:
        return PreparedRow(self.names, (), (self.request,), self.texts).outcomes([scores])


@dataclass(frozen=True)
class PartWork:
    """Requests of a part that are scored again. Pickled from the worker that prepares them to the one with the engine."""

    part: Part
    requests: tuple[RescoredRequest, ...]


def read_redraws(table: pa.Table) -> dict[str, Redraws]:
    """The redraws of a part's requests, by their ids; those that aren't there were never drawn again."""
    redraws_json = (table.schema.metadata or {}).get(REDRAWS_KEY.encode())
    return {name: Redraws(*numbers) for name, numbers in json.loads(redraws_json).items()} if redraws_json else {}


def prepare_requests(
    part: Part, table: pa.Table, names_by_row: Mapping[str, Collection[str]], preparation: Preparation
) -> list[RescoredRequest]:
    """Requests of a part's table, parsed and rendered as they were the first time.

    `names_by_row` has names of responses: a request is taken if any of its responses is among them.
    """
    rows = table.column(preparation.columns.prefix + ROW).to_pylist()
    # Every response of a row repeats its columns, so the first of them is enough. Reversed, as the last assignment counts.
    first_index = {row: index for index, row in reversed(list(enumerate(rows))) if row in names_by_row}
    row_ids = sorted(first_index, key=lambda row: first_index[row])
    raw = _raw_rows(
        table.take(pa.array([first_index[row] for row in row_ids], pa.int64())), row_ids, part.file, preparation.columns
    )
    return [
        RescoredRequest(
            row_id, request, {response.name: row.texts[response.name] for response in request.responses if row.texts}
        )
        for row_id, row in zip(row_ids, prepared_rows(prepare(raw, preparation)), strict=True)
        if row is not None
        for request in row.requests
        if any(response.name in names_by_row[row_id] for response in request.responses)
    ]


def _raw_rows(table: pa.Table, names: Sequence[str], file: int, columns: Columns) -> pa.Table:
    starts = [int(name.rpartition(":")[2]) for name in names]  # of FILE:START, whose file's name may hold colons, too
    places = {
        FILE: pa.array([file] * len(names), pa.int32()),
        START: pa.array(starts, pa.int64()),
        END: pa.array([start + 1 for start in starts], pa.int64()),  # not known any more, and not used
    }
    if not columns.is_json:
        return pa.table({**places, **{name: table.column(name) for name in columns.carried.names}})
    notes = pa.nulls(len(names), pa.string())
    return pa.table({**places, NOTE: notes, RECORD: table.column(RECORD)}, JSON_SCHEMA)
