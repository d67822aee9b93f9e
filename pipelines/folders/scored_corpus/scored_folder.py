"""Opens a scored corpus, or the responses of it that a filter kept: manifest, and parts checked for gaps and overlaps."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from actors.errors import AuditError, SourceError
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import FILTER, describe
from pipelines.data.storage import Entry, error_text
from pipelines.folders.run_folder.coverage import audit
from pipelines.folders.run_folder.manifest import Manifest, read_manifest
from pipelines.folders.run_folder.member_runs import check_fresh
from pipelines.folders.run_folder.output_folder import parts_fingerprint
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts, is_empty, read_tables, unreadable
from pipelines.folders.scored_corpus.kept_responses import KeptResponses

PartEntries = Sequence[tuple[Part, Entry]]


@dataclass(frozen=True)
class ResponsesOf:
    """The responses of a scored corpus that are read: those in `parts`, or of these the ones that a filter `kept`.

    Small and picklable.
    """

    parts: Parts
    kept: KeptResponses | None = None

    def tables(self, part: Part, names: Sequence[str]) -> Iterator[pa.Table]:
        tables = self.all_tables(part, names)
        return tables if self.kept is None else self.kept.tables(part, tables)

    def all_tables(self, part: Part, names: Sequence[str]) -> Iterator[pa.Table]:
        return read_tables(self.parts.path(part), names)

    def counts(self, part: Part) -> tuple[int, int]:
        if self.kept is None:
            return part.counts.rows, part.counts.responses
        positions = self.kept.of_part(part)
        return positions.rows, positions.at.size


@dataclass(frozen=True)
class OpenedCorpus:
    """A scored corpus in `folder`, checked, or the responses of it that a filter kept."""

    folder: str
    manifest: Manifest
    entries: PartEntries
    kept: KeptResponses | None = None

    @property
    def responses(self) -> ResponsesOf:
        return ResponsesOf(Parts(storage.absolute(self.folder), self.manifest.run), self.kept)

    @cached_property
    def counts(self) -> Counts:
        # Added up once: callers ask for it for each part of a hundred thousand.
        return sum((part.counts for part, _ in self.entries), Counts())

    @property
    def total(self) -> int:
        return self.counts.responses if self.kept is None else self.kept.total

    @property
    def share(self) -> float:
        return self.total / max(1, self.counts.responses)

    @property
    def is_complete(self) -> bool:
        # Whether the parts tile the input: without `partial` they always do, and `partial` lets gaps pass.
        try:
            extents = self.responses.parts.extents(self.manifest.files)
            audit(self.manifest.files, extents, [part for part, _ in self.entries])
        except AuditError:
            return False
        return True

    @property
    def made_of(self) -> str:
        """A hash of what is read, which is different for other parts and for other responses."""
        parts = parts_fingerprint(self.entries)
        if self.kept is None:
            return parts
        return f"sha256:{hashlib.sha256(f'{parts} {self.kept.mark}'.encode()).hexdigest()}"

    @property
    def source(self) -> dict[str, Any]:
        return {
            "folder": storage.absolute(self.folder),
            "run": self.manifest.run,
            "identity": self.manifest.identity,
            "made_with": self.manifest.made_with,
            "fingerprint": self.manifest.fingerprint,
            "made_of": parts_fingerprint(self.entries),
            **({"kept": {"folder": self.kept.folder, "about": self.kept.about}} if self.kept else {}),
        }


def open_scored(folder: str, command: str, *, partial: bool = False, also: str = "") -> OpenedCorpus:
    """Open a scored corpus, or the result of a filter; `command` is who reads it, for the message, and `also` what else.

    Raises a `UserError` if the folder is neither, isn't complete (unless `partial`), is an ensemble whose members' runs have
    changed since, or was made by a filter of a corpus that isn't there any more or has changed.
    """
    if (result := FILTER.read(folder)) is not None:
        return _open_result(folder, result, partial)
    manifest = read_scored_manifest(folder, command, also)
    return OpenedCorpus(folder, manifest, audit_parts(folder, manifest, partial))


def read_scored_manifest(folder: str, command: str, also: str = "") -> Manifest:
    """The manifest of a scored folder, or of the one that the result of a filter was made of. Raises as `open_scored`.

    The folder isn't audited: for what the settings and columns alone tell.
    """
    if (result := FILTER.read(folder)) is not None:
        return _manifest_of_result(folder, result)
    manifest = read_manifest(folder)
    if manifest is None:
        raise SourceError(
            f"{folder} {describe(folder)}, and `{command}` reads a scored corpus (the output folder of `score`, `ensemble`, "
            f"`sample` or `refine`) or the result of `filter`{also}"
        )
    check_fresh(folder, manifest)
    return manifest


def read_manifest_with_parts(folder: str, command: str) -> Manifest:
    """The manifest of a folder that has parts itself. Raises as `read_scored_manifest`, and for a filter's result."""
    if (result := FILTER.read(folder)) is not None:
        raise SourceError(
            f"{folder} is the result of `filter`, which has no parts; give {result['source']['folder']}, "
            "of which it was made"
        )
    return read_scored_manifest(folder, command)


