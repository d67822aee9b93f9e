"""Aligns the members of an ensemble: the same responses in the same order, or an error that names the first difference.

All members scored the same files, so each holds the responses in the same order, however its parts are cut. They are read
as streams in parallel, in the order of the first member's parts: a merge without sorting, with one table per member in
memory.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from actors.errors import AuditError
from actors.records import Status
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.data.storage import Entry
from pipelines.folders.run_folder.columns import PROMPT_HASH, PROMPT_TOKENS, REASON, RESPONSE, REWARD, ROW, STATUS, TRUNCATED
from pipelines.folders.run_folder.coverage import Piece, by_file
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts, read_tables

_IDENTITY = (ROW, RESPONSE, PROMPT_HASH)
"""Columns in which the members must agree."""
_READ = (*_IDENTITY, REWARD, STATUS, REASON, PROMPT_TOKENS, TRUNCATED)


@dataclass(frozen=True)
class MemberRun:
    """The complete scored corpus of a member."""

    name: str
    parts: Parts
    manifest: Manifest
    entries: Sequence[tuple[Part, Entry]]

    @functools.cached_property
    def pieces(self) -> Mapping[tuple[str, int, str], list[Piece]]:
        """What the parts cover, in order, by input file: its identity, as its number may differ between members."""
        extents = self.parts.extents(self.manifest.files)
        pieces_by_number = by_file((part for part, _ in self.entries), extents)
        return {_file(file): pieces_by_number.get(file.index, []) for file in self.manifest.files}


class AlignedPart(NamedTuple):
    """The combined results for the responses in one part of the first member: a row per response, for `z_scores`."""

    part: Part
    table: pa.Table


def align_members(runs: Sequence[MemberRun]) -> Iterator[AlignedPart]:
    """Align the responses of the members, part by part of the first one.

    Raises `AuditError` unless all members hold exactly the same responses; it names the first that differs.
    """
    first, *further = runs
    if strange := [run.name for run in further if run.pieces.keys() != first.pieces.keys()]:
        raise AuditError(f"the members weren't made of the same files: {strange[0]} of others than {first.name}")
    within_row = any(run.manifest.columns.within_row for run in runs)
    readers = [_PartReader(run) for run in runs]
    files_of_part: list[list[pa.Table]] = []  # a table per member, for each file of a part so far
    for file in first.manifest.files:
        streams = [_Responses(reader, file) for reader in readers]
        for part, _ in first.pieces[_file(file)]:
            count = readers[0].count(part, file)
            tables = [stream.take(count) for stream in streams]
            for run, table in zip(further, tables[1:], strict=True):
                _check_same(first.name, tables[0], run.name, table)
            files_of_part.append(tables)
            if part.last_file == file.index:
                yield AlignedPart(part, _combine(list(map(pa.concat_tables, zip(*files_of_part, strict=True))), within_row))
                files_of_part.clear()
        # The first member is used up here; this finds a member with more responses than it.
        for run, stream in zip(runs, streams, strict=True):
            if (extra := stream.take(1)).num_rows:
                raise AuditError(
                    f"{run.name} has {_describe(extra, 0)}, and that is more than the others have of {file.name}"
                )


def _file(file: InputFile) -> tuple[str, int, str]:
    """The identity of an input file."""
    return file.name, file.size, file.fingerprint


class _PartReader:
    """Reads a member's responses. Of a part of several files it keeps the last one that it has read, split by file."""

    def __init__(self, run: MemberRun) -> None:
        columns = run.manifest.columns
        self.run = run
        self._names = [columns.prefix + name for name in _READ]
        kinds = {name: columns.ours.field(columns.prefix + name).type for name in _READ}
        self.schema = pa.schema(list(kinds.items()))
        self._last: Part | None = None
        self._by_file: Mapping[str, pa.Table] = {}

    def count(self, part: Part, file: InputFile) -> int:
        """The number of a part's responses that are of a file."""
        return self._of_file(part, file).num_rows if part.further else part.counts.responses

    def tables(self, part: Part, file: InputFile) -> Iterator[pa.Table]:
        """A part's responses that are of a file, in order."""
        if part.further:
            yield self._of_file(part, file)
        else:
            yield from self._read(part)

    def _of_file(self, part: Part, file: InputFile) -> pa.Table:
        if part != self._last:
            self._last, self._by_file = part, _split(pa.concat_tables([self.schema.empty_table(), *self._read(part)]))
        return self._by_file.get(file.name, self.schema.empty_table())

    def _read(self, part: Part) -> Iterator[pa.Table]:
        for table in read_tables(self.run.parts.path(part), self._names):
            yield table.rename_columns(list(_READ))


