"""Resolves a run before the first row is scored: its files, their shape, its columns, its model, its part size."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from actors.contracts.judge import Judge
from actors.engine.engine_arguments import check_installed
from actors.errors import OutputError, Rejected, SettingsError
from actors.records import Reasoning
from actors.reward_model import RewardModel, resolve_model
from actors.text.reasoning import count_reasoning
from pipelines.corpus.assay_folders import repeated_rows
from pipelines.corpus.corpus_files import FileKind, InputFile, find_corpus, limit_files
from pipelines.corpus.python_rows import python_rows
from pipelines.corpus.readers import BLANK, raw_rows
from pipelines.corpus.units import Unit
from pipelines.formats import (
    FORMATS,
    MIXED,
    PROMPT_FORMATS,
    PROMPT_SHAPES,
    SHAPES,
    OwnColumns,
    RowShape,
    Shape,
    check_column,
    check_mixed,
    detect,
    explain_detection,
    parse,
)
from pipelines.prepare.score_requests import Preparation
from pipelines.run_folder.columns import FROM_STORE, REASONED, Columns, carried_columns, left_in_record, types_text
from pipelines.run_folder.manifest import Manifest, read_manifest
from pipelines.settings.run_settings import CorpusSettings, JudgingSettings, RowSettings, Turns
from pipelines.storage import open_read

SAY_REASONING = (
    "Give --reasoning strip to judge the final answers, keep to judge all of it, or reject to leave these without a reward"
)

_SAMPLE_ROWS = 1000
_SAMPLE_ROWS_PER_FILE = 50
_MEASURED_FILES = 10
# Between these limits a corpus is cut into about 200 parts: enough to show progress, few enough to list quickly.
_MIN_PART_ROWS, _MAX_PART_ROWS = 64, 4096
_MIN_PART_ROWS_GENERATING = 8  # rows for a judge or a policy, which generate text: a row may take minutes
# A worker holds a few blocks, and several times their size in Python objects.
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 64 * 1024, 64 * 2**20
# A prepared row holds its record, its flat columns, the texts of its responses, and four bytes per token; a token is three
# to four bytes of text.
_PREPARED_GROWTH = 4


@dataclass(frozen=True)
class ResolvedRun:
    """A resolved run."""

    files: tuple[InputFile, ...]
    preparation: Preparation
    part_rows: int
    block_bytes: int
    row_bytes: float = 0.0
    """An estimate of the mean size of a row in its file."""
    shape_found: str = ""
    """Sentences for the user: the shape of the rows, how many of the sample have it, and which rows come several times."""
    left_out: Sequence[str] = ()
    """Paths in the input's folders that aren't read."""
    by_principles: bool = False
    """Whether the model judges by principles that rows of the sample have."""


def resolve(
    settings: JudgingSettings,
    reserved: tuple[str, ...] = (),
    *,
    unanswered: bool = False,
    notify: Callable[[str], None] = lambda text: None,
) -> ResolvedRun:
    """Resolve a run. Raises a `UserError` for whatever is wrong with the input, the settings or the model.

    `reserved` are column names that the input may not have, beside ours. `unanswered`: the rows are prompts, which a policy
    will answer. `notify` receives messages about files while there are many to look at.
    """
    corpus = settings.corpus
    check_installed(settings.engine)
    if settings.append and corpus.limit is not None:
        raise SettingsError("--append adds whole files, so it doesn't go with --limit")
    own_columns = own_columns_of(corpus, unanswered=unanswered)  # before any file is opened
    earlier = _read_earlier_manifest(settings)
    files, left_out, schemas = find_corpus(corpus.inputs, earlier=_earlier_files(earlier, corpus), notify=notify)
    first_rows = read_first_rows(files, corpus)
    sample = first_rows.rows
    shape = shape_of(corpus, own_columns, sample, unanswered=unanswered)
    model = resolve_model(settings.model, settings.render, corpus.turns is Turns.ALL, settings.engine.tensor_parallel)
    objects: list[Mapping[str, Any]] = [row for row in sample if isinstance(row, dict)]
    reasoning = model.reasoning_by(settings.render)
    row_shape = RowShape(shape.name, corpus.turns.value, own_columns, corpus.principle_column, unanswered)
    columns = columns_of(
        carried_columns(files, objects, schemas, None if earlier is None else earlier.columns.carried, row_shape.fields),
        model,
        settings.prefix,
        reserved,
        drawn=unanswered,
        mixed=row_shape.is_mixed,
        reasoning=reasoning,
        # As the parts of an earlier run in the folder do, else as the settings say.
        text=settings.text if earlier is None else earlier.columns.text,
        stored=settings.store is not None,
    )
    columns.check(name for row in objects for name in row)
    if corpus.limit is not None:
        files = limit_files(files, list(_limited_extents(files, corpus.limit, corpus.max_record_bytes)))
    preparation = Preparation(model, settings.render, row_shape, columns)
    check_principles(preparation, sample)
    check_reasoning(preparation, sample)
    if not unanswered:
        check_comparable(preparation, sample)
    rows, row_bytes = _rows_and_bytes(files, first_rows)
    min_part_rows = _MIN_PART_ROWS if model.task.pools and not unanswered else _MIN_PART_ROWS_GENERATING
    part_rows = settings.work.part_rows or max(min_part_rows, min(_MAX_PART_ROWS, int(rows / 200)))
    blocks = block_bytes(part_rows, row_bytes)
    left = left_in_record(objects, row_shape.fields) if columns.is_json else types_text(schemas.values(), columns.carried)
    shape_found = ". ".join(filter(None, (explain_detection(shape, sample), left, *map(repeated_rows, corpus.inputs))))
    return ResolvedRun(
        tuple(files),
        preparation,
        part_rows,
        blocks,
        row_bytes,
        shape_found,
        tuple(left_out),
        judges_by_principles(preparation, sample),
    )


def block_bytes(part_rows: int, row_bytes: float) -> int:
    """The target size of a block in bytes: about one part of prepared rows, and less where rows are large."""
    return min(_MAX_BLOCK_BYTES, max(_MIN_BLOCK_BYTES, int(part_rows * row_bytes * _PREPARED_GROWTH)))


def columns_of(
    carried: pa.Schema,
    model: RewardModel,
    prefix: str,
    reserved: tuple[str, ...] = (),
    *,
    drawn: bool = False,
    mixed: bool = False,
    reasoning: Reasoning | None = None,
    text: bool = True,
    stored: bool = False,
) -> Columns:
    """The columns of a run.

    `drawn`: a policy generates the responses; `mixed`: each row has a shape of its own; `reasoning`: how reasoning is
    treated; `text`: parts hold responses' texts; `stored`: there is a score store.
    """
    family = model.family
    is_judge = isinstance(family, Judge)
    return Columns(
        carried,
        family.outputs(),
        prefix,
        family.steps,
        reserved=reserved,
        votes=is_judge,
        trace=is_judge and model.judge.trace,
        drawn=drawn,
        text=text,
        mixed=mixed,
        within_row=isinstance(family, Judge) and family.is_within_row(model.weights),
        flags=(
            *((REASONED,) if reasoning in (Reasoning.STRIP, Reasoning.KEEP) else ()),
            *((FROM_STORE,) if stored else ()),
        ),
    )


def _read_earlier_manifest(settings: JudgingSettings) -> Manifest | None:
    """The manifest of the run in the output folder, if there is one that can be read and isn't to be overwritten."""
    try:
        return None if settings.overwrite else read_manifest(settings.output)
    except OutputError:  # what is wrong with the folder is said where it is opened
        return None


