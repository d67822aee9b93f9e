"""Scoring and filtering Ray Datasets: what the main job does with folders, as steps of somebody's own pipeline.

`score` and `keep` are lazy, as Ray Data is. `top_k` and `top_fraction` must see everything first, so they run what they are
given, once, and hold it in Ray's object store.

Nothing is committed: a dataset that is run again is scored again. What goes wrong in a worker reaches whoever runs the
dataset as an error of Ray's (`ray.exceptions.RayError`), with our message at the end of its traceback. Where we run it
ourselves, it is ours.
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

from actors.errors import AssayError, RunStopped, SettingsError, SourceError
from actors.reward_model import resolve_model
from pipelines import storage
from pipelines.corpus.readers import PREPARED
from pipelines.datasets.known_datasets import known_schema, reader_of, remember, schema_of
from pipelines.datasets.parts_source import PartsSource
from pipelines.datasets.score_rows import ROW_ID, RowStep, conformed, prepare_rows
from pipelines.exports.read_back import Reader
from pipelines.filtering import passes
from pipelines.filtering.filter_step import EvaluatedRows, ResponseEvaluator, Selection
from pipelines.prepare import resolve_run
from pipelines.prepare.score_requests import Preparation, strips_reasoning
from pipelines.runtime.engine_pool import engine_pool, ledger
from pipelines.runtime.workers import OnRay
from pipelines.scored_corpus import scored_folder
from pipelines.scored_corpus.columns import PROMPT_HASH, REASON, RESPONSE, REWARD, ROW, STATUS
from pipelines.scored_corpus.expressions import Condition, Evaluator
from pipelines.scored_corpus.parts import Parts
from pipelines.scoring.score_corpus import stop_reason
from pipelines.settings.options import build
from pipelines.settings.run_settings import ChoiceSettings, DatasetSettings, Turns

_SAMPLE_ROWS = 1000
_MET = "met"
_JUDGED_BY = (ROW, RESPONSE, PROMPT_HASH, REWARD, STATUS, REASON)


def score(dataset: Dataset, *, model: str, **options: Any) -> Dataset:
    """Score the responses in a dataset: every column as it is, a row per response, and Assay's columns.

    Lazy, but for a look at the first rows, which tell the shape and the columns. `row` is the MD5 of the input row's
    content, whatever the blocks: equal rows share it. Raises a `UserError` for what is wrong with the rows, the settings
    or the model.
    """
    settings = build(DatasetSettings, {"model": model, **options})
    schema, sample = look(dataset)
    check_names(schema)
    row_shape = resolve_run.row_shape_of(settings.rows, sample)
    resolved = resolve_model(
        settings.model, settings.render, settings.rows.turns is Turns.ALL, settings.engine.tensor_parallel
    )
    reasoning = resolved.reasoning_by(settings.render)
    columns = resolve_run.columns_of(schema, resolved, settings.prefix, reasoning=reasoning)
    columns.check(())
    preparation = Preparation(resolved, settings.render, row_shape, columns)
    resolve_run.check_principles(preparation, sample)
    resolve_run.check_reasoning(preparation, sample)
    resolve_run.check_comparable(preparation, sample)
    scored = dataset.map_batches(
        functools.partial(prepare_rows, preparation=preparation), batch_size=settings.batch_rows, batch_format="pyarrow"
    ).map_batches(
        RowStep,
        fn_constructor_args=(preparation, settings.engine, ledger(settings.pool)),
        batch_size=settings.batch_rows,
        batch_format="pyarrow",
        **engine_pool(settings.engine, settings.pool, settings.batch_rows),
    )
    stripped = strips_reasoning(preparation)
    reader = Reader(columns, row_shape, made_up=not settings.engine.is_vllm, stripped=stripped)
    return remember(scored, columns.schema, reader)


def keep(dataset: Dataset, condition: str) -> Dataset:
    """Keep the rows that meet an SQL condition over the columns of the dataset. Lazy.

    Raises `ExpressionError` at once if the condition can't be used, with the columns that there are.
    """
    schema = schema_of(dataset)
    checked = Condition.check(condition, schema)
    needed = pa.schema([schema.field(name) for name in checked.columns])
    kept = dataset.map_batches(
        functools.partial(_met, condition=checked, needed=needed), batch_size=None, batch_format="pyarrow"
    )
    return remember(kept, schema, reader_of(dataset))


def top_fraction(
    dataset: Dataset, fraction: float, *, by: str | None = None, keep: str | None = None, prefix: str | None = None
) -> Dataset:
    """Keep the best fraction of the scored responses that meet `keep`, by the reward or the number `by`, both SQL.

    Exact. Runs the dataset, once. Among equals the same hash of `row` and `response_name` decides as in a folder; equal
    responses of equal rows are kept together or not at all. `prefix` says whose reward, if the dataset was scored twice.
    """
    return _chosen(dataset, {"top_fraction": fraction, "by": by, "keep": keep}, prefix)


def top_k(
    dataset: Dataset,
    k: int,
    *,
    per: str | None = None,
    by: str | None = None,
    keep: str | None = None,
    min_gap: float | None = None,
    prefix: str | None = None,
) -> Dataset:
    """Keep the `k` best scored responses to each prompt, or of each `row`; otherwise as `top_fraction`.

    With `min_gap` only where the best is ahead of the next by this much. Equal rows are one row.
    """
    return _chosen(dataset, {"top_k": k, "per": per, "by": by, "keep": keep, "min_gap": min_gap}, prefix)


def read_scored(folder: str, *, partial: bool = False) -> Dataset:
    """The parts of a scored folder as a dataset. Raises a `UserError` if it isn't complete, unless `partial` is given."""
    manifest = scored_folder.read_scored_manifest(folder)
    entries = scored_folder.audit_parts(folder, manifest, partial)
    schema = manifest.columns.schema
    if entries:
        source = PartsSource(Parts(storage.absolute(folder), manifest.run), entries, schema)
        dataset = ray.data.read_datasource(source, override_num_blocks=len(entries))
    else:
        dataset = ray.data.from_arrow(schema.empty_table())
    return remember(dataset, schema, Reader.of(manifest))


