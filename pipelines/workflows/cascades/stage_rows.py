"""The rows of a cascade in a database: what each model has scored, what is drawn at random, and what goes on to a model.

Tables `s0`, `s1` ... hold the responses that each model scored, by the names that they have in the corpus. Rows for a model
after the first are written to `rows/MODEL/` in the cascade's folder, as they were in the corpus, and scored as its input;
tables `ids1`, `ids2` ... say which row of the corpus each of them is.
"""

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection

from actors.errors import AuditError, OutputError
from pipelines.data import storage
from pipelines.data.corpus.readers import RECORD
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.columns import KEPT, PROMPT_TOKENS, REASON, RESPONSE, REWARD, ROW, STAGE, STATUS, TRUNCATED
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import read_tables
from pipelines.folders.scored_corpus.databases import quoted
from pipelines.folders.scored_corpus.expressions import Condition, Evaluator
from pipelines.folders.scored_corpus.shuffle import cut
from pipelines.results.filtering.cuts import Mask, Numbers
from pipelines.results.filtering.json_splice import one_line
from pipelines.results.filtering.writers import NO_OBJECT, RowGroups
from pipelines.workflows.cascades.bands import Band
from pipelines.workflows.ensembles.align import MemberRun

FOLDER = "rows"
_FILE_BYTES = 64 * 2**20  # of the first model's parts that one file of rows is taken from: all rows of it are in memory
_READ = (ROW, RESPONSE, REWARD, STATUS, REASON, PROMPT_TOKENS, TRUNCATED)
_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("row_id", "name"), pa.string()),
        "reward": pa.float64(),
        **dict.fromkeys(("status", "reason"), pa.string()),
        "tokens": pa.int64(),
        "truncated": pa.bool_(),
        "wanted": pa.bool_(),
        "place": pa.int64(),
    }
)