def _earlier_files(earlier: Manifest | None, corpus: CorpusSettings) -> dict[str, InputFile]:
    """The files of an earlier run by path. None of one with a limit, by which their extents are cut."""
    if earlier is None or earlier.identity.get("limit") is not None or corpus.limit is not None:
        return {}
    return {file.path: file for file in earlier.files}


def check_comparable(preparation: Preparation, sample: Sequence[object]) -> None:
    """Raise `SettingsError` if the model only compares responses and no sampled row has two: all would be rejected."""
    family = preparation.model.family
    if not isinstance(family, Judge) or min(family.counts) == 1 or not sample:
        return
    requests = (request for row in sample for request in preparation.requests(row).requests)
    if not any(len(request.responses) > 1 for request in requests):
        raise SettingsError(
            f"{preparation.model.model} compares the responses of a row, and none of the {len(sample)} rows looked at has "
            "two; --response-column takes a list of them"
        )


def check_reasoning(preparation: Preparation, sample: Sequence[object]) -> None:
    """Raise `SettingsError` if sampled responses hold reasoning and neither settings nor family say how to treat it."""
    if preparation.model.reasoning_by(preparation.render) is not None:
        return
    requests = [request for row in sample for request in preparation.requests(row).requests]
    if count := count_reasoning(requests):
        responses = sum(len(request.responses) for request in requests)
        raise SettingsError(
            f"{count} of the {responses} responses in the {len(sample)} rows looked at hold reasoning (<think>...</think>, "
            f"reasoning_content or the like), in themselves or in turns before them. {SAY_REASONING}"
        )


