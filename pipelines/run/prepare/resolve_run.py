"""Resolves a run before the first row is scored: its files, their shape, its columns, its model, its part size."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from actors.engine.engine_arguments import check_installed
from actors.engine.protocol import Task
from actors.errors import OutputError, SettingsError
from actors.records import Reasoning
from actors.reward_model import RewardModel, resolve_model
from pipelines.data.corpus.assay_folders import repeated_rows
from pipelines.data.corpus.corpus_files import FileKind, InputFile, limit_files
from pipelines.data.corpus.find_corpus import find_corpus
from pipelines.data.corpus.readers import BLANK, raw_rows
from pipelines.data.corpus.units import Unit
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.carried_columns import carried_columns, types_text
from pipelines.folders.run_folder.columns import FROM_STORE, REASONED, Columns
from pipelines.folders.run_folder.earlier_run import if_begun
from pipelines.folders.run_folder.manifest import Manifest, read_manifest
from pipelines.run.prepare.choose_shape import own_columns_of, preview_of
from pipelines.run.prepare.preview import check_preview, fill_fields
from pipelines.run.prepare.row_sample import RowSample, read_sample
from pipelines.run.prepare.score_requests import Preparation
from pipelines.settings.run_settings import CorpusSettings, DatasetSettings, JudgingSettings, RunSettings, Turns

_PARTS = 200  # enough to show progress, few enough to list quickly; more where a part would have too many rows
_MIN_PART_ROWS, _MAX_PART_ROWS = 64, 4096
_MIN_PART_ROWS_GENERATING = 8  # rows for a judge or a policy, which generate text: a row may take minutes
_MAX_CALLS = 32  # parts that an actor works on at a time
# A worker holds a few blocks, and several times their size in Python objects.
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 64 * 1024, 64 * 2**20
# A prepared row holds its record, its flat columns, the texts of its responses, and four bytes per token; a token is three
# to four bytes of text.
_PREPARED_GROWTH = 4


@dataclass(frozen=True)
class ResolvedRun:
    """What a run reads, how, and in which pieces.

    `row_bytes` is an estimate of the mean size of a row in its file. `shape_found` are sentences for the user: the shape of
    the rows, how many of the sample have it and can't be judged, and the like. `left_out` are paths in the input's folders
    that aren't read.
    """

    files: tuple[InputFile, ...]
    preparation: Preparation
    part_rows: int
    block_bytes: int
    row_bytes: float = 0.0
    shape_found: str = ""
    left_out: Sequence[str] = ()


def resolve(
    settings: JudgingSettings,
    reserved: tuple[str, ...] = (),
    *,
    unanswered: bool = False,
    notify: Callable[[str], None] = lambda text: None,
    weights: bool = True,
    more_rows: int | None = None,
) -> ResolvedRun:
    """Resolve a run. Raises a `UserError` for whatever is wrong with the input, the settings or the model.

    `reserved` are column names that the input may not have, beside ours. `unanswered`: the rows are prompts, which a policy
    will answer. `notify` receives messages about files while there are many to look at. For a plan: `weights` may be
    missing, and the corpus may have `more_rows` than the input.
    """
    corpus = settings.corpus
    check_installed(settings.engine)
    if settings.append and corpus.limit is not None:
        raise SettingsError("--append adds whole files, so it doesn't go with --limit")
    own_columns_of(corpus, unanswered=unanswered)  # for its errors, before any file is opened
    # A file of the earlier run that has the same tag in its store isn't opened again.
    earlier = _read_earlier_manifest(settings)
    files, left_out, schemas = find_corpus(corpus.inputs, earlier=_earlier_files(earlier, corpus), notify=notify)
    if corpus.limit is not None:
        files = limit_files(files, list(_limited_extents(files, corpus.limit, corpus.max_record_bytes)))
    sample = read_sample(files, corpus.max_record_bytes)
    preview = preview_of(corpus, sample.rows, unanswered=unanswered)
    parallel = settings.engine.tensor_parallel
    model = resolve_model(settings.model, settings.render, corpus.turns is Turns.ALL, parallel, weights=weights)
    preview = fill_fields(preview, model.model, model.family.field_names, model.family.needed_fields)
    objects: list[Mapping[str, Any]] = [row for row in sample.rows if isinstance(row, dict)]
    fields = preview.row_shape.fields
    preparation = preparation_of(
        carried_columns(files, objects, schemas, None if earlier is None else earlier.columns.carried, fields),
        model,
        preview.row_shape,
        settings,
        reserved,
        text=None if earlier is None else earlier.columns.text,  # as the parts in the folder do
    )
    columns = preparation.columns
    # Of JSON all fields, also those that no column carries: the record goes into the part as it is.
    columns.check(name for row in objects for name in row)
    unjudgeable = check_preview(preview, preparation)
    rows, row_bytes = _rows_and_bytes(files, sample)
    min_part_rows, parts = _MIN_PART_ROWS_GENERATING if model.task.writes or unanswered else _MIN_PART_ROWS, _PARTS
    if settings.model.endpoint.batch:  # all parts at once, so that few batches hold all prompts
        min_part_rows, parts = _MIN_PART_ROWS, _MAX_CALLS
    part_rows = settings.work.part_rows or max(min_part_rows, min(_MAX_PART_ROWS, int((more_rows or rows) / parts)))
    blocks = block_bytes(part_rows, row_bytes)
    uncarried = "" if columns.is_json else types_text(schemas.values(), columns.carried)
    published = model.family.knows(model.known_as)
    terms = f"{model.model}: {published.terms}" if published and published.terms else ""
    notes = (preview.explain(), uncarried, unjudgeable, *map(repeated_rows, corpus.inputs), terms)
    return ResolvedRun(
        tuple(files),
        preparation,
        part_rows,
        blocks,
        row_bytes,
        ". ".join(filter(None, notes)),
        tuple(left_out),
    )


def block_bytes(part_rows: int, row_bytes: float) -> int:
    """The target size of a block in bytes: about one part of prepared rows, and less where rows are large.

    `row_bytes` is the size of a row in its file.
    """
    return min(_MAX_BLOCK_BYTES, max(_MIN_BLOCK_BYTES, int(part_rows * row_bytes * _PREPARED_GROWTH)))


def preparation_of(
    carried: pa.Schema,
    model: RewardModel,
    row_shape: RowShape,
    settings: RunSettings | DatasetSettings,
    reserved: tuple[str, ...] = (),
    *,
    text: bool | None = None,
) -> Preparation:
    """How rows become prompts, and the columns of their responses.

    `carried` are the input's columns, `reserved` further names that they may not have. `text`: whether parts hold responses'
    texts; by default as the settings say.
    """
    family = model.family
    reasoning = model.reasoning_by(settings.render)
    columns = Columns(
        carried,
        family.outputs(),
        settings.prefix,
        family.steps,
        reserved=reserved,
        votes=family.task is Task.GENERATE,
        trace=model.judge.trace,
        drawn=row_shape.unanswered,
        text=settings.text if text is None else text,
        mixed=row_shape.is_mixed,
        row_outputs=family.row_outputs,
        within_row=family.is_within_row(model.weights),
        flags=(
            *((REASONED,) if reasoning in (Reasoning.STRIP, Reasoning.KEEP) else ()),
            *((FROM_STORE,) if settings.store is not None else ()),
        ),
    )
    return Preparation(model, settings.render, row_shape, columns)


def _read_earlier_manifest(settings: JudgingSettings) -> Manifest | None:
    """The manifest of the run in the output folder, if that has begun, can be read and isn't to be overwritten."""
    try:
        return None if settings.overwrite else if_begun(settings.output, read_manifest(settings.output))
    except OutputError:  # what is wrong with the folder is said where it is opened
        return None


