"""From raw rows to prepared rows: parsed, checked, rendered to token ids. Runs on CPUs, before the scoring actors."""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from actors.errors import Rejected
from actors.records import Reason, Reasoning, RenderedRequest, Score, ScoreRequest
from actors.rendering.renderer import Renderer
from actors.reward_model import RewardModel
from actors.scorers.head_scorer import Scores
from actors.settings.replica import RenderSettings
from pipelines.corpus.readers import BLANK, END, FILE, NOTE, PREPARED, RECORD, START
from pipelines.formats import RowRequests, RowShape, Unjudgeable, parse
from pipelines.scored_corpus.columns import Columns, scalar_column


@dataclass(frozen=True)
class Preparation:
    """Everything that decides how a row becomes prompts: how it is read, and how it is rendered. Travels to every worker."""

    model: RewardModel
    render: RenderSettings
    row_shape: RowShape
    columns: Columns

    def requests(self, row: object) -> RowRequests:
        """The requests of a row; of a prompt, a request with a response that isn't there yet."""
        return self.row_shape.requests(row)


class Outcome(NamedTuple):
    """What one response of a row came to; `prompt_hash` is None if not even its context could be read."""

    response: str
    prompt_hash: str | None
    score: Score


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """A row's responses in order, those rejected before rendering, and the rendered requests of the others."""

    names: tuple[str, ...]
    rejected: Mapping[str, Reason]
    requests: tuple[RenderedRequest, ...]

    def outcomes(self, scores: Sequence[Scores]) -> list[Outcome]:
        """One outcome per response, in row order; `scores` are those of `requests`."""
        found = {name: Outcome(name, None, Score.rejected(reason)) for name, reason in self.rejected.items()}
        for request, own in zip(self.requests, scores, strict=True):
            for response, score in zip(request.responses, own, strict=True):
                found[response.name] = Outcome(response.name, request.prompt_hash, score)
        return [found[name] for name in self.names]


def prepare(table: pa.Table, preparation: Preparation) -> pa.Table:
    """Raw rows in, the same rows out: their ranges, the carried columns, and each row's `PreparedRow`, pickled.

    The pickle is ours alone, written and read within one run; Arrow would need three levels of nested lists for it.
    """
    rows, carried = parse_rows(table, preparation)
    return append_prepared(table, render_table(rows, preparation), carried)


def parse_rows(table: pa.Table, preparation: Preparation) -> tuple[list[RowRequests | None], pa.Table]:
    """What raw rows ask for, None for a stretch without a row; and the carried columns."""
    return (_json_rows if preparation.columns.is_json else _parquet_rows)(table, preparation)


def append_prepared(table: pa.Table, prepared: pa.Array, carried: pa.Table) -> pa.Table:
    """The ranges of raw rows, their carried columns, and what was prepared of each."""
    columns = {name: table.column(name) for name in (FILE, START, END)} | {PREPARED: prepared}
    return pa.table(columns | dict(zip(carried.column_names, carried.columns, strict=True)))


def render_table(rows: Sequence[RowRequests | None], preparation: Preparation) -> pa.Array:
    """The `PreparedRow` of each row, pickled."""
    requests = iter(renderer(preparation.model, preparation.render).render(_all_requests(rows)))
    prepared = [None if row is None else _prepared(row, requests) for row in rows]
    return pa.array([pickle.dumps(row) for row in prepared], pa.large_binary())


def _prepared(row: RowRequests, rendered: Iterator[RenderedRequest]) -> PreparedRow:
    rejected = {bad.name: bad.reason for bad in row.rejected}
    return PreparedRow(row.names, rejected, tuple(next(rendered) for _ in row.requests))


def prepared_rows(table: pa.Table) -> list[PreparedRow | None]:
    """The rows of a table that `prepare` made; None stands for a stretch without a row."""
    return [pickle.loads(blob.as_buffer()) for blob in table.column(PREPARED)]


def reasoning_of(preparation: Preparation) -> Reasoning:
    """What becomes of reasoning in what is judged. Where nobody says, it has no reward."""
    return preparation.model.reasoning_by(preparation.render) or Reasoning.REJECT


def strips_reasoning(preparation: Preparation) -> bool:
    """Whether rewards are of the answers alone."""
    return reasoning_of(preparation) is Reasoning.STRIP


def renderer(model: RewardModel, render: RenderSettings) -> Renderer:
    """One renderer per process and model: a tokenizer takes seconds to load."""
    return _renderer_of(pickle.dumps((model, render)))


@lru_cache(maxsize=4)
def _renderer_of(settings: bytes) -> Renderer:
    return Renderer(*pickle.loads(settings))


def _all_requests(rows: Sequence[RowRequests | None]) -> list[ScoreRequest]:
    return [request for row in rows if row is not None for request in row.requests]


def _json_rows(table: pa.Table, preparation: Preparation) -> tuple[list[RowRequests | None], pa.Table]:
    objects = [
        _object(note, record)
        for note, record in zip(table.column(NOTE).to_pylist(), table.column(RECORD).to_pylist(), strict=True)
    ]
    rows = [_json_requests(found, preparation) for found in objects]
    fields = [found if isinstance(found, dict) else {} for found in objects]
    columns = [table.column(RECORD).combine_chunks()]
    for field in list(preparation.columns.carried)[1:]:
        columns.append(scalar_column([row.get(field.name) for row in fields], field.type))
    return rows, pa.table(columns, preparation.columns.carried)


def _object(note: str | None, record: bytes | None) -> dict[str, Any] | Reason | None:
    """The row as an object, the reason why it is none, or None for a stretch without a row."""
    if note == BLANK:
        return None
    if note is not None or record is None:
        return Reason(note or Reason.RECORD_TOO_LARGE)
    try:
        return parse(record)
    except Rejected as rejected:
        return rejected.reason


def _json_requests(found: dict[str, Any] | Reason | None, preparation: Preparation) -> RowRequests | None:
    if found is None:
        return None
    if isinstance(found, Reason):
        return RowRequests.broken(found)
    asked = preparation.requests(found)
    if preparation.columns.collision(found):
        # With two fields of one name in the output, whoever reads it would take either.
        return RowRequests(asked.names, (), tuple(Unjudgeable(name, Reason.COLUMN_COLLISION) for name in asked.names))
    return asked


def _parquet_rows(table: pa.Table, preparation: Preparation) -> tuple[list[RowRequests | None], pa.Table]:
    carried = preparation.columns.carried
    own = table.select([name for name in table.column_names if name in carried.names])
    rows: list[RowRequests | None] = [preparation.requests(row) for row in own.to_pylist()]
    columns = [
        own.column(field.name).cast(field.type) if field.name in own.column_names else pa.nulls(len(own), field.type)
        for field in carried
    ]
    return rows, pa.table(columns, carried)
