"""The step that scores and commits. Nothing after it depends on how Ray Data cuts its blocks.

Every row knows which stretch of which file it is; a block is cut where these stretches don't join, and where it is longer
than a part may be. Each piece becomes a part. What goes on to the driver is one row of counts per part.
"""

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from actors.records import Reason, RenderedRequest, Score
from actors.scorers.head_scorer import Scores
from actors.settings.replica import EngineSettings
from actors.timeline import mark
from actors.workers.batch_actor import BatchActor
from pipelines import storage
from pipelines.corpus.corpus_files import Range
from pipelines.corpus.readers import END, FILE, START
from pipelines.prepare.score_requests import Outcome, Preparation, PreparedRow, prepared_rows
from pipelines.scored_corpus.columns import Columns
from pipelines.scored_corpus.parts import Counts, Part, Parts

_SIDE_BY_SIDE = 16
"""Stretches of a block that are scored at a time."""


@dataclass(frozen=True)
class StepSettings:
    """What the step needs in its process."""

    engine: EngineSettings
    preparation: Preparation
    parts: Parts
    part_rows: int
    names: Mapping[int, str]
    metadata: Mapping[str, str]


Row = TypeVar("Row")


@dataclass(frozen=True)
class Stretch(Generic[Row]):
    """Neighbouring rows of one file, out of one block, and what was prepared of each: None where there is no row."""

    file: int
    range: Range
    table: pa.Table
    rows: Sequence[Row | None]


def requests_of(rows: Sequence[PreparedRow | None]) -> list[RenderedRequest]:
    """Everything to be scored, in order."""
    return [request for row in rows if row is not None for request in row.requests]


def outcomes_of(rows: Sequence[PreparedRow | None], scores: Sequence[Scores]) -> list[list[Outcome]]:
    """What the responses of each row came to, by the scores of `requests_of`."""
    left = iter(scores)
    return [row.outcomes([next(left) for _ in row.requests]) if row else [] for row in rows]


def scored_table(columns: Columns, table: pa.Table, rows: Sequence[str], outcomes: Sequence[Sequence[Outcome]]) -> pa.Table:
    """One row per response: the carried columns of its row in `table`, and ours. `rows` says which row each is."""
    places = [at for at, own in enumerate(outcomes) for _ in own]
    carried = table.select(columns.carried.names).take(pa.array(places, pa.int64()))
    return columns.table(carried, [(row, *outcome) for row, own in zip(rows, outcomes, strict=True) for outcome in own])


class ScoreStep:
    """Ray Data's actor class: a scorer that commits what it scored."""

    def __init__(self, settings: StepSettings, ledger: Any) -> None:
        self._settings = settings
        self._actor = BatchActor(settings.preparation.model, settings.engine, ledger)
        made_with = json.loads(settings.metadata["assay"]) | {"model_runner": self._actor.runner}
        self._metadata = {**settings.metadata, "assay": json.dumps(made_with)}
        # Ray gives a restarted actor the lost task from its start, with what had been committed of it.
        committed = settings.parts.listing() if self._actor.is_restart else []
        self._done = {(part.file, part.range): part for part in committed}

    def __call__(self, block: pa.Table) -> pa.Table:
        """Score and commit a block; returns one row per part."""
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:  # a block of many small files must keep the engine busy too
            cut = stretches(block, self._settings.part_rows, prepared_rows(block))
            return pa.Table.from_pylist(list(threads.map(self._commit, cut)))

    def _commit(self, stretch: Stretch[PreparedRow]) -> dict[str, Any]:
        if done := self._done.get((stretch.file, stretch.range)):
            return part_report(done, [])
        work = f"{stretch.file}-{stretch.range.start}-{stretch.range.end}"
        outcomes = outcomes_of(stretch.rows, self._actor.score(work, requests_of(stretch.rows)))
        judged = [outcome.score for row in outcomes for outcome in row]
        part = Part(stretch.file, stretch.range, Counts.of(sum(row is not None for row in stretch.rows), judged))
        self._keep_killers(stretch, outcomes)
        mark(f"part {part.name} is scored")
        self._settings.parts.commit(part, self._table(stretch, outcomes), self._metadata)
        return part_report(part, judged)

    def _table(self, stretch: Stretch[PreparedRow], outcomes: Sequence[Sequence[Outcome]]) -> pa.Table:
        name = self._settings.names[stretch.file]
        rows = [f"{name}:{start}" for start in stretch.table.column(START).to_pylist()]
        return scored_table(self._settings.preparation.columns, stretch.table, rows, outcomes)

    def _keep_killers(self, stretch: Stretch[PreparedRow], outcomes: Sequence[Sequence[Outcome]]) -> None:
        """Write a row that kills engines aside with its token ids, so that the crash can be reproduced."""
        for row, found in zip(stretch.rows, outcomes, strict=True):
            if row is None or not any(outcome.score.reason is Reason.ENGINE_KILLER for outcome in found):
                continue
            folder = storage.folder(self._settings.parts.folder).sub("engine_killers")
            prompts = [list(map(int, prompt.ids)) for request in row.requests for prompt in request.prompts]
            name = f"{stretch.file:06d}-{stretch.range.start:012d}-{stretch.rows.index(row)}.json"
            folder.replace(name, json.dumps({"file": self._settings.names[stretch.file], "prompts": prompts}).encode())


def part_report(part: Part, scores: Sequence[Score]) -> dict[str, Any]:
    """What the driver is told of a part."""
    reasons = Counter(score.reason.value for score in scores if score.reason is not None)
    return {
        "file": part.file,
        "start": part.range.start,
        "end": part.range.end,
        **part.counts._asdict(),
        "tokens": sum(score.prompt_tokens or 0 for score in scores),
        "reasons": json.dumps(reasons),
    }


def stretches(block: pa.Table, most_rows: int, rows: Sequence[Row | None]) -> Iterator[Stretch[Row]]:
    """Cut a block where its rows aren't neighbours in one file, and what is longer than `most_rows` into equal pieces."""
    files, starts, ends = (block.column(name).to_numpy().tolist() for name in (FILE, START, END))
    joins = (files[at] == files[at - 1] and starts[at] == ends[at - 1] for at in range(1, len(files)))
    edges = [0, *(at for at, joined in enumerate(joins, start=1) if not joined), len(files)]
    for first, last in itertools.chain.from_iterable(_pieces(*edge, most_rows) for edge in itertools.pairwise(edges)):
        stretch = Range(starts[first], ends[last - 1])
        yield Stretch(files[first], stretch, block.slice(first, last - first), rows[first:last])


def _pieces(first: int, last: int, most: int) -> Iterator[tuple[int, int]]:
    """A range in as few pieces as there can be, none of which is much smaller than another."""
    count = max(1, math.ceil((last - first) / most))
    return itertools.pairwise(first + (last - first) * at // count for at in range(count + 1))
