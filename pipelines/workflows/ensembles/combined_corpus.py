"""The corpus that is made of several members' runs: its manifest, its parts, and its summary. Needs no model.

It starts over when a member was scored anew or the settings changed: the identity in its manifest contains both.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
from duckdb import DuckDBPyConnection

from actors.errors import AuditError, OutputError
from pipelines.data import storage
from pipelines.data.storage import error_text
from pipelines.data.storage.lease import check_held
from pipelines.folders.run_folder import earlier_run
from pipelines.folders.run_folder.columns import PROMPT_HASH, RESPONSE, ROW, STATUS, TEXT, Columns
from pipelines.folders.run_folder.dataset_card import write_scored_card
from pipelines.folders.run_folder.folder_state import FolderState
from pipelines.folders.run_folder.manifest import BrokenManifest, Manifest, read_manifest
from pipelines.folders.run_folder.member_runs import FOLDER, MEMBERS, folder_of
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts, read_table
from pipelines.folders.scored_corpus.part_files import drop_unreadable
from pipelines.folders.scored_corpus.scored_folder import audit_parts, read_scored_manifest
from pipelines.folders.scored_corpus.summary import Summary, summarise
from pipelines.run.runtime.progress import Progress
from pipelines.run.runtime.workers import workers
from pipelines.workflows.ensembles.align import MemberRun

# Responses of the parts that one task writes, at the most; more only if a single part has them.
_GROUP_RESPONSES = 2**15
_WAVE = 32  # groups whose numbers are in memory at a time: up to about 200 MB, for two members

Compute = Callable[[], AbstractContextManager[tuple[DuckDBPyConnection, Mapping[str, Any]]]]
"""Gives a connection with a table `numbers`, a row for each response at its `place`, and what the summary says of them."""


class Made(NamedTuple):
    """What makes the numbers of a combined corpus: the command, their name in the summary, their columns, and how."""

    command: str
    key: str
    columns: Sequence[str]
    compute: Compute


@dataclass(frozen=True)
class CombineStep:
    """The settings that a worker needs. Rows come from the first member's parts, and go to parts of the same ranges."""

    source: Parts
    target: Parts
    columns: Columns
    combined: Sequence[str]
    metadata: Mapping[str, str]


def read_earlier(folder: str, overwrite: bool, what: str) -> Manifest | None:
    """The manifest of an earlier run in the folder; None after that was deleted, or if it never began.

    Raises `OutputError` if the folder holds something else than `what`.
    """
    member_folders = storage.folder(folder).sub(FOLDER)
    try:
        earlier = read_manifest(folder)
    except BrokenManifest:
        if member_folders.is_empty():
            raise  # a folder of something else, which isn't ours to write into
        if overwrite:
            member_folders.delete_all()
        return None  # nothing is lost with it: members have manifests of their own, and are combined anew
    if earlier is None and not earlier_run.is_unused(folder):
        raise OutputError(f"{folder} holds something else than {what}; give a new or an empty folder")
    if earlier is not None and (overwrite or earlier_run.if_begun(folder, earlier) is None):
        _delete(folder, earlier)
        return None
    return earlier


def _delete(folder: str, earlier: Manifest) -> None:
    Parts(folder).delete()
    try:
        for name in earlier.identity.get(MEMBERS, {}):
            storage.folder(folder_of(folder, name)).delete_all()
    except OSError as error:
        raise OutputError(f"the run in {folder} can't be deleted: {error_text(error)}") from error


def open_member(output: str, name: str, command: str) -> MemberRun:
    """The complete run of a member. Raises a `UserError` if it isn't."""
    folder = folder_of(output, name)
    manifest = read_scored_manifest(folder, command)
    return MemberRun(name, Parts(folder, manifest.run), manifest, audit_parts(folder, manifest, partial=False))


