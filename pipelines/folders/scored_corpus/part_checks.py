"""Checks the parts of a run: that each is whole, of this run, and holds what its name says, and that they tile the input."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

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
        """The parts with a problem."""
        return [part for part in self.parts if part.problem is not None]


@dataclass(frozen=True)
class _Inputs:
    """The files of a manifest, made ready for all parts at once: anew for each, it would take parts times files.

    `extents` are by index, as `files` are. `mark` gives the `files_mark` of the first so many files.
    """

    manifest: Manifest
    files: Mapping[int, InputFile]
    extents: Mapping[int, int | None]
    mark: Callable[[int], str]

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        return cls(
            manifest,
            {file.index: file for file in manifest.files},
            {file.index: file.extent for file in manifest.files},
            functools.cache(lambda count: files_mark(manifest.files[:count])),
        )

    def check(self, part: Part, parquet: pq.ParquetFile) -> str | None:
        """The problem of a part, for `check_contents`."""
        return _foreign(part, parquet, self) or _contradiction(part, parquet, self)


def check_parts(parts: Parts, manifest: Manifest) -> CheckedParts:
    """Check all parts of a run. Raises `SourceError` if the storage doesn't give them, or there is no memory for them."""
    try:
        checked = tuple(check_contents(parts, _Inputs.of(manifest).check))
        strays, extents = tuple(parts.strays()), parts.extents(manifest.files)
    except OSError as error:
        raise SourceError(f"{parts.folder} can't be read: {error_text(error)}") from error
    gaps = None
    try:
        audit(manifest.files, extents, [part.part for part in checked if part.problem is None])
    except AuditError as error:
        gaps = str(error)
    return CheckedParts(checked, strays, gaps)


def _foreign(part: Part, parquet: pq.ParquetFile, inputs: _Inputs) -> str | None:
    """Whether a part is of other columns or files than its run's."""
    schema = parquet.schema_arrow
    if not schema.remove_metadata().equals(inputs.manifest.columns.schema.remove_metadata()):
        return "has other columns than the manifest: another model's, or another version's"
    if strangers := {part.file, part.last_file} - inputs.files.keys():
        return f"is of file {min(strangers)}, which the manifest doesn't list"
    if (mark := footer_note(parquet.metadata, FILES_KEY)) and mark != inputs.mark(int(mark.partition(":")[0])):
        return "was written for other input files than those of the manifest"
    return None


def _contradiction(part: Part, parquet: pq.ParquetFile, inputs: _Inputs) -> str | None:
    """What the rows of a part say against its name; None if they agree. Reads every page."""
    covered = {inputs.files[index].name: piece for index, piece in part.pieces(inputs.extents)}
    prefix, statuses, rows, last = inputs.manifest.columns.prefix, list[str](), 0, None
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
    """The files of a part, with the range of the first and the last."""
    named = [f"{name} from {piece.start} to {piece.end}" for name, piece in pieces.items()]
    return named[0] if len(named) == 1 else f"the files between {named[0]} and {named[-1]}"


def _text(counts: Counts) -> str:
    return f"{counts.rows} rows ({counts.scored} scored, {counts.rejected} rejected, {counts.failed} failed)"