@dataclass(frozen=True)
class StageRows:
    """The rows of a cascade in `folder`, whose first model's run is `first`."""

    connection: DuckDBPyConnection
    folder: str
    first: MemberRun

    def load(self, stage: int, run: MemberRun, where: str | None = None) -> None:
        """Make the table of a model's responses; with a condition, `wanted` says which meet it."""
        self.connection.register("read", _read_run(run, where))  # a stream: no run is in memory as a whole
        mapped = f"(select read.* replace (ids.row_id as row_id) from read join ids{stage} as ids on read.row_id = own)"
        self.connection.execute(f"create or replace table s{stage} as from {mapped if stage else 'read'}")
        self.connection.unregister("read")

    def begin(self, stage: int) -> None:
        # Empty, since a model that nothing reaches is asked for no run, and is joined all the same.
        self.connection.execute(f"create table s{stage} as from s0 limit 0")
        self.connection.execute(f"create table ids{stage} (own text, row_id text)")

    def check_whole(self, stage: int, run: MemberRun | None) -> None:
        """Raise `AuditError` unless a model has scored just the rows that were written for it."""
        scored = 0 if run is None else sum(part.counts.rows for part, _ in run.entries)
        if not scored == self.count(f"ids{stage}") == self.count(f"s{stage}", "distinct row_id"):
            raise AuditError(
                f"models/ of {self.folder} holds other rows than those that are open now: scores have changed since, "
                "as by `retry`. --overwrite begins again"
            )

    def draw(self, table: str, stage: int, count: int, seed: str, among: str) -> None:
        """Create a table of responses of a model that are drawn at random, of those that meet a condition in SQL."""
        # By a hash of the name, and not by `random()`: a resumed cascade draws the same responses, in any order of the rows.
        chance = "md5_number_lower($1 || ' ' || row_id || ' ' || name)"
        self.connection.execute(
            f"create or replace table {table} as select row_id, name from s{stage} where {among} "
            f"order by {chance}, row_id, name limit {count}",
            [f"{seed} {stage}"],
        )

    def slice_of(self, drawn: str, stage: int, last: int) -> tuple[Numbers, Mask]:
        """Of drawn responses the rewards by a model, NaN where there is none, and whether the last model wants them."""
        columns = self.connection.sql(
            f"select s.reward, coalesce(l.wanted, false) as wanted from {drawn} join s{stage} as s using (row_id, name) "
            f"join s{last} as l using (row_id, name)"
        ).to_arrow_table()
        return np.asarray(columns.column("reward").to_numpy(), float), np.asarray(columns.column("wanted").to_numpy(), bool)

    def count(self, table: str, of: str = "*") -> int:
        ((counted,),) = self.connection.execute(f"select count({of}) from {table}").fetchall()
        return int(counted)

    @property
    def can_go_on(self) -> str:
        """A condition in SQL: whether a row of the first model's can be read again, as one that is no object can't."""
        listed = ", ".join(f"'{reason}'" for reason in sorted(NO_OBJECT))
        return f"coalesce(reason not in ({listed}), true)"

    def keep_open(self, stage: int, band: Band) -> None:
        """Create the table of the rows that a model leaves open: those with a response that is, as models see whole rows."""
        self.connection.execute(
            f"create table open{stage} as select distinct row_id from s{stage} where {self.can_go_on} and "
            f"not coalesce(reward < {_sql(band.low)} or reward >= {_sql(band.high)}, false)"
        )

    def count_errors(self, drawn: str, bands: Sequence[Band]) -> tuple[int, ...]:
        """Of drawn responses that the last model has scored, whose rows count as open only if they are, five numbers.

        All of them, those that are kept, and wrongly; those that the last model wants, and those of these that are lost.
        """
        last = len(bands)
        # Rows that are open count by the last model, as in the corpus. Of the others its word is the truth and no decision:
        # the band of the latest model that scored them has decided.
        joins = " ".join(f"left join s{stage} using (row_id, name)" for stage in range(last + 1))
        settled = " ".join(
            f"when s{stage}.row_id is not null then coalesce(s{stage}.reward >= {_sql(bands[stage].high)}, false)"
            for stage in reversed(range(last))
        )
        is_open = f"row_id in (select row_id from open{last - 1})"
        decided = (
            f"select case when {is_open} then s{last}.wanted {settled} end as kept, s{last}.wanted from {drawn} {joins}"
        )
        (counts,) = self.connection.execute(
            "select count(*), count(*) filter (kept), count(*) filter (kept and not wanted), count(*) filter (wanted), "
            f"count(*) filter (wanted and not kept) from (select coalesce(kept, false) as kept, coalesce(wanted, false) as "
            f"wanted from ({decided}))"
        ).fetchall()
        return tuple(counts)

    def decide(self, names: Sequence[str], highs: Sequence[float | None]) -> None:
        """Create the table `numbers`: of each response what the last model says that scored its row, and whether it is kept.

        `highs` are the upper edges of the bands of all models but the last; None: the model keeps nothing.
        """
        stages = range(len(names))

        def latest(values: Sequence[str]) -> str:
            cases = " ".join(f"when s{stage}.row_id is not null then {values[stage]}" for stage in reversed(stages))
            return f"case {cases} end"

        def of_each(column: str) -> list[str]:
            return [f"s{stage}.{column}" for stage in stages]

        kept = [f"s{stage}.reward >= {_sql(math.inf if high is None else high)}" for stage, high in enumerate(highs)]
        rewards = ", ".join(f"{quoted(name)} := s{stage}.reward" for stage, name in enumerate(names))
        self.connection.execute(
            f"create or replace table numbers as select s0.place, {latest(of_each('reward'))} as reward, "
            f"case when {latest(of_each('reward'))} is not null then struct_pack({rewards}) end as scores, "
            f"{latest(of_each('status'))} as status, {latest(of_each('reason'))} as reason, "
            f"list_sum([{', '.join(of_each('tokens'))}])::bigint as tokens, {latest(of_each('truncated'))} as truncated, "
            f"coalesce({latest([*kept, f's{len(highs)}.wanted'])}, false) as {KEPT}, "
            f"{latest([_text(name) for name in names])} as {STAGE} from s0 "
            + " ".join(f"left join s{stage} using (row_id, name)" for stage in stages[1:])
            + " order by s0.place"
        )

    def write(self, stage: int, name: str, label: str, rows: str) -> list[str]:
        """Write rows for a model; returns the files. `rows` is a query for their `row_id`; those that it has are left out.

        Raises `OutputError` if they can't be written.
        """
        self.connection.execute(
            f"create or replace table chosen as select row_id, min(place) as place from s0 where row_id in ({rows}) and "
            f"row_id not in (select row_id from ids{stage}) and {self.can_go_on} group by row_id"
        )
        folder = storage.folder(self.folder).sub(FOLDER).sub(name)
        groups = list(cut(self.first.entries, _FILE_BYTES, len(self.first.entries)))
        try:
            paths = [self._write(stage, folder, f"{label}-{number:05d}", group) for number, group in enumerate(groups)]
        except OSError as error:
            raise OutputError(f"{folder.path} can't be written: {error_text(error)}") from error
        return [path for path in paths if path is not None]

    def _write(self, stage: int, folder: storage.Folder, label: str, group: Sequence[Part]) -> str | None:
        places, end = self.first.places, self.first.places[group[-1]] + group[-1].counts.responses
        query = f"from chosen select row_id, place where place >= {places[group[0]]} and place < {end} order by place"
        chosen = self.connection.execute(query).fetchall()
        if not chosen:
            return None
        # By the rows that it holds: a file of that name is the same file, whoever wrote it.
        digest = hashlib.sha256("\n".join(row for row, _ in chosen).encode()).hexdigest()[:12]
        is_json = self.first.manifest.columns.is_json
        file = f"{label}-{digest}.{'jsonl' if is_json else 'parquet'}"
        tables = self._tables(group, [place for _, place in chosen])
        is_there = file in folder.names()
        folder.make()
        if is_json:
            lines = [one_line(record.as_py()) + b"\n" for table in tables for record in table.column(RECORD)]
            starts = [0, *itertools.accumulate(map(len, lines))]  # bytes, by which `score` names rows of JSON Lines
            if not is_there:
                with folder.writing(file) as stream:
                    stream.writelines(lines)
        else:
            starts = list(range(len(chosen)))  # row numbers, by which it names those of Parquet
            if not is_there:
                with folder.writing(file) as stream:
                    row_groups = RowGroups(stream, self.first.manifest.columns.carried)
                    for table in tables:
                        row_groups.add(table)
                    row_groups.close()
        ids = [(f"{file}:{start}", row) for start, (row, _) in zip(starts, chosen, strict=False)]
        self.connection.register("more", pa.table({"own": [name for name, _ in ids], "row_id": [row for _, row in ids]}))
        self.connection.execute(f"insert into ids{stage} from more")
        self.connection.unregister("more")
        return folder.file(file)

    def _tables(self, group: Sequence[Part], places: Sequence[int]) -> Iterator[pa.Table]:
        """The input's columns of the rows whose first responses are at some places, ascending."""
        names, remaining = self.first.manifest.columns.carried.names, list(places)
        for part in group:
            first = self.first.places[part]
            here = [place - first for place in remaining if place < first + part.counts.responses]
            remaining = remaining[len(here) :]
            if here:
                yield pa.concat_tables(read_tables(self.first.parts.path(part), names)).take(here)


