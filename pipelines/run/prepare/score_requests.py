"""From raw rows to prepared rows: parsed, checked, rendered to token ids. Runs on CPUs, before the scoring actors."""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from actors.errors import Rejected
from actors.records import Reason, Reasoning, RenderedRequest, Score
from actors.rendering.choose_renderer import AnyRenderer, renderer_of
from actors.reward_model import RewardModel
from actors.scorers.head_scorer import Scores
from actors.settings.replica import RenderSettings
from actors.text.reasoning import final_answer
from actors.text.tool_calls import write_turn
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.corpus.readers import BLANK, END, FILE, NOTE, PREPARED, RECORD, START
from pipelines.data.formats import RowRequests, RowShape, Unjudgeable, parse
from pipelines.folders.run_folder.carried_columns import carried_as, scalar_column
from pipelines.folders.run_folder.columns import SHAPE, Columns


@dataclass(frozen=True)
class Preparation:
    """Every setting that decides how a row becomes prompts: how it is read, and how it is rendered. Sent to every worker."""

    model: RewardModel
    render: RenderSettings
    row_shape: RowShape
    columns: Columns


class Outcome(NamedTuple):
    """The score of one response of a row, and its judged text.

    `prompt_hash` is None if its context couldn't be read. `text` is None if it couldn't be read, or isn't kept.
    """

    response: str
    prompt_hash: str | None
    score: Score
    text: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """A row's responses in order, those rejected before rendering, and the rendered requests of the others.

    `texts` are the judged texts by name; empty if the parts leave them out.
    """

    names: tuple[str, ...]
    rejected: Sequence[Unjudgeable]
    requests: tuple[RenderedRequest, ...]
    texts: Mapping[str, str] = field(default_factory=dict)

    def outcomes(self, scores: Sequence[Scores]) -> list[Outcome]:
        """One outcome per response, in row order; `scores` are those of `requests`."""
        # Names are unique within a row.
        by_name = {each.name: Outcome(each.name, None, Score.rejected(each.reason, each.detail)) for each in self.rejected}
        for request, request_scores in zip(self.requests, scores, strict=True):
            for response, score in zip(request.responses, request_scores, strict=True):
                text = self.texts.get(response.name)
                by_name[response.name] = Outcome(response.name, request.prompt_hash, score, text)
        return [by_name[name] for name in self.names]


def prepare(table: pa.Table, preparation: Preparation) -> pa.Table:
    """Raw rows in, the same rows out: their ranges, the carried columns, and each row's `PreparedRow`, pickled.

    The pickle is written and read within one run, and never stored. As Arrow columns it would be lists nested three deep.
    """
    rows, ranges = parse_rows(table, preparation.row_shape, preparation.columns)
    return ranges.append_column(PREPARED, render_table(rows, preparation))


def parse_rows(table: pa.Table, row_shape: RowShape, columns: Columns) -> tuple[list[RowRequests | None], pa.Table]:
    """The requests of raw rows, None for a range without a row; and their ranges with the columns that responses repeat."""
    rows, carried = (_json_rows if columns.is_json else _parquet_rows)(table, row_shape, columns)
    repeated = with_shapes(carried, rows, columns)
    ranges = {name: table.column(name) for name in (FILE, START, END)}
    return rows, pa.table(ranges | dict(zip(repeated.column_names, repeated.columns, strict=True)))


def with_shapes(table: pa.Table, rows: Sequence[RowRequests | None], columns: Columns) -> pa.Table:
    """The table with a column of its rows' shapes; unchanged if they all have the same one.

    By that column an export reads each row back as it was read here.
    """
    if not columns.mixed:
        return table
    return table.append_column(columns.prefix + SHAPE, pa.array([row and row.shape for row in rows], pa.string()))


def render_table(rows: Sequence[RowRequests | None], preparation: Preparation) -> pa.Array:
    """The `PreparedRow` of each row, pickled; None for a range without a row."""
    # All of a block in one call, in which the renderer tokenises prompts with a common beginning side by side.
    requests = [request for row in rows if row is not None for request in row.requests]
    rendered = iter(renderer(preparation.model, preparation.render).render(requests))
    prepared = [None if row is None else _prepared(row, rendered, preparation) for row in rows]
    return pa.array([pickle.dumps(row) for row in prepared], pa.large_binary())


