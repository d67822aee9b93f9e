"""The responses of a folder as the sections read them: numbers of all of them in DuckDB, and texts of a few.

The columns without texts go into a table `parts` of a DuckDB on disk, under the names that they have in the parts: counts,
quantiles and groups are exact over all responses, however many there are. Texts are read for the sampled responses and the
examples alone. Who is sampled depends on a hash of `row`, `response_name` and the seed: the same on every machine.
"""

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
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus, open_scored
from pipelines.folders.scored_corpus.summary import number_columns, readable
from pipelines.results.comparison.shown_responses import Place, read_responses
from pipelines.results.html_report.features import Features, features
from pipelines.results.html_report.group_columns import GroupColumn, group_column, group_name, no_column
from pipelines.results.html_report.shown_text import show

# A hash of a candidate's text, 8 bytes instead of a kilobyte, by which equal ones are found; only where a policy drew the
# responses.
TEXT_MARK = "text_mark"
# Limits of an example: last turns, characters of a turn, characters of the response. Fifty examples then take 0.3 MB at
# most.
_TURNS, _TURN_CHARACTERS, _TEXT_CHARACTERS = 4, 600, 3_000
_TEXTS = (TEXT, TRACE, FEEDBACK)


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
        return self.corpus.manifest.columns

    @property
    def total(self) -> int:
        return self.corpus.total

    @property
    def share_error(self) -> float:
        sampled = len(self.sampled)
        # sqrt(p (1 - p) / n), largest at p = 1/2, times the finite population correction: 0 if every response is read.
        return (0.25 / sampled * (1 - sampled / self.total)) ** 0.5 if sampled else 0.0

    @property
    def numbers(self) -> Mapping[str, str]:
        return number_columns(self.columns)

    def name(self, column: str) -> str:
        return quoted(self.columns.prefix + column)

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, list(parameters)).fetchall()

    def places(self, where: str, order: str, limit: int) -> list[Place]:
        return [
            (part, row)
            for part, row in self.query(
                # Among equals those that come first in the corpus, so that the page is the same in every run.
                f"select {PART_AT}, {ROW_AT} from parts where {where} order by {order}, {PART_AT}, {ROW_AT} limit {limit}"
            )
        ]

    def rows(self, places: Collection[Place]) -> dict[Place, dict[str, Any]]:
        self.connection.register("wanted", place_table(places))
        table = self.connection.sql(
            f"select parts.* from parts join wanted on wanted.p = parts.{PART_AT} and wanted.r = parts.{ROW_AT}"
        ).to_arrow_table()
        return {(row.pop(PART_AT), row.pop(ROW_AT)): row for row in table.to_pylist()}

    def read_texts(self, shown: Collection[Place]) -> None:
        shown_places = set(shown)
        for place, response, text in read_responses(self.corpus, {*self.sampled, *shown_places}):
            self.texts[place] = _read(response.context or (), text, is_shown=place in shown_places)


@contextmanager
def opened(folder: str, *, partial: bool, by: Sequence[str], sample: int, seed: int) -> Iterator[Responses]:
    """Open a folder. Raises a `UserError` if it isn't a scored corpus, or has no column of a name in `by`."""
    corpus = open_scored(folder, "report", partial=partial, also=", or an evaluation (the folder of `evaluate --out`)")
    columns = corpus.manifest.columns
    grouped = [group_column(columns, name) for name in by]
    if reserved := next((group.name for group in grouped if group.holder in (PART_AT, ROW_AT)), None):
        raise SettingsError(f"--by {reserved}: the report uses this name itself; rename the column in the input")
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
    # Without texts, which are most of the bytes: those of the sample are read by themselves.
    texts = {columns.prefix + name for name in _TEXTS}
    read = {field.name: field for field in columns.ours if field.name not in texts}
    return pa.schema({**{group.holder: columns.schema.field(group.holder) for group in grouped}, **read}.values())


def _selected(columns: Columns, grouped: Sequence[GroupColumn]) -> str:
    """What is taken into the table `parts`, as SQL: our columns without texts, and each group under `group_name`."""
    texts = {columns.prefix + name for name in (*_TEXTS, CANDIDATE)}
    ours = [quoted(name) for name in columns.ours.names if name not in texts]
    groups = [f"{group.sql} as {group_name(position)}" for position, group in enumerate(grouped)]
    mark = [f"md5_number_lower({quoted(columns.prefix + CANDIDATE)}) as {TEXT_MARK}"] if columns.drawn else []
    return ", ".join([PART_AT, ROW_AT, *ours, *groups, *mark])


def _check_values(connection: duckdb.DuckDBPyConnection, columns: Columns, grouped: Sequence[GroupColumn]) -> None:
    # A record has no schema: a name that no row has may be a mistake, which shows only after all were read.
    for position, group in enumerate(grouped):
        if group.holder == RECORD and not connection.sql(
            f"select 1 from parts where {group_name(position)} is not null limit 1"
        ):
            raise no_column(columns, group.name)


def _sample(connection: duckdb.DuckDBPyConnection, columns: Columns, count: int, seed: int) -> list[Place]:
    row, response = quoted(columns.prefix + ROW), quoted(columns.prefix + RESPONSE)
    return connection.execute(
        f"select {PART_AT}, {ROW_AT} from parts "
        # A hash is as good as chance and the same on every machine, whatever the parts are. Ties of hashes by name.
        f"order by md5_number_lower(concat_ws(' ', {row}, {response}, ?)), {row}, {response} limit {count}",
        [str(seed)],
    ).fetchall()


def _read(context: Sequence[Message], text: str | None, *, is_shown: bool) -> ReadText:
    measured = None if text is None else features(context, text)
    if not is_shown:
        return ReadText(measured, [], None)
    # Features are of the whole text, and what is shown is cut: only these bytes are kept of 20,000 texts.
    turns = [{"role": turn.role.value, "text": show(write_turn(turn), _TURN_CHARACTERS)} for turn in context[-_TURNS:]]
    return ReadText(measured, turns, None if text is None else show(text, _TEXT_CHARACTERS))
