"""`diff`: two scored corpora of the same rows, and what changed between them.

1. Open both folders, and settle how responses are matched, which numbers are compared, and in which unit.
2. Load a row for each response of either into DuckDB, with its key and whether the filter keeps it; join them.
3. Count what is in one only, statuses and kept responses that changed; rank the numbers, and find the largest moves.
4. Read the texts of the examples. Write `diff.json` and `moves.parquet`, and hold the gates against it.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import OutputError, SettingsError, SourceError
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import OutputKind
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.columns import WITHIN_ROW
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.member_runs import CASCADE, MEMBERS, is_fake
from pipelines.folders.scored_corpus.scored_folder import OpenedCorpus, open_scored
from pipelines.results.comparison import matched
from pipelines.results.comparison.kept_responses import is_filter
from pipelines.results.comparison.results import (
    PERCENTILE,
    VALUE,
    ComparedFolder,
    Differences,
    KeptChange,
    NumberChange,
    StatusChange,
    gate_failures,
)
from pipelines.results.comparison.shown_responses import with_texts
from pipelines.results.comparison.sides import MATCHED_BY, load, matching_of, numbers_of
from pipelines.settings.diff_settings import DiffSettings

_COMPARED, MOVES = OutputKind("diff", ("moves",)), "moves.parquet"
_MODEL = ("adapter", "family", "reward_weights", "read", "engine")
# Entries of an identity that decide on which scale a model's numbers are, beside its weights. Precision, card and versions
# don't: two runs that differ in these are of one model, and their moves are in the unit of the number.
_JUDGE = ("parser", "rubric", "pairs", "aggregate")
_ROW_GROUP = 65_536  # moves of a batch: all that is in memory of a table with as many rows as the corpus
_NAMED_FILES = 3  # of a corpus of a thousand files, enough to see which one it is


@dataclass(frozen=True)
class _Comparison:
    """Both corpora, open, and what is compared of them."""

    settings: DiffSettings
    first: OpenedCorpus
    second: OpenedCorpus
    matched_by: str
    numbers: Sequence[str]
    within_row: bool
    same_model: bool


def diff(settings: DiffSettings) -> Differences:
    """Compare two scored corpora. What the gates don't let pass is in `failures`, and raises nothing.

    Raises a `UserError` if a folder can't be read, they have no response in common, or the settings don't fit them.
    """
    _check(settings)
    first, second = (open_scored(folder, "diff", partial=settings.partial) for folder in (settings.first, settings.second))
    matching, numbers = matching_of(first, second), numbers_of(first, second, settings.numbers)
    within_row = first.manifest.columns.within_row or second.manifest.columns.within_row
    # Of a cascade the rewards are of several models, and which one's a response has may differ between the folders.
    is_staged = first.manifest.columns.staged or second.manifest.columns.staged
    same_model = not is_staged and _scale(first.manifest.identity) == _scale(second.manifest.identity)
    compared = _Comparison(settings, first, second, matching.by, numbers, within_row, same_model)
    with matched.database() as connection:
        load(connection, {"first": first, "second": second}, matching, numbers, settings.choice)
        matched.match(connection, len(numbers))
        differences = _differences(connection, compared)
        if settings.output is not None:
            _write(connection, settings.output, differences)
    return differences


def _check(settings: DiffSettings) -> None:
    if settings.gates.max_kept_changes is not None and not is_filter(settings.choice):
        raise SettingsError("--max-kept-changes goes with a filter: give --where, --top-fraction, --quantile or --top-k")
    folder = settings.output
    if folder is not None and not storage.folder(folder).is_empty() and _COMPARED.read(folder) is None:
        raise OutputError(f"{folder} isn't empty, and isn't a result of `assay diff`; give another folder with --out")


def _scale(identity: Mapping[str, Any]) -> Any:
    if members := identity.get(MEMBERS):
        return [identity.get("combine"), {name: _scale(member["identity"]) for name, member in members.items()}]
    judge = identity.get("judge") or {}
    # A model behind an address has no fingerprint of its weights, so its name stands for them.
    weights = identity.get("weights") or identity.get("model")
    return [weights, [identity.get(name) for name in _MODEL], [judge.get(name) for name in _JUDGE]]


def _differences(connection: duckdb.DuckDBPyConnection, compared: _Comparison) -> Differences:
    totals = matched.counts(
        connection,
        matched=matched.IN_BOTH,
        first="b_row is null",
        second="a_row is null",
        # A hash is null where a prompt couldn't be read: that is another status, and counted there.
        other_prompts=f"{matched.IN_BOTH} and a_prompt is not null and b_prompt is not null and a_prompt != b_prompt",
        number_only=f"{matched.IN_BOTH} and ({matched.number_once(len(compared.numbers))})",
    )
    if not totals["matched"]:
        raise SourceError(_nothing_common_text(compared))
    # The last number that is ranked is the first that is wanted: `moves` then holds its moves.
    changes = [_change(connection, compared, position) for position in reversed(range(len(compared.numbers)))][::-1]
    count, first, second = changes[0].responses, compared.first, compared.second
    # Rewards of two models aren't on one scale, so the moves of their responses are those of ranks. Ranks of responses that
    # are only comparable within a row say nothing, so moves have no unit then.
    unit_of_models = None if compared.within_row else PERCENTILE
    unit = (VALUE if compared.same_model else unit_of_models) if count else None
    show = compared.settings.show
    # The first one also where none is shown: a gate is held against the largest.
    moves = [] if unit is None else matched.table(connection, f"{_moves_sql(unit, count)} limit {max(1, show)}")
    differences = Differences(
        first=_side(first, totals["first"]),
        second=_side(second, totals["second"]),
        matched_by=compared.matched_by,
        matched=totals["matched"],
        duplicates=_duplicates(connection),
        other_prompts=totals["other_prompts"],
        number_only=totals["number_only"],
        same_model=compared.same_model,
        differs=_differing_entries(first.manifest, second.manifest),
        status_changes=_status_changes(connection),
        numbers=changes,
        unit=unit,
        largest_move=abs(moves[0]["move"]) if moves else None,
        moves=_add_texts(compared, moves[:show]),
        kept=_count_kept(connection, compared),
        examples=_examples(connection, compared),
        is_made_up=is_fake(first.manifest) or is_fake(second.manifest),
    )
    return replace(differences, failures=gate_failures(differences, compared.settings.gates))


def _nothing_common_text(compared: _Comparison) -> str:
    how = MATCHED_BY[compared.matched_by]
    made_of = " and ".join(_describe_source(corpus) for corpus in (compared.first, compared.second))
    return f"there is nothing to compare: no response is in both folders, by {how}. {made_of}"


def _describe_source(corpus: OpenedCorpus) -> str:
    files = ", ".join(file.name for file in corpus.manifest.files[:_NAMED_FILES])
    return f"{corpus.folder} ({corpus.total:,} responses) was made of {files}"


def _side(corpus: OpenedCorpus, only: int) -> ComparedFolder:
    return ComparedFolder(corpus.folder, corpus.manifest.run, _model(corpus.manifest), corpus.total, only)


def _model(manifest: Manifest) -> str:
    members = manifest.identity.get(MEMBERS)
    kind = CASCADE if CASCADE in manifest.identity else "ensemble"
    return f"{kind} of {', '.join(members)}" if members else str(manifest.identity.get("model"))


def _differing_entries(first: Manifest, second: Manifest) -> list[str]:
    pairs = (first.identity, second.identity), (first.made_with, second.made_with)
    return [name for before, after in pairs for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def _duplicates(connection: duckdb.DuckDBPyConnection) -> int:
    ((count,),) = connection.execute(
        f"""
        select coalesce(sum(n), 0)
        from (select count(*) as n from matched where {matched.IN_BOTH} group by key having n > 1)
        """
    ).fetchall()
    return int(count)


def _status_changes(connection: duckdb.DuckDBPyConnection) -> list[StatusChange]:
    rows = connection.execute(
        f"""
        select a_status, a_reason, b_status, b_reason, count(*) as n from matched where {matched.STATUS_CHANGED}
        group by all order by n desc, a_status, a_reason, b_status, b_reason
        """
    ).fetchall()
    return [StatusChange(*row) for row in rows]


def _change(connection: duckdb.DuckDBPyConnection, compared: _Comparison, number: int) -> NumberChange:
    count = matched.rank(connection, number)
    correlation = None if compared.within_row else matched.spearman(connection)
    why_not = None
    if correlation is None:
        why_not = (
            WITHIN_ROW
            if compared.within_row
            else f"{count:,} responses have it in both folders, and it takes two"
            if count < 2
            else "one of the folders has a single value"
        )
    differences: tuple[Any, ...] = (None, None, None)
    if count and compared.same_model:
        (differences,) = connection.execute("select avg(b - a), avg(abs(b - a)), max(abs(b - a)) from moves").fetchall()
    return NumberChange(compared.numbers[number], count, correlation, why_not, *differences)


_IN_ORDER = "a_part_at, a_row_at, b_part_at, b_row_at"
_NAMES = f"a_row, a_name, b_row, b_name, {_IN_ORDER}"
_STATES = f"{_NAMES}, a_status, a_reason, b_status, b_reason, a_n0 as a_number, b_n0 as b_number"


def _moves_sql(unit: str, count: int) -> str:
    ranks = ", ".join(
        # Twice the mean rank is stored, so that it is whole; position 1 is the highest number.
        f"{count} + 1 - {side}_rank / 2.0 as {side}_position, ({side}_rank - 1) * 50.0 / {count} as {side}_percentile"
        for side in "ab"
    )
    return f"""
        select {_NAMES}, a as a_number, b as b_number, {ranks}, {matched.move_sql(unit, count)} as move
        from moves join matched using (a_part_at, a_row_at) order by abs(move) desc, {_IN_ORDER}
    """


def _count_kept(connection: duckdb.DuckDBPyConnection, compared: _Comparison) -> KeptChange | None:
    choice = compared.settings.choice
    if not is_filter(choice):
        return None
    counts = matched.counts(
        connection,
        both=f"{matched.IN_BOTH} and a_kept and b_kept",
        first_only=f"{matched.IN_BOTH} and a_kept and not b_kept",
        second_only=f"{matched.IN_BOTH} and b_kept and not a_kept",
        first_unmatched="b_row is null and a_kept",
        second_unmatched="a_row is null and b_kept",
    )
    # As options of the command, so that it can be copied behind `assay filter`.
    described = " ".join(
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, value in choice.model_dump(exclude_none=True).items()
    )
    return KeptChange(described, **counts)


def _examples(connection: duckdb.DuckDBPyConnection, compared: _Comparison) -> dict[str, list[dict[str, Any]]]:
    conditions = {
        "only_in_first": "b_row is null",
        "only_in_second": "a_row is null",
        "status_changes": matched.STATUS_CHANGED,
        "kept_in_first_only": f"{matched.IN_BOTH} and a_kept and not b_kept",
        "kept_in_second_only": f"{matched.IN_BOTH} and b_kept and not a_kept",
    }
    examples = {}
    for name, condition in conditions.items():
        selected = f"select {_STATES} from matched where {condition}"
        rows = matched.table(connection, f"{selected} order by {_IN_ORDER} limit {compared.settings.show}")
        examples[name] = _add_texts(compared, rows)
    return examples


def _add_texts(compared: _Comparison, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    # The second folder's texts win; a response that only the first has keeps the first's.
    return with_texts(compared.second, "b", with_texts(compared.first, "a", rows))


def _write(connection: duckdb.DuckDBPyConnection, folder: str, differences: Differences) -> None:
    place = storage.folder(folder)
    try:
        place.make()
        if differences.unit is not None:
            moves = _moves_sql(differences.unit, differences.numbers[0].responses)
            query = connection.sql(f"select * exclude ({_IN_ORDER}) from ({moves})")
            reader: pa.RecordBatchReader = query.to_arrow_reader(_ROW_GROUP)
            # The document is written last: by it the folder is known to be whole.
            with place.writing(MOVES) as stream, pq.ParquetWriter(stream, reader.schema, compression="zstd") as writer:
                for batch in reader:
                    writer.write_batch(batch)
        else:
            # Of an earlier comparison: beside this document they would pass for its moves.
            place.delete(MOVES)
        _COMPARED.write(folder, differences.as_json())
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error_text(error)}") from error