def _sql(number: float) -> str:
    return f"'{number!r}'::double"  # `repr` gives all digits, and DuckDB reads 'inf' and '-inf' as text alone


def _text(name: str) -> str:
    return f"'{name}'"  # a name of a model is a plain word


def _read_run(run: MemberRun, where: str | None) -> pa.RecordBatchReader:
    """A run's responses, as `_SCHEMA`. Can be read once. Raises `ExpressionError` for a condition that can't be used."""
    columns = run.manifest.columns
    condition = Condition.check(where, columns.ours_first) if where is not None else None
    names = [columns.prefix + name for name in _READ]
    reads = [*names, *(name for name in (condition.columns if condition else ()) if name not in names)]
    evaluate = Evaluator({"wanted": condition.sql}, condition.columns, condition.flat) if condition else None

    def batches() -> Iterator[pa.RecordBatch]:
        place = 0  # a response's number in the corpus: parts are sorted by file and start, as the corpus is
        for part, _ in sorted(run.entries):
            for table in read_tables(run.parts.path(part), reads):
                wanted = pa.nulls(table.num_rows, pa.bool_()) if evaluate is None else evaluate(table).column("wanted")
                ours = [table.column(name) for name in names]
                numbered = pa.array(np.arange(place, place + table.num_rows))
                place += table.num_rows
                yield from pa.table([*ours, wanted, numbered], names=_SCHEMA.names).cast(_SCHEMA).to_batches()

    return pa.RecordBatchReader.from_batches(_SCHEMA, batches())
