"""The responses of a folder as the sections read them: numbers of all of them in DuckDB, and texts of a few.

The columns without texts go into a table `parts` of a DuckDB on disk, under the names that they have in the parts: counts,
quantiles and groups are exact over all responses, however many there are. Texts are read for the sampled responses and the
examples alone. Who is sampled depends on a hash of `row`, `response_name` and the seed: the same on every machine.
"""

import itertools
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from actors.errors import SettingsError
from actors.records import Message
from actors.text.tool_calls import write_turn
from pipelines.data.corpus.readers import RECORD
from pipelines.folders.run_folder.columns import CANDIDATE, FEEDBACK, RESPONSE, ROW, TEXT, TRACE, Columns
from pipelines.folders.scored_corpus.databases import connect, quoted
from pipelines.folders.scored_corpus.part_files import PART_AT, ROW_AT, in_order
from pipelines.folders.scored_corpus.read_back import Reader
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus, open_scored
from pipelines.folders.scored_corpus.summary import number_columns, readable
from pipelines.results.html_report.features import Features, features
from pipelines.results.html_report.group_columns import GroupColumn, group_column, no_column
from pipelines.results.html_report.shown_text import show

TEXT_MARK = "text_mark"
"""A hash of a candidate's text, by which equal ones are found; only where a policy drew the responses."""
_TURNS, _TURN_CHARACTERS, _TEXT_CHARACTERS = 4, 600, 3_000
"""Of an example at most so many of the last turns are shown, and of each text so many characters."""
_LEFT_OUT = (TEXT, TRACE, FEEDBACK)

Place = tuple[int, int]
"""The index of a response's part in the listing, and of the response in the part."""


class ReadText(NamedTuple):
    """What is kept of a text that was read: its features, and what is shown of it and of the turns before it."""

    features: Features | None
    turns: list[dict[str, str]]
    text: str | None


@dataclass(frozen=True)
class Responses:
    """The responses of a scored corpus, or those that a filter kept: a connection with the table `parts`, and a sample."""

    folder: str
    corpus: OpenedCorpus
    connection: duckdb.DuckDBPyConnection
    sampled: list[Place]
    texts: dict[Place, ReadText] = field(default_factory=dict)

    @property
    def columns(self) -> Columns:
        """The columns of the parts."""
        return self.corpus.manifest.columns

    @property
    def total(self) -> int:
        """The number of responses."""
        return self.corpus.total

    @property
    def share_error(self) -> float:
        """The standard error of a share of one half that is estimated from the sample; 0 if every response is in it."""
        sampled = len(self.sampled)
        return (0.25 / sampled * (1 - sampled / self.total)) ** 0.5 if sampled else 0.0

    @property
    def numbers(self) -> Mapping[str, str]:
        """The outputs by the names that conditions have for them, each as SQL."""
        return number_columns(self.columns)

    def name(self, column: str) -> str:
        """One of Assay's columns in SQL."""
        return quoted(self.columns.prefix + column)

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query over `parts`."""
        return self.connection.execute(sql, list(parameters)).fetchall()

    def places(self, where: str, order: str, limit: int) -> list[Place]:
        """The first responses that meet a condition, in an order; among equals those that come first in the corpus."""
        return [
            (part, row)
            for part, row in self.query(
                f"select {PART_AT}, {ROW_AT} from parts where {where} order by {order}, {PART_AT}, {ROW_AT} limit {limit}"
            )
        ]

    def rows(self, places: Collection[Place]) -> dict[Place, dict[str, Any]]:
        """The columns of `parts` at some places."""
        self.connection.register("wanted", place_table(places))
        table = self.connection.sql(
            f"select parts.* from parts join wanted on wanted.p = parts.{PART_AT} and wanted.r = parts.{ROW_AT}"
        ).to_arrow_table()
        return {(row.pop(PART_AT), row.pop(ROW_AT)): row for row in table.to_pylist()}

    def read_texts(self, shown: Collection[Place]) -> None:
        """Read the texts of the sample for their features, and those at the places that are `shown` to show them."""
        shown_places = set(shown)
        by_part = itertools.groupby(sorted({*self.sampled, *shown_places}), key=lambda place: place[0])
        source, listing = self.corpus.responses, self.corpus.responses.parts.listing()
        reader = Reader.of(self.corpus.manifest)
        text_column = self.columns.prefix + TEXT if self.columns.text else None
        names = list(dict.fromkeys([*reader.reads, *([text_column] if text_column else [])]))
        for part_at, group in by_part:
            part_rows, first = [row for _, row in group], 0
            for table in source.tables(listing[part_at], names):
                rows = [row for row in part_rows if first <= row < first + table.num_rows]
                sample = table.take(pa.array([row - first for row in rows], pa.int64()))
                judged_texts = sample.column(text_column).to_pylist() if text_column else [None] * len(rows)
                for row, read, text in zip(rows, reader.responses(sample), judged_texts, strict=True):
                    response_text = text if text is not None else read.text
                    self.texts[part_at, row] = _read(
                        read.context or (), response_text, is_shown=(part_at, row) in shown_places
                    )
                first += table.num_rows


@contextmanager
def opened(folder: str, *, partial: bool, by: Sequence[str], sample: int, seed: int) -> Iterator[Responses]:
    """Open a folder. Raises a `UserError` if it isn't a scored corpus, or has no column of a name in `by`."""
    corpus = open_scored(folder, "report", partial=partial, also=", or an evaluation (the folder of `evaluate --out`)")
    columns = corpus.manifest.columns
    grouped = _group_columns(columns, by)
    schema = _schema(columns, grouped)
    with (
        tempfile.TemporaryDirectory(prefix="assay-report-") as place,
        connect(str(Path(place, "parts.db"))) as connection,
    ):
        connection.register("incoming", in_order(corpus.responses, schema, schema.names))
        with readable(corpus.responses.parts):
            connection.execute(f"create table parts as select {_selected(columns, grouped)} from incoming")
        _check_values(connection, columns, grouped)
        yield Responses(folder, corpus, connection, _sample(connection, columns, sample, seed))