def check_principles(preparation: Preparation, sample: Sequence[object]) -> None:
    """Raise `SettingsError` if the model needs principles and no sampled row has one, or has a column it wouldn't read."""
    principle_column = preparation.row_shape.principle_column
    if principle_column is not None and not preparation.model.family.takes_principles:
        raise SettingsError(
            f"--principle-column {principle_column}: {preparation.model.model} wouldn't read it, because "
            + ("--principles are given too" if preparation.model.read.principles else "it judges by no principle")
        )
    if not sample:
        return
    if principle_column is not None:
        check_column(sample, principle_column)
    if preparation.model.family.needs_principles and not judges_by_principles(preparation, sample):
        raise SettingsError(
            f"{preparation.model.model} judges responses by a principle, and none of the {len(sample)} rows looked at has "
            "one; give --principles NAME=TEXT, e.g. --principles accuracy='accuracy of information', or --principle-column"
        )


def judges_by_principles(preparation: Preparation, sample: Sequence[object]) -> bool:
    """Whether the model judges by principles of the rows, and a sampled row has one."""
    requests = (request for row in sample for request in preparation.requests(row).requests)
    return preparation.model.family.takes_principles and any(request.principles for request in requests)


def _rows_and_bytes(files: Sequence[InputFile], first_rows: "FirstRows") -> tuple[float, float]:
    """Estimates of the number of rows and of the bytes per row. Exact for Parquet; else from the sampled rows."""
    if files and files[0].kind is FileKind.PARQUET:
        rows = sum(file.extent or 0 for file in files)
        return rows, sum(file.size for file in files) / max(rows, 1)
    sizes = first_rows.record_bytes or [1]
    mean = sum(sizes) / len(sizes)
    return sum(file.size for file in files) / mean, mean


def row_shape_of(rows: RowSettings, sample: Sequence[object], *, unanswered: bool = False) -> RowShape:
    """How rows are read, as the settings say or as a sample shows it. Raises a `UserError` if no shape fits."""
    own_columns = own_columns_of(rows, unanswered=unanswered)
    shape = shape_of(rows, own_columns, sample, unanswered=unanswered)
    return RowShape(shape.name, rows.turns.value, own_columns, rows.principle_column, unanswered)


def own_columns_of(rows: RowSettings, *, unanswered: bool = False) -> OwnColumns | None:
    """The user's own columns, if the settings name any. Raises `SettingsError` if they name only prompt or response."""
    if unanswered and rows.response_column is not None:
        raise SettingsError("--response-column names candidates that are there, so it doesn't go with --policy")
    if rows.prompt_column is None and rows.response_column is None and rows.system_column is None:
        return None
    if rows.prompt_column is None or (rows.response_column is None and not unanswered):
        raise SettingsError("--prompt-column and --response-column go together: a response is judged for its prompt")
    if rows.format is not None:
        raise SettingsError(f"--format {rows.format} says where prompt and response are, so it doesn't go with columns")
    responses = rows.response_column or ()
    return OwnColumns(
        rows.prompt_column, responses if len(responses) > 1 else next(iter(responses), None), rows.system_column
    )