def _manifest_of_result(folder: str, result: Mapping[str, Any]) -> Manifest:
    source = result["source"]["folder"]
    manifest = read_manifest(source)
    if manifest is None:
        raise SourceError(
            f"{folder} is the result of a `filter` of {source}, where the scores of its responses are, and {source} "
            f"{describe(source)}; put it back there, or filter it where it is now"
        )
    check_fresh(source, manifest)
    return manifest


def _open_result(folder: str, result: Mapping[str, Any], partial: bool) -> OpenedCorpus:
    if result.get("summary") is None:
        raise SourceError(f"{folder} {describe(folder)}; run the command that wrote it again to finish it")
    source = result["source"]
    manifest = _manifest_of_result(folder, result)
    # A result is read back by positions in the parts: of parts that were scored again, these are other responses.
    entries = audit_parts(source["folder"], manifest, partial or result["settings"]["partial"])
    if (manifest.fingerprint, parts_fingerprint(entries)) != (source["fingerprint"], source["made_of"]):
        raise SourceError(
            f"{folder} is the result of a `filter` of {source['folder']}, which has changed since; run the same `filter` "
            "again with --overwrite"
        )
    counts, side = result["summary"], result["holds"]
    total = counts["kept"] if side == "kept" else counts["responses"] - counts["kept"]
    earlier = f"{source['kept']['about']}; then " if "kept" in source else ""
    about = f"{earlier}{result['description']}" if side == "kept" else f"{earlier}not {result['description']}"
    # Of the whole document: a result that is made anew is read anew, also by workers that hold the earlier note.
    mark = hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
    first_parts = tuple(part for part in map(Part.parse, result["firsts"]) if part is not None)
    kept = KeptResponses(storage.absolute(folder), about, mark, total, first_parts)
    return OpenedCorpus(source["folder"], manifest, entries, kept)


def audit_parts(folder: str, manifest: Manifest, partial: bool) -> PartEntries:
    """The parts, sorted. Raises `AuditError` for overlaps, and `SourceError` for gaps unless `partial`.

    An empty part is named first: its name would otherwise prove rows that nobody can read.
    """
    try:
        run = Parts(folder, manifest.run)
        state = run.state(manifest.files)
    except OSError as error:
        raise SourceError(f"{folder} can't be read: {error_text(error)}") from error
    if empty := next((part for part, entry in state.parts.entries if is_empty(entry)), None):
        raise unreadable(run.path(empty), "can't be read: it is empty")
    # Overlaps are refused in any case, since rows would count twice (exit code 4). A gap alone is a run that isn't done,
    # whose command is named.
    state.audit(partial=True)
    if not partial:
        try:
            state.audit()
        except AuditError as error:
            raise SourceError(
                f"{folder} isn't complete: {error}\n"
                "Run the same command again to resume it; --partial takes the parts that exist"
            ) from error
    return state.parts.entries