def look(dataset: Dataset) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """The columns of a dataset, and its first rows. Raises `SourceError` if they don't go together."""
    try:
        first: Any = dataset.take_batch(_SAMPLE_ROWS, batch_format="pyarrow")
    except ValueError:  # Ray's way to say that there are no rows
        return schema_of(dataset), []
    # Ray says what the first block holds, or what the files do; a block of nulls alone has no types.
    return _unified([schema_of(dataset), first.schema]), first.to_pylist()


def check_names(schema: pa.Schema) -> None:
    """Raise `SourceError` if a dataset has a column of a name that is ours."""
    if taken := {PREPARED, ROW_ID}.intersection(schema.names):
        raise SourceError(f"the dataset has a column {min(taken)!r}, a name that Assay needs while it works; rename it")


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    try:
        return pa.unify_schemas(list(schemas), promote_options="permissive").remove_metadata()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SourceError(f"the rows of the dataset don't have the same columns: {error}") from error


def _met(table: pa.Table, condition: Condition, needed: pa.Schema) -> pa.Table:
    looked_at = conformed(table.select([name for name in needed.names if name in table.column_names]), needed)
    met = Evaluator({_MET: condition.text}, condition.columns, condition.flat)(looked_at).column(_MET)
    return table.filter(met)


@dataclass(frozen=True)
class _Block:
    """Judges a block of a dataset, by its place among them."""

    judge: ResponseEvaluator
    schema: pa.Schema
    number: int

    def judged(self, source: pa.Table) -> Iterator[EvaluatedRows]:
        """See `passes.Judging`."""
        yield self.judge.judged(self.number, 0, conformed(source, self.schema), self.judge.evaluator())


def _chosen(dataset: Dataset, asked: dict[str, Any], prefix: str | None) -> Dataset:
    choice, reader = build(ChoiceSettings, asked), reader_of(dataset)
    within_row = reader is not None and reader.columns.within_row
    if (known := known_schema(dataset)) is not None:
        ResponseEvaluator.of(
            choice, _prefix(known, prefix), known, within_row=within_row
        )  # what can't be asked for should be told before anything runs
    with _told_as_ours():
        blocks = dataset.materialize().to_arrow_refs()
        schemas = ray.get([ray.remote(_schema_of).remote(block) for block in blocks])
        schema = _unified([known or pa.schema([]), *schemas])
        judge = ResponseEvaluator.of(choice, _prefix(schema, prefix), schema, within_row=within_row)
        hands = OnRay()
        judges = [_Block(judge, schema, at) for at in range(len(blocks))]
        sources = [passes.Source(own, block, own.number) for own, block in zip(judges, blocks, strict=True)]
        cut, won = None, list[list[Any]]([[]] * len(blocks))
        if choice.top_k is not None:
            won = passes.winners(hands, choice, sources)
        else:
            cut = passes.boundary(hands, choice, sources)
        kept = [
            hands.start(_choose, cut, own, block, *pieces, pieces=1)[0]
            for (own, block, _), pieces in zip(sources, won, strict=True)
        ]
        chosen = ray.data.from_arrow_refs(kept) if kept else ray.data.from_arrow(schema.empty_table())
    return remember(chosen, schema, reader_of(dataset))


def _schema_of(table: pa.Table) -> pa.Schema:
    return table.schema


def _choose(cut: Selection | None, own: _Block, block: pa.Table, *won: pa.Table) -> list[pa.Table]:
    selection = cut or passes.join_winners(won)
    (judged,) = own.judged(block)
    chosen = pc.is_null(selection.reasons(judged)).to_numpy(zero_copy_only=False) & ~np.isnan(judged.values)
    return [judged.table.filter(pa.array(chosen))]


def _prefix(schema: pa.Schema, prefix: str | None) -> str:
    """The prefix of the columns of a scored dataset."""
    starts = [name.removesuffix(RESPONSE) for name in schema.names if name.endswith(RESPONSE)]
    found = [start for start in starts if all(start + name in schema.names for name in _JUDGED_BY)]
    if prefix is None and len(found) > 1:
        raise SettingsError(f"the dataset was scored more than once; choose one with prefix=, of {_listed(found)}")
    if not found or prefix not in (None, *found):
        wanted = _listed([(prefix or "") + name for name in _JUDGED_BY])
        raise SourceError(f"the best are chosen among scored responses, which have {wanted}; the columns here are "
                          f"{_listed(schema.names)}")  # fmt: skip
    return found[0] if prefix is None else prefix


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


@contextmanager
def _told_as_ours() -> Iterator[None]:
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, AssayError) else RunStopped(stop_reason(error))) from error
