"""The two folders as tables of DuckDB: a row for each response, with the key by which it is matched.

By row, the key is the input file's content, the place in it and the response's name, so that a file may be renamed. By
content it is the prompt's hash and the judged text. Keys are MD5 hashes of 128 bits. Equal ones are numbered in the order of
the corpus, so that duplicates are matched one to one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from actors.errors import SettingsError
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.folders.run_folder.columns import CANDIDATE, PROMPT_HASH, REASON, RESPONSE, REWARD, ROW, SCORES, STATUS, TEXT
from pipelines.folders.scored_corpus.databases import quoted
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus
from pipelines.folders.scored_corpus.summary import readable
from pipelines.results.comparison.kept_responses import filter_step, marked_rows
from pipelines.results.filtering.filter_step import FilterStep
from pipelines.settings.filter_settings import ChoiceSettings

REWARD_NAME = "reward"
MATCHED_BY = {"row": "input file, place and response name", "content": "prompt and text"}
_SCORES_PREFIX = "scores."
_PLACES = [("part_at", pa.int64()), ("row_at", pa.int64()), ("kept", pa.bool_())]
_FILES = pa.schema([("name", pa.string()), ("mark", pa.string())])
_OURS = (ROW, RESPONSE, PROMPT_HASH, STATUS, REASON)


class Matching(NamedTuple):
    """How responses are matched: by `row`, or by `content`, whose text is in the column `text` (without the prefix)."""

    by: str
    text: str = TEXT


def matching_of(first: OpenedCorpus, second: OpenedCorpus) -> Matching:
    """How the responses of two corpora are matched: by row if both were made of some file, and no policy drew them.

    Names of drawn responses say nothing: the same one may have another text. Raises `SettingsError` if a folder lacks texts.
    """
    drawn = first.manifest.columns.drawn or second.manifest.columns.drawn
    # A policy's responses have equal names in every run, with other texts below them.
    common = {_mark(file) for file in first.manifest.files} & {_mark(file) for file in second.manifest.files}
    # One common file is enough: rows of the others are in one folder only, as they should be.
    return Matching("row") if common and not drawn else Matching("content", _text_column(first, second))


def _mark(file: InputFile) -> str:
    # By content and not by name, so that a file may be renamed between the runs.
    return f"{file.size} {file.fingerprint}"


def _text_column(first: OpenedCorpus, second: OpenedCorpus) -> str:
    columns = first.manifest.columns, second.manifest.columns
    if all(side.text for side in columns):
        return TEXT
    if all(side.drawn for side in columns):
        return CANDIDATE
    without = first if not columns[0].text else second
    raise SettingsError(
        f"{without.folder} has no column {TEXT!r} (it was scored with `text: false`), and these two can only "
        "be matched by content: they were made of different files, or a policy drew the responses"
    )


def numbers_of(first: OpenedCorpus, second: OpenedCorpus, selection: Sequence[str]) -> tuple[str, ...]:
    """The numbers that are compared: those wanted, or all that both have. Raises `SettingsError` for any other.

    In the order of `selection`, or of the first folder; the first one is what gates and moves are of.
    """
    names = [_names(corpus) for corpus in (first, second)]
    for name in selection:
        for corpus, available in zip((first, second), names, strict=True):
            if name not in available:
                raise SettingsError(f"--number {name}: {corpus.folder} has {', '.join(available)}")
    return tuple(dict.fromkeys(selection)) or tuple(name for name in names[0] if name in names[1])


def _names(corpus: OpenedCorpus) -> list[str]:
    outputs = corpus.manifest.columns.outputs
    # A single output is the reward itself, and would be compared twice.
    return [REWARD_NAME, *(_SCORES_PREFIX + name for name in outputs if len(outputs) > 1)]


def load(
    connection: duckdb.DuckDBPyConnection,
    corpora: Mapping[str, OpenedCorpus],
    matching: Matching,
    numbers: Sequence[str],
    choice: ChoiceSettings,
) -> None:
    """Make a table of each corpus, by its name, with a row for each response.

    It has the response's place, key, status, numbers (n0, n1 ...), and whether the filter keeps it. Raises `SourceError` if
    a part can't be read, and as `filter` does for a choice that doesn't fit.
    """
    # Before anything is read: what is raised while DuckDB reads comes back as an error of DuckDB.
    steps = {table: filter_step(corpus, choice) for table, corpus in corpora.items()}
    for table, corpus in corpora.items():
        schema = _schema(corpus, matching)
        files = [{"name": file.name, "mark": _mark(file)} for file in corpus.manifest.files]
        connection.register("files", pa.Table.from_pylist(files, _FILES))
        connection.register(
            "incoming", pa.RecordBatchReader.from_batches(schema, _batches(corpus, steps[table], schema, choice))
        )
        with readable(corpus.responses.parts):
            selected = _select(corpus.manifest.columns.prefix, matching, numbers)
            connection.execute(f"create table {table}_rows as {selected}")
        connection.execute(
            f"""
            create table {table} as
            select *, row_number() over (partition by key order by part_at, row_at) as nth from {table}_rows
            """
        )
        # Before the next one is loaded: a table without numbered duplicates isn't read again.
        connection.execute(f"drop table {table}_rows")


def _select(prefix: str, matching: Matching, numbers: Sequence[str]) -> str:
    row, name, prompt, status, reason = (quoted(prefix + column) for column in _OURS)
    values = ", ".join(f"{_sql(prefix, number)} as n{position}" for position, number in enumerate(numbers))
    key = {
        # `row` is `file:place`, and names may hold colons: the place is what follows the last one.
        "row": f"files.mark || ' ' || regexp_extract({row}, '[^:]*$') || ' ' || {name}",
        "content": f"{prompt} || ' ' || {quoted(prefix + matching.text)}",
    }[matching.by]
    return f"""
        select part_at, row_at, kept, md5_number({key}) as key, {row} as row, {name} as name, {prompt} as prompt,
            {status} as status, {reason} as reason, {values}
        from incoming left join files on files.name = regexp_replace({row}, ':[^:]*$', '')
        """


def _sql(prefix: str, number: str) -> str:
    if number == REWARD_NAME:
        return quoted(prefix + REWARD)
    return f"{quoted(prefix + SCORES)}.{quoted(number.removeprefix(_SCORES_PREFIX))}"


def _schema(corpus: OpenedCorpus, matching: Matching) -> pa.Schema:
    columns = corpus.manifest.columns
    names = [*_OURS, REWARD, SCORES, *([matching.text] if matching.by == "content" else [])]
    fields = [columns.ours.field(columns.prefix + name) for name in names]
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in _PLACES)])


def _batches(
    corpus: OpenedCorpus, step: FilterStep | None, schema: pa.Schema, choice: ChoiceSettings
) -> Iterator[pa.RecordBatch]:
    names = schema.names[: -len(_PLACES)]
    for part, first, table, kept in marked_rows(corpus, step, choice, names):
        count = table.num_rows
        places = [
            pa.array([part] * count, pa.int64()),
            pa.array(range(first, first + count), pa.int64()),
            pa.nulls(count, pa.bool_()) if kept is None else pa.array(kept),
        ]
        plain = pa.schema(list(schema)[: len(names)])
        yield from pa.table([*table.select(names).cast(plain).columns, *places], schema).to_batches()
