"""Opens a scored folder: reads its manifest, and checks its parts for gaps and overlaps."""

from collections.abc import Mapping, Sequence

from actors.errors import AuditError, SourceError
from pipelines.corpus.corpus_files import Range
from pipelines.scored_corpus.manifest import NAME, Manifest, read_manifest
from pipelines.scored_corpus.member_runs import check_fresh
from pipelines.scored_corpus.parts import Counts, Part, Parts, audit, by_file, gaps, is_empty, unreadable
from pipelines.storage import Entry, error_text

PartEntries = list[tuple[Part, Entry]]


def read_scored_manifest(folder: str) -> Manifest:
    """The manifest of a scored folder.

    Raises a `UserError` if the folder has none, or is an ensemble whose members' runs have changed since.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise SourceError(f"{folder} isn't there, or has no {NAME}; a filter takes the output folder of a scored corpus")
    check_fresh(folder, manifest)
    return manifest


def audit_parts(folder: str, manifest: Manifest, partial: bool) -> PartEntries:
    """The parts, sorted. Raises `SourceError` for overlaps, and for gaps unless `partial`."""
    try:
        run = Parts(folder, manifest.run)
        entries, extents = sorted(run.entries()), run.extents(manifest.files)
    except OSError as error:
        raise SourceError(f"{folder} can't be read: {error_text(error)}") from error
    if empty := [part for part, entry in entries if is_empty(entry)]:
        raise unreadable(run.path(empty[0]), ValueError("it is empty"))
    parts = [part for part, _ in entries]
    _audit_without_gaps(manifest, extents, parts)
    if not partial:
        try:
            audit(manifest.files, extents, parts)
        except AuditError as error:
            raise SourceError(
                f"{folder} isn't complete: {error}\n"
                "Run the same `score` command again to resume it; --partial filters the parts that exist"
            ) from error
    return entries


def _audit_without_gaps(manifest: Manifest, extents: Mapping[int, int | None], parts: Sequence[Part]) -> None:
    """Audit with the gaps filled by made-up parts: what it still finds is an overlap, or a part of an unknown file."""
    ranges = {index: [part.range for part in file_parts] for index, file_parts in by_file(parts).items()}
    ends = {file.index: extents[file.index] or max(ranges.get(file.index, [Range(0, 0)])).end for file in manifest.files}
    missing = [(index, gap) for index, end in ends.items() for gap in gaps(ranges.get(index, []), end)]
    fillers = [Part(index, gap, Counts(rows=gap.end - gap.start)) for index, gap in missing]
    audit(manifest.files, ends, sorted([*parts, *fillers]))
