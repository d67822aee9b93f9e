"""Scoring and filtering Ray Datasets: the jobs on folders, as steps of a caller's pipeline.

`score`, and a filter by a condition, are lazy, as Ray Data is. Which are the best depends on all rows, so that this
executes the dataset, once, and holds it in Ray's object store.

Nothing is committed: a dataset that is executed again is scored again. An error in a worker reaches the caller who executes
the dataset as `ray.exceptions.RayError`, with our message at the end of its traceback. Where these functions execute it, the
error is raised as ours.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data import Dataset

from actors.errors import AssayError, SettingsError, SourceError
from actors.records import Reasoning
from actors.reward_model import resolve_model
from actors.settings.replica import EngineSettings
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.corpus.readers import PREPARED
from pipelines.folders.run_folder.columns import PROMPT_HASH, REASON, RESPONSE, REWARD, ROW, STATUS
from pipelines.folders.scored_corpus import scored_folder
from pipelines.folders.scored_corpus.expressions import Condition, Evaluator
from pipelines.folders.scored_corpus.read_back import Reader
from pipelines.results.filtering.filter_step import EvaluatedRows, ResponseEvaluator, Selection
from pipelines.results.filtering.selection import choose
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.choose_shape import preview_of
from pipelines.run.prepare.identity import open_score_store
from pipelines.run.prepare.preview import check_preview, fill_fields
from pipelines.run.prepare.score_requests import Preparation, reasoning_of
from pipelines.run.runtime.engine_pool import engine_pool, start_ledger
from pipelines.run.runtime.workers import OnRay
from pipelines.run.scoring.score_corpus import run_stopped
from pipelines.settings.filter_settings import ChoiceSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import DatasetSampleSettings, DatasetSettings, Turns
from pipelines.workflows.datasets.blocks import (
    conform,
    known_schema,
    reader_of,
    register,
    schema_of,
    with_plain_blocks,
    with_types_of,
)
from pipelines.workflows.datasets.parts_source import PartsSource
from pipelines.workflows.datasets.score_rows import ROW_ID, RowStep, prepare_rows

_SAMPLE_ROWS = 1000  # first rows that are read to recognise the shape and the columns
_MET = "met"
_SELECTION_COLUMNS = (ROW, RESPONSE, PROMPT_HASH, REWARD, STATUS, REASON)


def score(dataset: Dataset, *, model: str, **options: Any) -> Dataset:
    """Score the responses in a dataset: one row per response, with every input column unchanged and Assay's columns.

    Lazy, except that the first rows are read for their shape and columns. `row` is the MD5 of the input row's content,
    whatever the blocks; equal rows share it. Raises a `UserError` if rows, settings or model are unusable.
    """
    settings = build(DatasetSettings, {"model": model, **options})
    dataset, preparation = prepare_dataset(dataset, settings)
    scored = dataset.map_batches(
        functools.partial(prepare_rows, preparation=preparation, batch_rows=settings.batch_rows),
        batch_size=None,
        batch_format="pyarrow",
    ).map_batches(
        RowStep,
        fn_constructor_args=(
            preparation,
            settings.engine,
            start_ledger(settings.pool),
            open_score_store(settings.store, preparation.model, settings.engine),
        ),
        batch_size=settings.batch_rows,
        batch_format="pyarrow",
        **engine_pool(settings.engine, settings.pool, settings.batch_rows),
    )
    return register_scored(scored, preparation, settings.engine)


def prepare_dataset(
    dataset: Dataset, settings: DatasetSettings | DatasetSampleSettings, *, unanswered: bool = False
) -> tuple[Dataset, Preparation]:
    """The dataset with plain blocks, and how its rows become prompts, by its first rows and the settings.

    Raises a `UserError` if rows, settings or a model are unusable.
    """
    dataset = with_plain_blocks(dataset)
    schema, sample = _read_first_rows(dataset)
    preview = preview_of(settings.rows, sample, unanswered=unanswered)
    all_turns, parallel = settings.rows.turns is Turns.ALL, settings.engine.tensor_parallel
    model = resolve_model(settings.model, settings.render, all_turns, parallel)
    preview = fill_fields(preview, model.model, model.family.field_names, model.family.needed_fields)
    preparation = resolve_run.preparation_of(schema, model, preview.row_shape, settings)
    preparation.columns.check(())  # of no names of rows: the columns of a dataset are all carried
    check_preview(preview, preparation)
    return dataset, preparation


def register_scored(
    dataset: Dataset, preparation: Preparation, engine: EngineSettings, system: str | None = None
) -> Dataset:
    """Register a scored dataset, whose rows are read as they were prepared, and return it."""
    columns, stripped = preparation.columns, reasoning_of(preparation) is Reasoning.STRIP
    reader = Reader(columns, preparation.row_shape, system, made_up=engine.engine == "fake", stripped=stripped)
    return register(dataset, columns.schema, reader)


def filter_dataset(
    dataset: Dataset,
    where: str | None = None,
    *,
    top_k: int | None = None,
    top_fraction: float | None = None,
    per: str | None = None,
    by: str | None = None,
    min_gap: float | None = None,
    prefix: str | None = None,
) -> Dataset:
    """Keep the rows that meet an SQL condition over the columns of the dataset, or the best of these.

    A condition alone is lazy, as Ray Data is. `top_k` and `top_fraction` depend on all rows: they execute the dataset once,
    and are exact. Among equal values, the same hash of `row` and `response_name` decides as in a folder; equal responses of
    equal rows are kept together or not at all. `prefix` selects the scores of a dataset that was scored twice.

    Raises `ExpressionError` at once for a condition that can't be used, with the columns that there are, and `SettingsError`
    if there is nothing to filter by.
    """
    if top_k is not None or top_fraction is not None:
        choice = {"top_k": top_k, "top_fraction": top_fraction, "per": per, "by": by, "where": where, "min_gap": min_gap}
        return _select(dataset, choice, prefix)
    if where is None:
        raise SettingsError("there is nothing to filter by: give `where`, `top_k` or `top_fraction`")
    reader, dataset = reader_of(dataset), with_plain_blocks(dataset)
    schema = schema_of(dataset)
    checked = Condition.check(where, schema)
    # Only the columns of the condition are cast and evaluated: the others may hold objects that Arrow has no type for.
    needed = pa.schema([schema.field(name) for name in checked.columns])
    kept_rows = dataset.map_batches(
        functools.partial(_filter_block, condition=checked, needed=needed), batch_size=None, batch_format="pyarrow"
    )
    return register(kept_rows, schema, reader)


def read_scored(folder: str, *, partial: bool = False) -> Dataset:
    """Read a scored folder, or what a filter kept of one, as a dataset, a block per part of the scored folder.

    Raises a `UserError` if it isn't complete, unless `partial`.
    """
    corpus = scored_folder.open_scored(folder, "read_scored", partial=partial)
    manifest, schema = corpus.manifest, corpus.manifest.columns.schema
    if corpus.entries:
        source = PartsSource(corpus.responses, corpus.entries, schema)
        dataset = ray.data.read_datasource(source, override_num_blocks=len(corpus.entries))
    else:
        dataset = ray.data.from_arrow(schema.empty_table())
    return register(dataset, schema, Reader.of(manifest))


def _read_first_rows(dataset: Dataset) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """The columns of a dataset and its first rows.

    Raises `SourceError` if these don't fit the columns, or a column has a name that Assay uses internally.
    """
    schema, rows = schema_of(dataset), list[dict[str, Any]]()
    try:
        first: Any = dataset.take_batch(_SAMPLE_ROWS, batch_format="pyarrow")
    except ValueError:  # Ray raises it for a dataset without rows
        first = None
    if first is not None:
        # Ray takes the schema from the first block or the files, and a column of only nulls has no type there.
        schema, rows = _unify([schema, first.schema]), python_rows(first)
    if collisions := {PREPARED, ROW_ID}.intersection(schema.names):
        raise SourceError(f"the dataset has a column {min(collisions)!r}, a name that Assay needs while it works; rename it")
    return schema, rows


def _unify(schemas: Sequence[pa.Schema]) -> pa.Schema:
    try:
        return pa.unify_schemas(list(schemas), promote_options="permissive").remove_metadata()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SourceError(f"the rows of the dataset don't have the same columns: {error}") from error


def _filter_block(table: pa.Table, condition: Condition, needed: pa.Schema) -> pa.Table:
    # A column of nothing but null in this block is null, whatever its type is elsewhere: DuckDB couldn't compare it.
    columns = table.select([name for name in needed.names if name in table.column_names])
    columns = conform(columns, with_types_of(columns.schema, needed))
    is_met = Evaluator({_MET: condition.sql}, condition.columns, condition.flat)(columns).column(_MET)
    return table.filter(is_met)


@dataclass(frozen=True)
class _Block:
    """Evaluates a block of a dataset, as part `number` of it."""

    evaluator: ResponseEvaluator
    schema: pa.Schema
    number: int

    def evaluate(self, data: pa.Table) -> Iterator[EvaluatedRows]:
        yield self.evaluator.evaluate(self.number, 0, conform(data, self.schema), self.evaluator.compile())


def _select(dataset: Dataset, settings: dict[str, Any], prefix: str | None) -> Dataset:
    """The selection of `filter_corpus` with the blocks of an executed dataset in place of parts."""
    choice, reader = build(ChoiceSettings, settings), reader_of(dataset)
    within_row = reader is not None and reader.columns.within_row
    if (planned_schema := known_schema(dataset)) is not None:
        # Only for its errors: settings that can't be used should be refused before the dataset is executed.
        ResponseEvaluator.of(choice, _prefix(planned_schema, prefix), planned_schema, within_row=within_row)
    with _raising_our_errors():
        # In Ray's object store, and not read twice: the choice is made of all rows, and a second execution would score anew.
        blocks = with_plain_blocks(dataset).materialize().to_arrow_refs()
        schemas = ray.get([ray.remote(_schema_of).remote(block) for block in blocks])
        schema = _unify([planned_schema or pa.schema([]), *schemas])
        evaluator = ResponseEvaluator.of(choice, _prefix(schema, prefix), schema, within_row=within_row)
        sources = [(_Block(evaluator, schema, number), block) for number, block in enumerate(blocks)]
        with choose(OnRay(), choice, sources) as chosen:
            kept_blocks: list[Any] = [
                ray.remote(_keep_chosen).remote(chosen.selection(source.number, source.number), source, block)
                for source, block in sources
            ]
        kept_rows = ray.data.from_arrow_refs(kept_blocks) if kept_blocks else ray.data.from_arrow(schema.empty_table())
    return register(kept_rows, schema, reader_of(dataset))


def _schema_of(table: pa.Table) -> pa.Schema:
    return table.schema


def _keep_chosen(selection: Selection, evaluator: _Block, block: pa.Table) -> pa.Table:
    (rows,) = evaluator.evaluate(block)
    # A selection says nothing of rows that aren't candidates: their value is NaN.
    is_chosen = pc.is_null(selection.reasons(rows)).to_numpy(zero_copy_only=False) & ~np.isnan(rows.values)
    return rows.table.filter(pa.array(is_chosen))


def _prefix(schema: pa.Schema, prefix: str | None) -> str:
    """The prefix of Assay's columns. Raises `SettingsError` if it must be given, `SourceError` if there is none."""
    # Every scoring has all of these columns; an input's own column may end like one of them.
    starts = [name.removesuffix(RESPONSE) for name in schema.names if name.endswith(RESPONSE)]
    prefixes = [start for start in starts if all(start + name in schema.names for name in _SELECTION_COLUMNS)]
    if prefix is None and len(prefixes) > 1:
        raise SettingsError(f"the dataset was scored more than once; choose one with prefix=, of {_join_names(prefixes)}")
    if not prefixes or prefix not in (None, *prefixes):
        needed = _join_names([(prefix or "") + name for name in _SELECTION_COLUMNS])
        raise SourceError(f"the best are chosen among scored responses, which have {needed}; the columns here are "
                          f"{_join_names(schema.names)}")  # fmt: skip
    return prefixes[0] if prefix is None else prefix


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


@contextmanager
def _raising_our_errors() -> Iterator[None]:
    """Raise an error of ours in place of Ray's that wraps it; `RunStopped` for any other."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, AssayError) else run_stopped(error)) from error
