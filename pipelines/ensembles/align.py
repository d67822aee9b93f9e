"""The members of an ensemble side by side: the same responses in the same order, or an error that names the difference.

All were made of the same files, so each holds them in the same order, however its parts are cut. They are read together as
streams, in the order of the first member's parts, and nothing has to be sorted or looked up.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from actors.errors import AuditError
from actors.records import Status
from pipelines.corpus.corpus_files import InputFile
from pipelines.scored_corpus.columns import PROMPT_HASH, PROMPT_TOKENS, REASON, RESPONSE, REWARD, ROW, STATUS, TRUNCATED
from pipelines.scored_corpus.manifest import Manifest
from pipelines.scored_corpus.parts import Part, Parts, by_file, read_tables
from pipelines.storage import Entry

_SAME = (ROW, RESPONSE, PROMPT_HASH)
_READ = (*_SAME, REWARD, STATUS, REASON, PROMPT_TOKENS, TRUNCATED)


@dataclass(frozen=True)
class MemberRun:
    """What a member scored, complete."""

    name: str
    parts: Parts
    manifest: Manifest
    entries: Sequence[tuple[Part, Entry]]

    @functools.cached_property
    def by_file(self) -> Mapping[tuple[str, int, str], list[Part]]:
        """Its parts in order, by the file that they are of. The number of a file may be another one in another member."""
        grouped = by_file(part for part, _ in self.entries)
        return {_file(file): grouped.get(file.index, []) for file in self.manifest.files}


class Aligned(NamedTuple):
    """What the members say of the responses in one part of the first: a row per response, as `z_scores` wants it."""

    part: Part
    table: pa.Table


def align_members(runs: Sequence[MemberRun]) -> Iterator[Aligned]:
    """The responses of the members side by side, for each of the first one's parts.

    Raises `AuditError` unless all members hold exactly the same responses, naming the first that they don't.
    """
    first, *others = runs
    if strange := [run.name for run in others if run.by_file.keys() != first.by_file.keys()]:
        raise AuditError(f"the members weren't made of the same files: {strange[0]} of others than {first.name}")
    within_row = any(run.manifest.columns.within_row for run in runs)
    for file in first.manifest.files:
        own = _Responses(first, file)
        streams = [_Responses(run, file) for run in others]
        for part in first.by_file[_file(file)]:
            tables = [stream.take(part.counts.responses) for stream in (own, *streams)]
            for run, table in zip(others, tables[1:], strict=True):
                _check_same(first.name, tables[0], run.name, table)
            yield Aligned(part, _together(tables, within_row))
        for run, stream in zip(runs, (own, *streams), strict=True):
            if (left := stream.take(1)).num_rows:
                raise AuditError(f"{run.name} has {_named(left, 0)}, and that is more than the others have of {file.name}")


def _file(file: InputFile) -> tuple[str, int, str]:
    return file.name, file.size, file.fingerprint


class _Responses:
    """A member's responses to the rows of a file, in their order, as many at a time as are asked for."""

    def __init__(self, run: MemberRun, file: InputFile) -> None:
        columns = run.manifest.columns
        self._names = [columns.prefix + name for name in _READ]
        kinds = {name: columns.ours.field(columns.prefix + name).type for name in _READ}
        self._left = pa.schema(list(kinds.items())).empty_table()
        self._tables = self._read(run.parts, run.by_file[_file(file)])

    def _read(self, parts: Parts, own: Sequence[Part]) -> Iterator[pa.Table]:
        for part in own:
            seen = 0
            for table in read_tables(parts.path(part), self._names):
                seen += table.num_rows
                yield table.rename_columns(list(_READ))
            if seen != part.counts.responses:
                raise AuditError(f"{part.name} in {parts.folder} holds {seen} responses, and its name says {part.counts}")

    def take(self, count: int) -> pa.Table:
        """The next `count` responses; fewer at the end of the file."""
        taken = [self._left.slice(0, count)]
        while (missing := count - sum(table.num_rows for table in taken)) > 0:
            following = next(self._tables, None)
            if following is None:
                break
            self._left = following
            taken.append(following.slice(0, missing))
        self._left = self._left.slice(taken[-1].num_rows)
        return pa.concat_tables(taken)


def _check_same(name: str, table: pa.Table, other_name: str, other: pa.Table) -> None:
    if table.select(_SAME).equals(other.select(_SAME)):
        return
    shorter = min(table.num_rows, other.num_rows)
    pairs = zip(*(found.select(_SAME).slice(0, shorter).to_pylist() for found in (table, other)), strict=True)
    at = next((at for at, (one, its) in enumerate(pairs) if one != its), shorter)
    raise AuditError(
        "the members don't hold the same responses: "
        f"{name} has {_named(table, at)}, where {other_name} has {_named(other, at)}"
    )


def _named(table: pa.Table, at: int) -> str:
    if at >= table.num_rows:
        return "no more"
    row, response, prompt_hash = (table.column(name)[at].as_py() for name in _SAME)
    return f"{response} of {row} (prompt {prompt_hash})"


def _together(tables: Sequence[pa.Table], within_row: bool) -> pa.Table:
    """One row per response. It is scored if every member scored it; otherwise it is what the first says that didn't.

    Equal prompts of different rows are different ones, where rewards mean something `within_row` alone.
    """
    prompt, row = (tables[0].column(name) for name in (PROMPT_HASH, ROW))
    every = [pc.equal(table.column(STATUS), Status.SCORED.value) for table in tables]
    scored = every[0]
    for own in every[1:]:
        scored = pc.and_(scored, own)
    unscored = [
        pc.if_else(own, pa.scalar(None, pa.string()), table.column(STATUS)) for own, table in zip(every, tables, strict=True)
    ]
    tokens = [table.column(PROMPT_TOKENS).cast(pa.int64()) for table in tables]
    known = [pc.fill_null(own, 0) for own in tokens]
    total, any_known, truncated = known[0], pc.is_valid(tokens[0]), tables[0].column(TRUNCATED)
    for own, its_tokens, table in zip(known[1:], tokens[1:], tables[1:], strict=True):
        total = pc.add(total, own)
        any_known = pc.or_(any_known, pc.is_valid(its_tokens))
        truncated = pc.or_(truncated, table.column(TRUNCATED))
    rewards = {
        f"r{at}": pc.if_else(scored, table.column(REWARD), pa.scalar(None, pa.float64())) for at, table in enumerate(tables)
    }
    return pa.table(
        {
            "prompt": pc.binary_join_element_wise(prompt, row, " ") if within_row else prompt,
            "status": pc.coalesce(*unscored, pa.scalar(Status.SCORED.value)),
            "reason": pc.coalesce(*(table.column(REASON) for table in tables)),
            "tokens": pc.if_else(any_known, total, pa.scalar(None, pa.int64())),
            "truncated": truncated,
            **rewards,
        }
    )
