"""Checks the parts of a run: that each is whole, of this run, and holds what its name says, and that they tile the input."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import AuditError, SourceError
from pipelines.data.corpus.corpus_files import InputFile, Range
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.columns import ROW, STATUS
from pipelines.folders.run_folder.coverage import audit
from pipelines.folders.run_folder.earlier_run import FILES_KEY
from pipelines.folders.run_folder.manifest import Manifest, files_mark
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.part_content import batches, footer_note
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.part_files import CheckedPart, check_contents


@dataclass(frozen=True)
class CheckedParts:
    """What was found of all parts of a run, and whether the good ones add up to the input (`gaps`: why they don't)."""

    parts: tuple[CheckedPart, ...]
    strays: tuple[str, ...]
    gaps: str | None

    @property
    def bad(self) -> list[CheckedPart]:
        return [part for part in self.parts if part.problem is not None]


def check_parts(parts: Parts, manifest: Manifest) -> CheckedParts:
    """Check all parts of a run. Raises `SourceError` if the storage doesn't give them, or there is no memory for them."""
    # All of these once, and not for each part: of 25,000 parts and 100,000 files that took hours.
    files = {file.index: file for file in manifest.files}
    declared = {file.index: file.extent for file in manifest.files}
    mark = functools.cache(lambda count: files_mark(manifest.files[:count]))

    def check(part: Part, parquet: pq.ParquetFile) -> str | None:
        foreign = _foreign(part, parquet, manifest.columns.schema, files, mark)
        return foreign or _contradiction(part, parquet, manifest.columns.prefix, files, declared)

    try:
        checked = tuple(check_contents(parts, check))
        strays, extents = tuple(parts.strays()), parts.extents(manifest.files)
    except OSError as error:
        raise SourceError(f"{parts.folder} can't be read: {error_text(error)}") from error
    gaps = None
    try:
        audit(manifest.files, extents, [part.part for part in checked if part.problem is None])
    except AuditError as error:
        gaps = str(error)
    return CheckedParts(checked, strays, gaps)


def _foreign(
    part: Part, parquet: pq.ParquetFile, schema: pa.Schema, files: Mapping[int, InputFile], mark: Callable[[int], str]
) -> str | None:
    # Without metadata, which differs from part to part: it holds the checksum and the examples.
    if not parquet.schema_arrow.remove_metadata().equals(schema.remove_metadata()):
        return "has other columns than the manifest: another model's, or another version's"
    if strangers := {part.file, part.last_file} - files.keys():
        return f"is of file {min(strangers)}, which the manifest doesn't list"
    # The mark is "count:hash" of the first `count` files: parts from before an append have one of fewer files.
    if (note := footer_note(parquet.metadata, FILES_KEY)) and note != mark(int(note.partition(":")[0])):
        return "was written for other input files than those of the manifest"
    return None


def _contradiction(
    part: Part, parquet: pq.ParquetFile, prefix: str, files: Mapping[int, InputFile], extents: Mapping[int, int | None]
) -> str | None:
    """What the rows of a part say against its name; None if they agree. Reads every page."""
    covered = {files[index].name: piece for index, piece in part.pieces(extents)}
    statuses, rows, last = list[str](), 0, None
    for batch in batches(parquet):
        statuses.extend(batch.column(prefix + STATUS).to_pylist())
        for row in batch.column(prefix + ROW).to_pylist():
            if row == last:
                continue
            name, _, start = row.rpartition(":")
            piece = covered.get(name)
            if piece is None or not piece.start <= int(start) < piece.end:
                return f"holds the row {row}, which isn't of {_pieces_text(covered)}"
            rows, last = rows + 1, row
    counts = Counts.of_statuses(rows, statuses)
    if counts != part.counts:
        return f"holds {_text(counts)}, and its name says {_text(part.counts)}"
    return None


def _pieces_text(pieces: Mapping[str, Range]) -> str:
    named = [f"{name} from {piece.start} to {piece.end}" for name, piece in pieces.items()]
    return named[0] if len(named) == 1 else f"the files between {named[0]} and {named[-1]}"


def _text(counts: Counts) -> str:
    return f"{counts.rows} rows ({counts.scored} scored, {counts.rejected} rejected, {counts.failed} failed)"
