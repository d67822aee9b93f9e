"""Brings the members' responses together: a row for each with the rewards of all, or an error that names a difference.

All members scored the same files, so each holds the same responses, however its parts are cut. They are joined by their row
and name in a DuckDB on disk, so that memory holds neither the responses nor the prompts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from duckdb import DuckDBPyConnection

from actors.errors import AuditError
from pipelines.data.storage import Entry
from pipelines.folders.run_folder.columns import PROMPT_HASH, PROMPT_TOKENS, REASON, RESPONSE, REWARD, ROW, STATUS, TRUNCATED
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts, read_tables

_COLUMNS = {
    ROW: "row_id varchar",
    RESPONSE: "name varchar",
    PROMPT_HASH: "prompt varchar",
    REWARD: "reward double",
    STATUS: "status varchar",
    REASON: "reason varchar",
    PROMPT_TOKENS: "tokens bigint",
    TRUNCATED: "truncated boolean",
}
"""The columns that are read of each member, with their names and types in SQL."""
_INSERTED_ROWS = 2**17
"""Rows per insertion: one row group of DuckDB has 122,880."""


@dataclass(frozen=True)
class MemberRun:
    """The complete scored corpus of a member."""

    name: str
    parts: Parts
    manifest: Manifest
    entries: Sequence[tuple[Part, Entry]]


def align_members(connection: DuckDBPyConnection, runs: Sequence[MemberRun]) -> dict[Part, int]:
    """Create the table `responses`; returns the index of the first response of each part of the first member.

    It has `place`, a response's index in the corpus; `prompt`, the group of responses that its z-scores are among; the
    members' rewards as `r0`, `r1` ..., all null unless all scored it; and `status`, `reason`, `tokens` and `truncated` of
    the combined response. Raises `AuditError` unless all members hold exactly the same responses.
    """
    first = runs[0]
    for run in runs[1:]:
        if _files(run) != _files(first):
            raise AuditError(f"the members weren't made of the same files: {run.name} of others than {first.name}")
    prompts = ["m0.prompt"]
    for number, run in enumerate(runs):
        _insert(connection, f"m{number}", run)
        if number and _has_other_prompts(connection, first.name, number, run.name):
            prompts.append(f"m{number}.prompt")
    _join(connection, len(runs), prompts, within_row=any(run.manifest.columns.within_row for run in runs))
    places, count = dict[Part, int](), 0
    for part, _ in sorted(first.entries):
        places[part] = count
        count += part.counts.responses
    joined = connection.execute("select count(*) from responses").fetchone()
    if joined != (count,):  # rows and names are unique; else each pair of equals would be a response
        raise AuditError(f"the parts of {first.name} should hold {count:,} different responses, and {joined} were joined")
    return places


def _files(run: MemberRun) -> set[tuple[str, int, str]]:
    """The input files by what they are: their numbers may differ between members, where some were appended."""
    return {(file.name, file.size, file.fingerprint) for file in run.manifest.files}


def _insert(connection: DuckDBPyConnection, name: str, run: MemberRun) -> None:
    """Create a table of a member's responses."""
    connection.execute(f"create table {name} ({', '.join(_COLUMNS.values())}, place bigint)")
    count, waiting = 0, list[pa.Table]()
    for table in _tables(run):
        # Tables have no order in SQL: `place` is the index of a response in the corpus.
        place = pa.array(range(count, count + table.num_rows), pa.int64())
        count += table.num_rows
        waiting.append(table.append_column("place", place))
        if sum(table.num_rows for table in waiting) >= _INSERTED_ROWS:
            _append(connection, name, waiting)
            waiting = []
    if waiting:
        _append(connection, name, waiting)


def _tables(run: MemberRun) -> Iterator[pa.Table]:
    prefix = run.manifest.columns.prefix
    for part, _ in sorted(run.entries):
        for table in read_tables(run.parts.path(part), [prefix + column for column in _COLUMNS]):
            yield table.rename_columns(list(_COLUMNS))


def _append(connection: DuckDBPyConnection, name: str, tables: Sequence[pa.Table]) -> None:
    connection.register("waiting", pa.concat_tables(tables))
    connection.execute(f"insert into {name} from waiting")
    connection.unregister("waiting")


def _has_other_prompts(connection: DuckDBPyConnection, first: str, number: int, name: str) -> bool:
    """Whether a member was shown other prompts than the first, such as rows' references or principles, which it reads.

    Raises `AuditError` for the first response that isn't in both members.
    """
    difference = connection.execute(
        "select row_id, name, m0.place is null, other.place is null "
        f"from m0 full join m{number} as other using (row_id, name) where m0.place is null or other.place is null "
        "or m0.prompt is distinct from other.prompt "
        "order by m0.place is not null and other.place is not null, m0.place nulls last, other.place limit 1"
    ).fetchone()
    if difference is None:
        return False
    row, response, is_new, is_missing = difference
    if is_new or is_missing:
        holder, lacking = (name, first) if is_new else (first, name)
        raise AuditError(
            f"the members don't hold the same responses: {holder} has {response} of {row}, which {lacking} doesn't have"
        )
    return True


def _join(connection: DuckDBPyConnection, members: int, prompts: Sequence[str], *, within_row: bool) -> None:
    """Create `responses` of the members' tables `m0`, `m1` ..., and drop these. `prompts` are all that differ.

    A response is scored if every member scored it; else it has the status and the reason of the first member that didn't.
    All rewards are null then: they would shift the mean and deviation of the other members' baselines.
    """
    tables = [f"m{number}" for number in range(members)]

    def of_each(text: str, separator: str = ", ") -> str:
        return separator.join(text.format(table) for table in tables)

    is_scored = of_each("{}.status = 'scored'", " and ")
    rewards = ", ".join(f"case when {is_scored} then m{number}.reward end as r{number}" for number in range(members))
    # Where rewards are comparable only within a row of the corpus, the group contains the row.
    parts = [*prompts, *(["row_id"] if within_row else [])]
    prompt = f"concat_ws(' ', {', '.join(parts)})" if len(parts) > 1 else prompts[0]
    joined = " ".join(f"join {table} using (row_id, name)" for table in tables[1:])
    statuses = of_each("nullif({}.status, 'scored')")
    connection.execute(
        f"create table responses as select m0.place as place, {prompt} as prompt, {rewards}, "
        f"coalesce({statuses}, 'scored') as status, "
        # A scored response has no reason, so the first one is that of the first member that didn't score it.
        f"coalesce({of_each('{}.reason')}) as reason, "
        # A member that rejected the response may have no tokens; the sum is null only if all have none.
        f"list_sum([{of_each('{}.tokens')}])::bigint as tokens, "
        f"{of_each('{}.truncated', ' or ')} as truncated from m0 {joined} order by m0.place"
    )
    for table in tables:
        connection.execute(f"drop table {table}")