def combine_runs(
    folder: str, first: MemberRun, manifest: Manifest, made: Made, progress: Progress | None = None
) -> tuple[Summary, Mapping[str, Any]]:
    """Write the combined corpus with the rows of the first member, or resume that; returns its summary and what was made.

    Raises `AuditError` if it doesn't add up to the first member's.
    """
    manifest = _start(folder, first, manifest)
    write_scored_card(folder, made.command, manifest)
    metadata = {"assay": json.dumps({"identity": manifest.identity, "made_with": manifest.made_with})}
    step = CombineStep(first.parts, Parts(folder, manifest.run), manifest.columns, made.columns, metadata)
    notify = (progress or Progress()).noted
    # Combined parts have the ranges of the first member's, so that what is missing is told by names alone.
    missing = _missing(step.target.repair(manifest.files, notify), first)
    # Parts are re-read only if none is missing: a damaged part is dropped, and written again below.
    if not missing and drop_unreadable(step.target, notify):
        missing = _missing(step.target.state(manifest.files), first)
    if missing or manifest.summary is None:
        about = _complete(step, first, made.compute, missing, progress or Progress())
    else:
        about = manifest.summary[made.key]
    counts = step.target.state(manifest.files).audit()
    expected = sum((part.counts for part, _ in first.entries), Counts())
    # Not by status: a response that the first member scored may be rejected in the combination.
    if (counts.rows, counts.responses) != (expected.rows, expected.responses):
        raise AuditError(f"the members hold {expected}, and the parts made of them {counts}")
    step.target.set_strays_aside(notify)
    summary = summarise(step.target, manifest.columns, counts)
    replace(manifest, summary={**summary.as_json(), made.key: about}).write(folder)
    return summary, about


def _missing(state: FolderState, first: MemberRun) -> list[Part]:
    combined = {part.place for part in state.parts}
    return [part for part, _ in first.entries if part.place not in combined]


def _start(folder: str, first: MemberRun, manifest: Manifest) -> Manifest:
    """Write the manifest of the combination, unless it is there. Parts of other members or settings are deleted first."""
    earlier = read_manifest(folder)
    if earlier is not None and earlier.identity == manifest.identity:
        manifest = replace(manifest, summary=earlier.summary, run=earlier.run)
    else:
        Parts(folder).delete()
        manifest = manifest.started()
        manifest.write(folder)
    parts = Parts(folder, manifest.run)
    parts.create()
    # Where a file ends is known from the first member's run, if the reader had to find it; `audit` needs it here, too.
    extents = first.parts.extents(manifest.files)
    for file in manifest.files:
        extent = extents[file.index]
        if file.extent is None and extent is not None:
            parts.end_seen(file, extent)
    return manifest


def _complete(
    step: CombineStep, first: MemberRun, compute: Compute, missing: Sequence[Part], progress: Progress
) -> Mapping[str, Any]:
    places = first.places
    with compute() as (connection, about):
        groups = list(_groups(missing))
        combined, total = 0, sum(part.counts.responses for part in missing)
        with workers(len(groups)) as pool:
            # In waves, since the numbers of a task leave the database when it is submitted, and wait in memory for a CPU.
            for start in range(0, len(groups), _WAVE):
                wave = [(step, group, _numbers(connection, group, places)) for group in groups[start : start + _WAVE]]
                for written in pool.map(write_parts, wave):
                    check_held()
                    combined += written
                    progress.combined(combined, total)
    return about


def _numbers(connection: DuckDBPyConnection, group: Sequence[Part], places: Mapping[Part, int]) -> pa.Table:
    """The numbers of the responses in some parts; `places` are the indices of the parts' first responses."""
    ranges = ((places[part], places[part] + part.counts.responses) for part in group)
    query = "from numbers where place >= {} and place < {} order by place"
    return pa.concat_tables(connection.sql(query.format(*ends)).to_arrow_table() for ends in ranges)


def _groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    group, responses = list[Part](), 0
    for part in parts:
        if group and responses + part.counts.responses > _GROUP_RESPONSES:
            yield group
            group, responses = [], 0
        group.append(part)
        responses += part.counts.responses
    if group:
        yield group


def write_parts(step: CombineStep, parts: Sequence[Part], numbers: pa.Table) -> int:
    """Write parts; `numbers` has a row per response of them. Returns the number of responses.

    Idempotent: a retry writes the same, and a part that is committed already is left alone.
    """
    columns, first = step.columns, 0
    names = [*columns.repeated.names, *(columns.prefix + name for name in (ROW, RESPONSE, PROMPT_HASH))]
    names += [columns.prefix + TEXT] if columns.text else []
    for part in parts:
        rows = read_table(step.source.path(part))
        combined = numbers.slice(first, rows.num_rows).select(list(step.combined))
        first += rows.num_rows
        table = pa.table([*rows.select(names).columns, *combined.columns], columns.schema.names).cast(columns.schema)
        counts = Counts.of_statuses(part.counts.rows, table.column(columns.prefix + STATUS).to_pylist())
        # With the first member's metadata, as examples of what can't be judged are the same for all members.
        table = table.replace_schema_metadata(rows.schema.metadata)
        step.target.commit(part._replace(counts=counts, run=""), table, step.metadata)
    return first
