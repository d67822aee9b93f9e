"""The pipeline step that scores and commits. What is committed doesn't depend on how Ray Data cuts its blocks.

Every row carries its file and range. A block is cut where neighbouring rows' ranges don't touch, and where it is longer or,
with its rows repeated for their responses, larger than a part may be. Each piece (`Stretch`) becomes a part. Small files
that follow each other share one: with ten rows a part an engine would wait, and the folder fill with files. The driver
receives one row of counts per part.
"""

import itertools
import json
import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import ray

from actors.engine.protocol import Engine
from actors.errors import CostReached
from actors.records import Reason, RenderedRequest, Score
from actors.scorers.head_scorer import Scores
from actors.settings.replica import EngineSettings
from actors.timeline import mark
from actors.workers.batch_actor import BatchActor
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import Range
from pipelines.data.corpus.readers import END, FILE, RESERVED, START
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.endpoint_notes import endpoint_notes
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.score_store.open_store import OpenStore
from pipelines.run.prepare.score_requests import Outcome, Preparation, PreparedRow, prepared_rows
from pipelines.run.runtime.run_metrics import RunMetrics

_THREADS = 16  # stretches of a block that are scored concurrently
# Bytes of a part's rows, each times its responses, for each of which its table repeats it. While a part is written it takes
# several times as much, in some threads at once; a column of strings holds 2 GiB at most.
_MOST_REPEATED_BYTES = 2**28


class FileTable(NamedTuple):
    """The names of a run's files, and the extents of those that may share a part (else null), by the files' indices.

    Arrow arrays, since of these Ray's object store gives all processes of a node the same memory: of a million files, a dict
    would be copied into each.
    """

    names: pa.LargeStringArray
    small_extents: pa.Int64Array


@dataclass(frozen=True)
class StepSettings:
    """The settings of the step. Pickled to its process."""

    engine: EngineSettings
    preparation: Preparation
    parts: Parts
    part_rows: int
    metadata: Mapping[str, str]
    store: OpenStore | None = None


Row = TypeVar("Row")


@dataclass(frozen=True)
class Stretch(Generic[Row]):
    """Neighbouring rows in one block, with their prepared rows (None for a range without a row).

    `file`, `range` and `further` are those of the `Part` that it becomes.
    """

    file: int
    range: Range
    table: pa.Table
    rows: Sequence[Row | None]
    further: int = 0

    def part(self, rows: int, scores: Iterable[Score]) -> Part:
        return Part(self.file, self.range, Counts.of(rows, scores), further=self.further)

    def row_names(self, names: pa.LargeStringArray) -> list[str]:
        """The name of each row, `FILE:START`; `names` are those of the files."""
        files, starts = pc.take(names, self.table.column(FILE)).to_pylist(), self.table.column(START).to_pylist()
        return [f"{file}:{start}" for file, start in zip(files, starts, strict=True)]


def requests_of(rows: Sequence[PreparedRow | None]) -> list[RenderedRequest]:
    """The requests of all rows, in the order in which `outcomes_of` wants their scores."""
    return [request for row in rows if row is not None for request in row.requests]


def outcomes_of(rows: Sequence[PreparedRow | None], scores: Sequence[Scores]) -> list[list[Outcome]]:
    """The outcomes of each row's responses; `scores` are those of `requests_of(rows)`, in its order."""
    remaining = iter(scores)
    return [row.outcomes([next(remaining) for _ in row.requests]) if row else [] for row in rows]


def scored_table(columns: Columns, table: pa.Table, rows: Sequence[str], outcomes: Sequence[Sequence[Outcome]]) -> pa.Table:
    """One row per response: the columns of its row in `table`, repeated, and ours.

    `rows` are the names of the rows of `table`, and `outcomes` those of their responses; a row without any gets no row.
    """
    repeated = repeat_rows(table.select(columns.repeated.names), list(map(len, outcomes)))
    scored = [(row, outcome) for row, row_outcomes in zip(rows, outcomes, strict=True) for outcome in row_outcomes]
    return columns.table(
        repeated,
        [(row, outcome.response, outcome.prompt_hash, outcome.score) for row, outcome in scored],
        texts=[outcome.text for _, outcome in scored],
    )