def _split(table: pa.Table) -> dict[str, pa.Table]:
    """The rows of each file, which follow each other, by its name."""
    names = [row.rpartition(":")[0] for row in table.column(ROW).to_pylist()]
    edges = [0, *(at for at in range(1, len(names)) if names[at] != names[at - 1]), len(names)]
    return {names[first]: table.slice(first, last - first) for first, last in itertools.pairwise(edges) if first < last}


class _Responses:
    """A stream of a member's responses to the rows of a file, in order."""

    def __init__(self, reader: _PartReader, file: InputFile) -> None:
        self._left = reader.schema.empty_table()
        pieces = reader.run.pieces[_file(file)]
        self._tables = itertools.chain.from_iterable(reader.tables(piece.part, file) for piece in pieces)

    def take(self, count: int) -> pa.Table:
        """The next `count` responses; fewer at the end of the file."""
        # With 3 left of a table of 100, 50 are those 3 and 47 of the next one, of which 53 are left.
        slices = [self._left.slice(0, count)]
        while (missing := count - sum(table.num_rows for table in slices)) > 0:
            table = next(self._tables, None)
            if table is None:
                break
            self._left = table
            slices.append(table.slice(0, missing))
        # The last slice was the beginning of `_left`.
        self._left = self._left.slice(slices[-1].num_rows)
        return pa.concat_tables(slices)


def _check_same(name: str, table: pa.Table, other_name: str, other: pa.Table) -> None:
    # Whole columns first: of equal members, which is nearly always, no row becomes a Python object.
    if table.select(_IDENTITY).equals(other.select(_IDENTITY)):
        return
    # The first difference; if one table is the beginning of the other, that is the first response after its end.
    shorter = min(table.num_rows, other.num_rows)
    ids, other_ids = (side.select(_IDENTITY).slice(0, shorter).to_pylist() for side in (table, other))
    pairs = enumerate(zip(ids, other_ids, strict=True))
    index = next((index for index, (expected, actual) in pairs if expected != actual), shorter)
    raise AuditError(
        "the members don't hold the same responses: "
        f"{name} has {_describe(table, index)}, where {other_name} has {_describe(other, index)}"
    )


def _describe(table: pa.Table, index: int) -> str:
    if index >= table.num_rows:
        return "no more"
    row, response, prompt_hash = (table.column(name)[index].as_py() for name in _IDENTITY)
    return f"{response} of {row} (prompt {prompt_hash})"


def _combine(tables: Sequence[pa.Table], within_row: bool) -> pa.Table:
    """Combine the members' tables (aligned, equally long) into one with a row per response.

    A response is scored if every member scored it; else it has the status and the reason of the first member that didn't.
    `prompt` is the group for z-scores: with `within_row`, where rewards are comparable only within a row of the corpus, it
    contains the row.
    """
    # Any member's: `_check_same` has found these columns equal in all.
    prompt, row = (tables[0].column(name) for name in (PROMPT_HASH, ROW))
    scored_by_member = [pc.equal(table.column(STATUS), Status.SCORED.value) for table in tables]
    scored = functools.reduce(pc.and_, scored_by_member)
    # Null where the member scored it: `coalesce` below then takes the status of the first member that didn't.
    unscored = [
        pc.if_else(is_scored, pa.scalar(None, pa.string()), table.column(STATUS))
        for is_scored, table in zip(scored_by_member, tables, strict=True)
    ]
    # A member that rejected the response may have null tokens: they count as 0, and the sum is null only if all are.
    tokens = [table.column(PROMPT_TOKENS).cast(pa.int64()) for table in tables]
    total = functools.reduce(pc.add, [pc.fill_null(counts, 0) for counts in tokens])
    has_tokens = functools.reduce(pc.or_, [pc.is_valid(counts) for counts in tokens])
    truncated = functools.reduce(pc.or_, [table.column(TRUNCATED) for table in tables])
    # All or none: a response that one member didn't score would shift the mean and deviation of the others' baselines.
    rewards = {
        f"r{number}": pc.if_else(scored, table.column(REWARD), pa.scalar(None, pa.float64()))
        for number, table in enumerate(tables)
    }
    return pa.table(
        {
            "prompt": pc.binary_join_element_wise(prompt, row, " ") if within_row else prompt,
            "status": pc.coalesce(*unscored, pa.scalar(Status.SCORED.value)),
            # A scored response has no reason, so the first one is that of the first member that didn't score it.
            "reason": pc.coalesce(*(table.column(REASON) for table in tables)),
            "tokens": pc.if_else(has_tokens, total, pa.scalar(None, pa.int64())),
            "truncated": truncated,
            **rewards,
        }
    )
