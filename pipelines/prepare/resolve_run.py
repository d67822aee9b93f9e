"""What a run is going to do, settled before the first row: the files, their shape, the columns, the model."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from actors.contracts.judge import Judge
from actors.errors import Rejected, SettingsError
from actors.records import Reasoning
from actors.reward_model import RewardModel, resolve_model
from actors.text.reasoning import count_reasoning
from pipelines.corpus.corpus_files import FileKind, InputFile, Unit, find_corpus, limited
from pipelines.corpus.readers import BLANK, raw_rows
from pipelines.formats import (
    PROMPT_SHAPES,
    SHAPES,
    OwnColumns,
    RowShape,
    Shape,
    check_column,
    detect,
    explain_detection,
    parse,
)
from pipelines.prepare.score_requests import Preparation
from pipelines.scored_corpus.columns import REASONED, Columns, carried_columns
from pipelines.settings.run_settings import CorpusSettings, JudgingSettings, RowSettings, Turns
from pipelines.storage import open_read

SAY_REASONING = (
    "Give --reasoning strip to judge the final answers, keep to judge all of it, or reject to leave these without a reward"
)

_SAMPLE_ROWS = 1000
_SAMPLE_ROWS_PER_FILE = 50
_FILES_MEASURED = 10
_FEWEST_PART_ROWS, _MOST_PART_ROWS = 64, 4096  # about 200 parts in between: progress shows, and they are few to list
_FEWEST_ROWS_OF_WRITERS = 8  # each of which may take minutes
_SMALLEST_BLOCK, _LARGEST_BLOCK = 64 * 1024, 64 * 2**20  # a worker holds a few of them, and several times that of Python's
_PREPARED_GROWTH = 3  # a prepared row is its record, its flat columns, and four bytes per token, of three to four bytes


@dataclass(frozen=True)
class ResolvedRun:
    """A run, settled."""

    files: tuple[InputFile, ...]
    preparation: Preparation
    part_rows: int
    block_bytes: int
    shape_found: str = ""
    """Which shape the rows have, and what speaks for it, for the user."""
    left_out: Sequence[str] = ()
    """Files in the input's folders that aren't read."""


def resolve(settings: JudgingSettings, reserved: tuple[str, ...] = (), *, unanswered: bool = False) -> ResolvedRun:
    """Settle a run. Raises a `UserError` for whatever is wrong with the input, the settings or the model.

    `reserved` are names of columns that the input may not have, beside ours. The rows are `unanswered` if a policy is going
    to answer them.
    """
    corpus = settings.corpus
    if settings.append and corpus.limit is not None:
        raise SettingsError("--append takes whole files in, so it doesn't go with --limit")
    own_columns = own_columns_of(corpus, unanswered=unanswered)  # before any file is opened
    files, left_out = find_corpus(corpus.inputs)
    sample = list(itertools.islice((row for file in files for row in _sample(file, corpus)), _SAMPLE_ROWS))
    shape = shape_of(corpus, own_columns, sample, PROMPT_SHAPES if unanswered else SHAPES)
    model = resolve_model(settings.model, settings.render, corpus.turns is Turns.ALL, settings.engine.tensor_parallel)
    objects: list[Mapping[str, Any]] = [row for row in sample if isinstance(row, dict)]
    reasoning = model.reasoning_by(settings.render)
    columns = columns_of(
        carried_columns(files, objects), model, settings.prefix, reserved, drawn=unanswered, reasoning=reasoning
    )
    columns.check(name for row in objects for name in row)
    if corpus.limit is not None:
        files = limited(files, list(_ends(files, corpus.limit, corpus.max_record_bytes)))
    row_shape = RowShape(shape.name, corpus.turns.value, own_columns, corpus.principle_column, unanswered)
    preparation = Preparation(model, settings.render, row_shape, columns)
    check_principles(preparation, sample)
    check_reasoning(preparation, sample)
    if not unanswered:
        check_comparable(preparation, sample)
    rows, row_bytes = rows_and_bytes(files, corpus)
    fewest = _FEWEST_PART_ROWS if model.task.pools and not unanswered else _FEWEST_ROWS_OF_WRITERS
    part_rows = settings.work.part_rows or max(fewest, min(_MOST_PART_ROWS, int(rows / 200)))
    blocks = block_bytes(part_rows, row_bytes)
    return ResolvedRun(tuple(files), preparation, part_rows, blocks, explain_detection(shape, sample), tuple(left_out))


def block_bytes(part_rows: int, row_bytes: float) -> int:
    """How large blocks are: about a part each, and of large rows fewer than that."""
    return min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, int(part_rows * row_bytes * _PREPARED_GROWTH)))


def columns_of(
    carried: pa.Schema,
    model: RewardModel,
    prefix: str,
    reserved: tuple[str, ...] = (),
    *,
    drawn: bool = False,
    reasoning: Reasoning | None = None,
) -> Columns:
    """The columns of what a model scores, and of what was `drawn` for it; `reasoning` is what becomes of that."""
    family = model.family
    judges = isinstance(family, Judge)
    return Columns(
        carried,
        family.outputs(),
        prefix,
        family.steps,
        reserved=reserved,
        votes=judges,
        trace=judges and model.judge.trace,
        drawn=drawn,
        within_row=isinstance(family, Judge) and family.is_within_row(model.weights),
        flags=(REASONED,) if reasoning in (Reasoning.STRIP, Reasoning.KEEP) else (),
    )


def check_comparable(preparation: Preparation, sample: Sequence[object]) -> None:
    """Raise `SettingsError` if the model only compares responses, and no row has two of them: all would be rejected."""
    family = preparation.model.family
    if not isinstance(family, Judge) or min(family.counts) == 1 or not sample:
        return
    asked = (request for row in sample for request in preparation.requests(row).requests)
    if not any(len(request.responses) > 1 for request in asked):
        raise SettingsError(
            f"{preparation.model.model} compares the responses of a row, and none of the {len(sample)} rows looked at has "
            "two; --response-column takes a list of them"
        )


def check_reasoning(preparation: Preparation, sample: Sequence[object]) -> None:
    """Raise `SettingsError` if responses hold reasoning, and nobody says what becomes of it."""
    if preparation.model.reasoning_by(preparation.render) is not None:
        return
    asked = [request for row in sample for request in preparation.requests(row).requests]
    if held := count_reasoning(asked):
        responses = sum(len(request.responses) for request in asked)
        raise SettingsError(
            f"{held} of the {responses} responses in the {len(sample)} rows looked at hold reasoning (<think>...</think>, "
            f"reasoning_content or the like), in themselves or in turns before them. {SAY_REASONING}"
        )


def check_principles(preparation: Preparation, sample: Sequence[object]) -> None:
    """Raise `SettingsError` if the model goes by principles, and none of the rows has one: all would be rejected."""
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
    if not preparation.model.family.needs_principles:
        return
    asked = (request for row in sample for request in preparation.requests(row).requests)
    if not any(request.principles for request in asked):
        raise SettingsError(
            f"{preparation.model.model} judges responses by a principle, and none of the {len(sample)} rows looked at has "
            "one; give --principles NAME=TEXT, e.g. --principles accuracy='accuracy of information', or --principle-column"
        )


def rows_and_bytes(files: Sequence[InputFile], corpus: CorpusSettings) -> tuple[float, float]:
    """About how many rows there are, and how many bytes a row has."""
    if files and files[0].kind is FileKind.PARQUET:
        rows = sum(file.extent or 0 for file in files)
        return rows, sum(file.size for file in files) / max(rows, 1)
    first = (
        len(row.record or b"")
        for file in files[:_FILES_MEASURED]
        for row in itertools.islice(raw_rows(Unit(file, None), corpus.max_record_bytes), _SAMPLE_ROWS_PER_FILE)
    )
    sizes = [size for size in first if size] or [1]
    mean = sum(sizes) / len(sizes)
    return sum(file.size for file in files) / mean, mean


def row_shape_of(rows: RowSettings, sample: Sequence[object], *, unanswered: bool = False) -> RowShape:
    """How rows are read, as the settings say or as a sample shows it. Raises a `UserError` if no shape fits."""
    own_columns = own_columns_of(rows, unanswered=unanswered)
    shape = shape_of(rows, own_columns, sample, PROMPT_SHAPES if unanswered else SHAPES)
    return RowShape(shape.name, rows.turns.value, own_columns, rows.principle_column, unanswered)


def own_columns_of(rows: RowSettings, *, unanswered: bool = False) -> OwnColumns | None:
    """The shape of the user's own that the settings name, if any. Raises `SettingsError` if they name half of one."""
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
    rows: RowSettings,
    own_columns: OwnColumns | None,
    sample: Sequence[object],
    shapes: Mapping[str, Shape] = SHAPES,
) -> Shape:
    """The shape of the rows, as it is named or as a sample shows it. Raises a `UserError` if there is none."""
    if rows.format is not None and rows.format not in shapes:
        raise SettingsError(f"--format {rows.format} is no shape that Assay knows here; it knows {', '.join(shapes)}")
    if own_columns is not None:
        own_columns.check(sample)
        shape = own_columns.shape()
    elif rows.format is not None:
        shape = shapes[rows.format]
    elif sample:
        shape = detect(sample, shapes)
    else:
        shape = shapes["messages"]  # an empty corpus has every shape
    if rows.turns is Turns.ALL and shape.read_turns is None:
        raise SettingsError(f"--turns all is for rows that hold a conversation, and these are {shape.name}")
    return shape


