"""What an output folder holds when a run begins: nothing, an earlier run, or what one left behind that ended badly.

A manifest that breaks off is written again, where the parts say that they are of the same identity and files. A folder that
was deleted under a run that went on holds notes and parts without a manifest: these refuse nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from actors.errors import OutputError, SourceError
from pipelines import storage
from pipelines.scored_corpus.manifest import NAME, BrokenManifest, Manifest, files_mark, identity_mark, read_manifest
from pipelines.scored_corpus.parts import RUN, Part, Parts, open_part
from pipelines.storage import error_text

FILES_KEY = "assay_files"
"""Where a part's metadata has what its file's number stands for (`files_mark`)."""

_LEAVINGS = {
    "parts": re.compile(rf"(?:\d+-){{7}}{RUN}\.parquet"),
    "ends": re.compile(rf"\d+-\d+(?:-{RUN})?"),
    "sessions": re.compile(rf"\d{{20}}(?:-{RUN})?\.json"),
    "engine_killers": re.compile(r"\d+-\d+-\d+\.json"),
}
"""Folders that a run fills whatever becomes of its manifest, and what it calls its files there."""
_BESIDE = frozenset({NAME, "recipe.yaml"})
FIRST_PASS = "drawn"
"""The folder in a run's of what it does first, of two passes: it has parts of the same run."""


def earlier_run(folder: str, manifest: Manifest, overwrite: bool) -> Manifest | None:
    """The manifest of the run that a folder holds, to go on with; None to start anew, where an overwritten one is deleted.

    `manifest` is that of the run that is about to begin. Raises `OutputError` if the folder holds something else.
    """
    try:
        earlier = read_manifest(folder)
    except BrokenManifest as broken:
        if not overwrite:
            return _again(folder, manifest, broken)
        if not _held(folder) and not is_unused(folder, _BESIDE):
            raise
    else:
        if earlier is None and not is_unused(folder):
            raise OutputError(f"{folder} holds something else than a scored corpus; give a new or an empty folder")
        if not overwrite:
            return earlier if earlier is not None else _matching(folder, manifest)
    Parts(folder).delete()
    return None


def is_unused(folder: str, beside: frozenset[str] = frozenset()) -> bool:
    """Whether a folder holds nothing, or only what a run leaves whose folder was deleted, or that was killed at its start.

    Anything else is somebody's, but for `beside`; so are parts of older versions, which name no run.
    """
    place = storage.folder(folder)
    try:
        names = set(place.names()) - beside
        leavings = [(name, inside) for name in names & _LEAVINGS.keys() for inside in place.sub(name).names()]
    except OSError as error:
        raise OutputError(f"{folder} can't be read: {error_text(error)}") from error
    return names <= _LEAVINGS.keys() and all(_LEAVINGS[name].fullmatch(inside) for name, inside in leavings)


def _again(folder: str, manifest: Manifest, broken: BrokenManifest) -> Manifest | None:
    """The manifest as it must have been, if parts say so; None if there is nothing to lose."""
    found = _matching(folder, manifest)
    if found is None and (_held(folder) or not is_unused(folder, _BESIDE)):
        raise OutputError(
            f"{broken}, but the parts beside it aren't of a run with these settings and files; "
            "give the settings of that run, another output folder, or --overwrite to delete it"
        ) from broken
    return found


def _matching(folder: str, manifest: Manifest) -> Manifest | None:
    """The manifest with the run that parts in the folder are of, if they are of this identity and these files."""
    mark = identity_mark(manifest.identity)
    held = [(place, run, parts) for place, run, parts in _held(folder) if run.startswith(mark)]
    runs = {run for _, run, _ in held}
    if len(runs) > 1:
        raise OutputError(
            f"{folder} has no manifest that can be read, and parts of several runs with these settings: "
            f"{', '.join(sorted(runs))}. Move away those of all but one, or give another output folder"
        )
    if not held:
        return None
    again = replace(manifest, run=runs.pop())
    return again if all(_all_of(again, Parts(place, run), parts) for place, run, parts in held) else None


def _held(folder: str) -> list[tuple[str, str, list[Part]]]:
    """The runs of which there are parts, of either pass: the folder that they are in, the run, the parts."""
    passes = (folder, storage.folder(folder).sub(FIRST_PASS).path)
    return [(place, run, parts) for place in passes for run, parts in Parts(place).runs().items()]


def _all_of(manifest: Manifest, parts: Parts, listing: Sequence[Part]) -> bool:
    """Whether all parts that can be read have the columns of a manifest, and number its files as it does."""
    marks: set[str] = set()
    for part in listing:
        try:
            with open_part(parts.path(part)) as parquet:
                schema = parquet.schema_arrow
        except SourceError:
            continue
        if not schema.remove_metadata().equals(manifest.columns.schema.remove_metadata()):
            return False
        marks.add((schema.metadata or {}).get(FILES_KEY.encode(), b"").decode())
    counts = (mark.partition(":")[0] for mark in marks)
    return bool(marks) and marks <= {files_mark(manifest.files[: int(count)]) for count in counts if count}