def place_table(places: Collection[Place]) -> pa.Table:
    """Places as a table for SQL, with columns `p` and `r`."""
    numbers = pa.array([part for part, _ in places], pa.int64()), pa.array([row for _, row in places], pa.int64())
    return pa.table(numbers, ["p", "r"])


def _schema(columns: Columns, grouped: Sequence[GroupColumn]) -> pa.Schema:
    """What is read of the parts: our columns without texts, and the columns that hold groups."""
    left_out = {columns.prefix + name for name in _LEFT_OUT}
    ours = [column for column in columns.ours if column.name not in left_out]
    read = {column.name for column in ours}
    holders = dict.fromkeys(group.holder for group in grouped if group.holder not in read)
    return pa.schema([*ours, *map(columns.schema.field, holders)])


def _group_columns(columns: Columns, by: Sequence[str]) -> list[GroupColumn]:
    """The columns of groups, each once. Raises `SettingsError` if there is none of a name."""
    names = list(dict.fromkeys(by))
    if reserved_name := next((name for name in names if name in (PART_AT, ROW_AT, TEXT_MARK)), None):
        raise SettingsError(f"--by {reserved_name}: the report uses this name itself; rename the column in the input")
    return [group_column(columns, name) for name in names]


def _selected(columns: Columns, grouped: Sequence[GroupColumn]) -> str:
    """What is taken into the table `parts`, as SQL: of the columns that hold more than groups, the groups alone."""
    ours = set(columns.ours.names)
    nested = [group for group in grouped if not group.is_plain]
    left_out = {group.holder for group in nested} - ours - {group.name for group in grouped if group.is_plain}
    expressions = [f"{group.sql} as {quoted(group.name)}" for group in nested]
    candidate = columns.prefix + CANDIDATE
    if candidate in ours:
        left_out |= {candidate} - {group.name for group in grouped}
        expressions.append(f"md5_number_lower({quoted(candidate)}) as {TEXT_MARK}")
    exclude = f" exclude ({', '.join(map(quoted, sorted(left_out)))})" if left_out else ""
    return ", ".join([f"*{exclude}", *expressions])


def _check_values(connection: duckdb.DuckDBPyConnection, columns: Columns, grouped: Sequence[GroupColumn]) -> None:
    """Raise `SettingsError` for a field of the records that no row has: its name may be a mistake."""
    for group in grouped:
        if group.holder == RECORD and not connection.sql(
            f"select 1 from parts where {quoted(group.name)} is not null limit 1"
        ):
            raise no_column(columns, group.name)


def _sample(connection: duckdb.DuckDBPyConnection, columns: Columns, count: int, seed: int) -> list[Place]:
    row, response = quoted(columns.prefix + ROW), quoted(columns.prefix + RESPONSE)
    return connection.execute(
        f"select {PART_AT}, {ROW_AT} from parts "
        f"order by md5_number_lower(concat_ws(' ', {row}, {response}, ?)), {row}, {response} limit {count}",
        [str(seed)],
    ).fetchall()


def _read(context: Sequence[Message], text: str | None, *, is_shown: bool) -> ReadText:
    measured = None if text is None else features(context, text)
    if not is_shown:
        return ReadText(measured, [], None)
    turns = [{"role": turn.role.value, "text": show(write_turn(turn), _TURN_CHARACTERS)} for turn in context[-_TURNS:]]
    return ReadText(measured, turns, None if text is None else show(text, _TEXT_CHARACTERS))