def _sample(file: InputFile, corpus: CorpusSettings) -> Iterator[object]:
    """The first rows of a file, as objects; None for one that isn't JSON."""
    if file.kind is FileKind.PARQUET:
        yield from _first_parquet_rows(file)
        return
    rows = (row for row in raw_rows(Unit(file, None), corpus.max_record_bytes) if row.note != BLANK)
    for row in itertools.islice(rows, _SAMPLE_ROWS_PER_FILE):
        try:
            yield parse(row.record) if row.record is not None else None
        except Rejected:
            yield None


def _first_parquet_rows(file: InputFile) -> list[dict[str, Any]]:
    with open_read(file.path) as stream, pq.ParquetFile(stream) as parquet:
        groups = (group for group in range(parquet.num_row_groups) if parquet.metadata.row_group(group).num_rows)
        if (first := next(groups, None)) is None:
            return []
        # From a single group: pyarrow can't join nested dictionaries of two in a batch.
        batch = next(parquet.iter_batches(_SAMPLE_ROWS_PER_FILE, row_groups=[first]))
        rows: list[dict[str, Any]] = batch.to_pylist()
        return rows


def _ends(files: Sequence[InputFile], limit: int, max_record_bytes: int) -> Iterator[int | None]:
    """Where each file ends if only the first `limit` rows of the corpus count; None for a file that counts whole."""
    left = limit
    for file in files:
        if left == 0:
            yield 0
        elif file.kind is FileKind.PARQUET:
            taken = min(left, file.extent or 0)
            left -= taken
            yield taken
        else:
            rows = (row for row in raw_rows(Unit(file, None), max_record_bytes) if row.note != BLANK)
            first = list(itertools.islice(((row.start, row.end) for row in rows), left))
            left -= len(first)
            yield first[-1][1] if first and left == 0 else None