def _earlier_files(earlier: Manifest | None, corpus: CorpusSettings) -> dict[str, InputFile]:
    """The files of an earlier run by path. None of one with a limit, by which their extents are cut."""
    if earlier is None or earlier.identity.get("limit") is not None or corpus.limit is not None:
        return {}
    return {file.path: file for file in earlier.files}


def _rows_and_bytes(files: Sequence[InputFile], sample: RowSample) -> tuple[float, float]:
    """Estimates of the number of rows and of the bytes per row. Exact for Parquet; else from the sampled rows."""
    if files and files[0].kind is FileKind.PARQUET:
        rows = sum(file.extent or 0 for file in files)
        return rows, sum(file.size for file in files) / max(rows, 1)
    sizes = sample.record_bytes or [1]  # of an empty file, whose rows are 0 by any size
    mean = sum(sizes) / len(sizes)
    return sum(file.size for file in files) / mean, mean


def _limited_extents(files: Sequence[InputFile], limit: int, max_record_bytes: int) -> Iterator[int | None]:
    """The extent of each file if only the first `limit` rows of the corpus count; None for a file that counts whole."""
    missing = limit
    for file in files:
        if missing == 0:
            yield 0
        elif file.kind is FileKind.PARQUET:
            counted = min(missing, file.extent or 0)
            missing -= counted
            yield counted
        else:
            # Read and not estimated, as an extent is a promise: the audit demands parts that end exactly there.
            rows = (row for row in raw_rows(Unit(file, None), max_record_bytes) if row.note != BLANK)
            ends = [row.end for row in itertools.islice(rows, missing)]
            missing -= len(ends)
            yield ends[-1] if ends and missing == 0 else None