def _prepared(row: RowRequests, rendered: Iterator[RenderedRequest], preparation: Preparation) -> PreparedRow:
    requests = row.requests if preparation.columns.text else ()
    texts = {
        response.name: judged_text(write_turn(response), preparation)
        for request in requests
        for response in request.responses
    }
    return PreparedRow(row.names, row.rejected, tuple(next(rendered) for _ in row.requests), texts)


def prepared_rows(table: pa.Table) -> list[PreparedRow | None]:
    """The rows of a table that `prepare` returned; None for a range without a row.

    Only of tables of this run: a pickle from elsewhere could run anything.
    """
    return [pickle.loads(blob.as_buffer()) for blob in table.column(PREPARED)]


def reasoning_of(preparation: Preparation) -> Reasoning:
    """How reasoning in judged texts is treated. By default such responses are rejected."""
    return preparation.model.reasoning_by(preparation.render) or Reasoning.REJECT


def judged_text(text: str, preparation: Preparation) -> str:
    """A response's text as it is judged: without reasoning, if that is stripped. Control tokens are as they were written."""
    return final_answer(text) if reasoning_of(preparation) is Reasoning.STRIP else text


def renderer(model: RewardModel, render: RenderSettings) -> AnyRenderer:
    """The renderer, one per process and model: a tokenizer takes seconds to load."""
    return _renderer_of(pickle.dumps((model, render)))


# Keyed by the pickle, since models and settings hold dicts and aren't hashable.
@lru_cache(maxsize=4)
def _renderer_of(settings: bytes) -> AnyRenderer:
    return renderer_of(*pickle.loads(settings))


def _json_rows(table: pa.Table, row_shape: RowShape, columns: Columns) -> tuple[list[RowRequests | None], pa.Table]:
    objects = [
        _object(note, record)
        for note, record in zip(table.column(NOTE).to_pylist(), table.column(RECORD).to_pylist(), strict=True)
    ]
    rows = [_json_requests(value, row_shape, columns) for value in objects]
    fields = [value if isinstance(value, dict) else {} for value in objects]
    # The record goes into the part byte by byte; its flat fields are columns beside it, for SQL.
    carried = [table.column(RECORD).combine_chunks()]
    for column in list(columns.carried)[1:]:
        carried.append(scalar_column([row.get(column.name) for row in fields], column.type))
    return rows, pa.table(carried, columns.carried)


def _object(note: str | None, record: bytes | None) -> dict[str, Any] | RowRequests | None:
    """The row as an object, its rejection if it is none, or None for a range without a row."""
    if note == BLANK:
        return None
    if note is not None or record is None:
        return RowRequests.broken(Reason(note or Reason.RECORD_TOO_LARGE))
    try:
        return parse(record)
    except Rejected as rejected:
        return RowRequests.broken(rejected.reason, rejected.detail)


def _json_requests(value: dict[str, Any] | RowRequests | None, row_shape: RowShape, columns: Columns) -> RowRequests | None:
    if value is None or isinstance(value, RowRequests):
        return value
    requests = row_shape.requests(value)
    if (name := columns.collision(value)) is not None:
        # Two fields of one name in an output row would be ambiguous for its readers.
        return requests.refused(Reason.COLUMN_COLLISION, f"the row has {name!r}, and so has the output")
    return requests


def _parquet_rows(table: pa.Table, row_shape: RowShape, columns: Columns) -> tuple[list[RowRequests | None], pa.Table]:
    carried = columns.carried
    input_columns = table.select([name for name in table.column_names if name in carried.names])
    rows: list[RowRequests | None] = [row_shape.requests(row) for row in python_rows(input_columns)]
    # A file that was written before a column was added has none: null, as in the rows of others that lack a value.
    carried_arrays = [
        carried_as(input_columns.column(column.name), column.type)
        if column.name in input_columns.column_names
        else pa.nulls(len(input_columns), column.type)
        for column in carried
    ]
    return rows, pa.table(carried_arrays, carried)