def shape_of(
    rows: RowSettings, own_columns: OwnColumns | None, sample: Sequence[object], *, unanswered: bool = False
) -> Shape:
    """The shape of the rows: the named one, or else detected from a sample. Raises a `UserError` if there is none."""
    shapes, formats = (PROMPT_SHAPES, PROMPT_FORMATS) if unanswered else (SHAPES, FORMATS)
    if rows.format is not None and rows.format not in formats:
        raise SettingsError(f"--format {rows.format} is no shape that Assay knows here; it knows {', '.join(formats)}")
    if rows.format == MIXED and sample:
        check_mixed(sample, shapes)
    if own_columns is not None:
        own_columns.check(sample)
        shape = own_columns.shape()
    elif rows.format is not None:
        shape = formats[rows.format]
    elif sample:
        shape = detect(sample, shapes)
    else:
        shape = shapes["messages"]  # an empty corpus fits every shape
    if rows.turns is Turns.ALL and shape.read_turns is None:
        raise SettingsError(f"--turns all is for rows that hold a conversation, and these are {shape.name}")
    return shape


class FirstRows(NamedTuple):
    """The first rows of a corpus' first files, as objects; None for one that is too large, an error for one that isn't JSON.

    `record_bytes` are the sizes of the JSON rows among those of the first ten files.
    """

    rows: list[object]
    record_bytes: list[int]


def read_first_rows(files: Sequence[InputFile], corpus: CorpusSettings) -> FirstRows:
    """Up to 1,000 rows, the first 50 of each file, by which the shape of all rows is determined."""
    first_rows = FirstRows([], [])
    for number, file in enumerate(files):
        if len(first_rows.rows) >= _SAMPLE_ROWS:
            break
        for row, size in itertools.islice(_rows_of(file, corpus), _SAMPLE_ROWS - len(first_rows.rows)):
            first_rows.rows.append(row)
            if size and number < _MEASURED_FILES:
                first_rows.record_bytes.append(size)
    return first_rows


def _rows_of(file: InputFile, corpus: CorpusSettings) -> Iterator[tuple[object, int]]:
    """The first rows of a file, each with the size of its record in bytes, 0 where it has none."""
    if file.kind is FileKind.PARQUET:
        yield from ((row, 0) for row in _first_parquet_rows(file))
        return
    rows = (row for row in raw_rows(Unit(file, None), corpus.max_record_bytes) if row.note != BLANK)
    for row in itertools.islice(rows, _SAMPLE_ROWS_PER_FILE):
        try:
            yield parse(row.record) if row.record is not None else None, len(row.record or b"")
        except Rejected as error:
            yield error, len(row.record or b"")


def _first_parquet_rows(file: InputFile) -> list[dict[str, Any]]:
    with open_read(file.path, file.size) as stream, pq.ParquetFile(stream) as parquet:
        groups = (group for group in range(parquet.num_row_groups) if parquet.metadata.row_group(group).num_rows)
        if (first := next(groups, None)) is None:
            return []
        # Only from the first row group that has rows: pyarrow can't concatenate nested dictionary columns of two groups.
        batch = next(parquet.iter_batches(_SAMPLE_ROWS_PER_FILE, row_groups=[first]))
        return python_rows(batch)


def _limited_extents(files: Sequence[InputFile], limit: int, max_record_bytes: int) -> Iterator[int | None]:
    """The extent of each file if only the first `limit` rows of the corpus count; None for a file that counts whole."""
    remaining = limit
    for file in files:
        if remaining == 0:
            yield 0
        elif file.kind is FileKind.PARQUET:
            counted = min(remaining, file.extent or 0)
            remaining -= counted
            yield counted
        else:
            rows = (row for row in raw_rows(Unit(file, None), max_record_bytes) if row.note != BLANK)
            first = list(itertools.islice(((row.start, row.end) for row in rows), remaining))
            remaining -= len(first)
            yield first[-1][1] if first and remaining == 0 else None