def repeat_rows(table: pa.Table, counts: Sequence[int]) -> pa.Table:
    """Each row of `table` as often as `counts` says."""
    positions = [position for position, count in enumerate(counts) for _ in range(count)]
    if table.nbytes * max(counts, default=0) <= _MOST_REPEATED_BYTES:
        return table.take(pa.array(positions, pa.int64()))
    # `take` copies each column into a single chunk, which fails beyond 2 GiB of strings. Slices aren't copies.
    return pa.concat_tables(table.slice(position, 1) for position in positions)


class PartsUnderWay:
    """Lets parts that can still be paid be committed before the error of one that can't ends the run."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    @contextmanager
    def count_part(self) -> Iterator[None]:
        """Count a part while the block runs. Raises what it raises; `CostReached` once no other part is under way."""
        # The first exception of a block ends the run with its actors: answers that are paid for would be lost on their way.
        with self._changed:
            self._count += 1
        is_stopped = False
        try:
            yield
        except CostReached:
            is_stopped = True
            raise
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()
                if is_stopped:
                    self._changed.wait_for(lambda: not self._count)


class ScoreStep:
    """The actor class for Ray Data: holds a scorer, and commits what it scores."""

    def __init__(self, settings: StepSettings, files: Any, ledger: Any, engine: Engine | None = None) -> None:
        """`files` is Ray's reference to the `FileTable`.

        Without an `engine` it starts its own, which takes minutes for a large model. Raises what that raises: `ModelError`,
        `EndpointError` or `SettingsError` for what no further attempt would mend.
        """
        self._settings = settings
        self._files: FileTable = ray.get(files)
        notes = endpoint_notes(settings.parts.folder)
        self._actor = BatchActor(settings.preparation.model, settings.engine, ledger, settings.store, engine, notes=notes)
        self._parts_under_way = PartsUnderWay()
        self._metrics = RunMetrics(settings.preparation.model.model)
        made_with = json.loads(settings.metadata["assay"]) | {"model_runner": self._actor.runner}
        self._metadata = {**settings.metadata, "assay": json.dumps(made_with)}
        # Ray runs the lost task of a restarted actor again from its start. Its parts that are committed already are reported
        # again, not scored again; listing the folder is left out for actors that aren't restarted: of a million parts it is
        # a thousand requests to an object store.
        committed = settings.parts.listing() if self._actor.is_restart else []
        self._done = {part.place: part for part in committed}

    @property
    def engine(self) -> Engine:
        return self._actor.engine

    def __call__(self, block: pa.Table) -> pa.Table:
        with ThreadPoolExecutor(_THREADS) as threads:  # a block of many small files must keep the engine busy too
            rows = prepared_rows(block)
            responses = [0 if row is None else len(row.names) for row in rows]
            cut = stretches(block, self._settings.part_rows, rows, self._files.small_extents, responses=responses)
            return pa.Table.from_pylist(list(threads.map(self._commit, cut)))

    def _commit(self, stretch: Stretch[PreparedRow]) -> dict[str, Any]:
        rows = sum(row is not None for row in stretch.rows)
        place = stretch.part(rows, []).place
        if done := self._done.get(place):
            return part_report(done, [])
        with self._parts_under_way.count_part():
            return self._score(stretch, rows, place)

    def _score(self, stretch: Stretch[PreparedRow], rows: int, place: str) -> dict[str, Any]:
        requests = requests_of(stretch.rows)
        with self._metrics.scoring_part():
            block_scores = self._actor.score(place, requests)
        outcomes = outcomes_of(stretch.rows, block_scores)
        scores = [outcome.score for row in outcomes for outcome in row]
        part = stretch.part(rows, scores)
        self._keep_killers(stretch, outcomes)
        mark(f"part {part.name} is scored")
        names = stretch.row_names(self._files.names)
        table = scored_table(self._settings.preparation.columns, stretch.table, names, outcomes)
        # False if the part is there already: Ray runs a lost block again, and only the first commit counts.
        if self._settings.parts.commit(part, table, self._metadata):
            self._metrics.committed(part, scores)
        # After the commit, which it must not delay or endanger: it scores some requests of the part once more.
        self._actor.measure_noise(place, requests, block_scores)
        return part_report(part, scores)

    def _keep_killers(self, stretch: Stretch[PreparedRow], outcomes: Sequence[Sequence[Outcome]]) -> None:
        """Write the token ids of rows that crashed engines into `engine_killers/`, so that the crash can be reproduced."""
        files = stretch.table.column(FILE).to_pylist()
        for number, (row, row_outcomes) in enumerate(zip(stretch.rows, outcomes, strict=True)):
            if row is None or not any(outcome.score.reason is Reason.ENGINE_KILLER for outcome in row_outcomes):
                continue
            folder = storage.folder(self._settings.parts.folder).sub("engine_killers")
            prompts = [list(map(int, prompt.ids)) for request in row.requests for prompt in request.prompts]
            name = f"{stretch.file:06d}-{stretch.range.start:012d}-{number}.json"
            folder.replace(name, json.dumps({"file": self._files.names[files[number]].as_py(), "prompts": prompts}).encode())


def part_report(part: Part, scores: Sequence[Score]) -> dict[str, Any]:
    """The row of counts that the driver receives for a part."""
    reasons = Counter(score.reason.value for score in scores if score.reason is not None)
    return {
        **part.report(),
        # Of the engine's work: a store's answers would make a run look as fast as its disk.
        "tokens": sum(score.prompt_tokens or 0 for score in scores if not score.from_store),
        "cached_tokens": sum(score.cached_tokens or 0 for score in scores if not score.from_store),
        "reasons": json.dumps(reasons),
    }


def stretches(
    block: pa.Table,
    most_rows: int,
    rows: Sequence[Row | None],
    small_extents: pa.Int64Array | None = None,
    *,
    responses: Sequence[int],
) -> Iterator[Stretch[Row]]:
    """Cut a block where the ranges of neighbouring rows don't touch, and pieces longer than `most_rows` into equal ones.

    The end of a file with one of `small_extents` touches the start of the next such file; there may be empty ones between.
    `responses` is the number of each row's: pieces that would be too large with that many copies of each row are halved.
    """
    repeated = block.select([name for name in block.column_names if name not in RESERVED])
    files, starts, ends = (block.column(name).to_numpy().tolist() for name in (FILE, START, END))

    def extent(file: int) -> int | None:
        return None if small_extents is None else small_extents[file].as_py()

    # Ray splits and merges blocks, so that neighbours in a block needn't be neighbours in the corpus. A part may only hold
    # rows without a gap: its name says one range, and the names alone prove that nothing is missing.
    def touches(at: int) -> bool:
        before, after = files[at - 1], files[at]
        if before == after:
            return bool(starts[at] == ends[at - 1])
        return (
            starts[at] == 0
            and before < after
            and extent(after) is not None
            and extent(before) == ends[at - 1]
            and all(extent(between) == 0 for between in range(before + 1, after))
        )

    edges = [0, *(at for at in range(1, len(files)) if not touches(at)), len(files)]
    pieces = itertools.chain.from_iterable(_pieces(*edge, most_rows) for edge in itertools.pairwise(edges))
    for first, last in itertools.chain.from_iterable(_halved(*piece, repeated, responses) for piece in pieces):
        place = Range(starts[first], ends[last - 1])
        further = files[last - 1] - files[first]
        yield Stretch(files[first], place, block.slice(first, last - first), rows[first:last], further)


def _pieces(first: int, last: int, max_rows: int) -> Iterator[tuple[int, int]]:
    """Cut a range into as few pieces of at most `max_rows` as possible, whose sizes differ by at most one."""
    count = max(1, math.ceil((last - first) / max_rows))
    # Of equal sizes, since full pieces would leave a small one at the end of each block.
    return itertools.pairwise(first + (last - first) * i // count for i in range(count + 1))


def _halved(first: int, last: int, table: pa.Table, responses: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Halve a range until each piece is a single row, or small enough if all of its rows had the most responses."""
    size = table.slice(first, last - first).nbytes * max(responses[first:last], default=0)
    # A single row that is larger, such as one with 256 long candidates, stays whole: `repeat_rows` makes chunks of it.
    if last - first == 1 or size <= _MOST_REPEATED_BYTES:
        yield first, last
    else:
        middle = (first + last) // 2
        yield from _halved(first, middle, table, responses)
        yield from _halved(middle, last, table, responses)
