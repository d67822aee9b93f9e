"""Brings the members' responses together: a row for each with the rewards of all, or an error that names a difference.

All members scored the same files, so each holds the same responses, however its parts are cut. They are joined by their row
and name as DuckDB reads them, which spills to disk, so that memory holds neither the responses nor the prompts.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection

from actors.errors import AuditError
from pipelines.data.storage import Entry
from pipelines.folders.run_folder.columns import PROMPT_HASH, PROMPT_TOKENS, REASON, RESPONSE, REWARD, ROW, STATUS, TRUNCATED
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts, read_tables
from pipelines.folders.scored_corpus.summary import refuse_damaged

_COLUMNS = (ROW, RESPONSE, PROMPT_HASH, REWARD, STATUS, REASON, PROMPT_TOKENS, TRUNCATED)
# Their names and types in SQL, and at the end a response's index in the corpus: tables have no order there.
_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("row_id", "name", "prompt"), pa.string()),
        "reward": pa.float64(),
        **dict.fromkeys(("status", "reason"), pa.string()),
        "tokens": pa.int64(),
        "truncated": pa.bool_(),
        "place": pa.int64(),
    }
)


@dataclass(frozen=True)
class MemberRun:
    """The complete scored corpus of a member; `entries` are its parts as they were listed when it was audited."""

    name: str
    parts: Parts
    manifest: Manifest
    entries: Sequence[tuple[Part, Entry]]

    @property
    def places(self) -> dict[Part, int]:
        """The index in the corpus of the first response of each part."""
        parts = sorted(part for part, _ in self.entries)
        ends = itertools.accumulate((part.counts.responses for part in parts), initial=0)
        return dict(zip(parts, ends, strict=False))


def align_members(connection: DuckDBPyConnection, runs: Sequence[MemberRun]) -> None:
    """Create the table `responses`.

    It has `place`, a response's index in the corpus; `prompt`, the group of responses that its z-scores are among; the
    members' rewards as `r0`, `r1` ..., all null unless all scored it; and `status`, `reason`, `tokens` and `truncated` of
    the combined response. Raises `AuditError` unless all members hold exactly the same responses.
    """
    first = runs[0]
    for run in runs[1:]:
        if _files(run) != _files(first):
            raise AuditError(f"the members weren't made of the same files: {run.name} of others than {first.name}")
    try:
        _join(connection, runs)
    except duckdb.Error as error:
        for run in runs:
            refuse_damaged(run.parts, error)  # names the part, where DuckDB says only that a stream has failed
        raise
    ((joined,),) = connection.execute("select count(*) from responses").fetchall()
    counts = [sum(part.counts.responses for part, _ in run.entries) for run in runs]
    # Rows and names are unique within a member; else each pair of equals would be a response.
    if any(count != joined for count in counts):
        held = ", ".join(f"{run.name} {count:,}" for run, count in zip(runs, counts, strict=True))
        raise AuditError(f"the members don't hold the same responses: of {held} responses, all of them have {joined:,}")


def _files(run: MemberRun) -> set[tuple[str, int, str]]:
    """The input files by what they are: their numbers may differ between members, where some were appended."""
    return {(file.name, file.size, file.fingerprint) for file in run.manifest.files}


def _read_responses(run: MemberRun) -> pa.RecordBatchReader:
    """A member's responses, in the order of the corpus. Can be read once."""
    prefix = run.manifest.columns.prefix

    def batches() -> Iterator[pa.RecordBatch]:
        count = 0
        for part, _ in sorted(run.entries):
            for table in read_tables(run.parts.path(part), [prefix + column for column in _COLUMNS]):
                place = pa.array(np.arange(count, count + table.num_rows))
                count += table.num_rows
                yield from pa.table([*table.columns, place], names=_SCHEMA.names).cast(_SCHEMA).to_batches()

    return pa.RecordBatchReader.from_batches(_SCHEMA, batches())


def _join(connection: DuckDBPyConnection, runs: Sequence[MemberRun]) -> None:
    """Create `responses` of what all members hold.

    A response is scored if every member scored it; else it has the status and the reason of the first member that didn't.
    All rewards are null then: they would shift the mean and deviation of the other members' baselines.
    """
    tables = [f"m{number}" for number in range(len(runs))]
    for table, run in zip(tables, runs, strict=True):
        connection.register(table, _read_responses(run))

    def of_each(text: str, separator: str = ", ") -> str:
        return separator.join(text.format(table) for table in tables)

    is_scored = of_each("{}.status = 'scored'", " and ")
    rewards = ", ".join(f"case when {is_scored} then m{number}.reward end as r{number}" for number in range(len(runs)))
    # Members may be shown other prompts, such as rows' references or principles, which they read.
    same_prompt = " and ".join(f"{table}.prompt is not distinct from m0.prompt" for table in tables[1:])
    prompt = f"case when {same_prompt} then m0.prompt else concat_ws(' ', {of_each('{}.prompt')}) end"
    # Where rewards are comparable only within a row of the corpus, the group contains the row.
    group = f"{prompt} || ' ' || row_id" if any(run.manifest.columns.within_row for run in runs) else prompt
    joined = " ".join(f"join {table} using (row_id, name)" for table in tables[1:])
    statuses = of_each("nullif({}.status, 'scored')")
    connection.execute(
        f"create table responses as select m0.place as place, {group} as prompt, {rewards}, "
        f"coalesce({statuses}, 'scored') as status, "
        # A scored response has no reason, so the first one is that of the first member that didn't score it.
        f"coalesce({of_each('{}.reason')}) as reason, "
        # A member that rejected the response may have no tokens; the sum is null only if all have none.
        f"list_sum([{of_each('{}.tokens')}])::bigint as tokens, "
        f"{of_each('{}.truncated', ' or ')} as truncated from m0 {joined} order by m0.place"
    )
    for table in tables:
        connection.unregister(table)
