"""Decides what an output folder holds when a run begins: nothing, an earlier run, or the remains of a damaged one.

A manifest that is truncated is recovered, if the parts beside it prove that they are of the same identity and files. All
else is refused, because a run deletes and overwrites files.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from actors.errors import OutputError, SourceError
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import CARD
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.endpoint_notes import FOLDER
from pipelines.folders.run_folder.manifest import NAME, BrokenManifest, Manifest, files_mark, identity_mark, read_manifest
from pipelines.folders.run_folder.member_runs import MEMBERS, folder_of
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts, open_part

FILES_KEY = "assay_files"  # the key of `files_mark` in a part's metadata: it tells which file a part's file index stands for

# The folder, in that of a run of candidates, of an earlier run that drew them. It is a scored folder of its own.
DRAWN = "drawn"
_BESIDE = frozenset({NAME, "recipe.yaml", CARD, DRAWN, FOLDER})


def earlier_run(folder: str, manifest: Manifest, overwrite: bool) -> Manifest | None:
    """The manifest of the run in a folder, to resume; None to start from nothing, after deleting a run to be overwritten.

    `manifest` is that of the run that is about to begin. Raises `OutputError` if the folder holds anything else.
    """
    try:
        earlier = read_manifest(folder)
    except BrokenManifest as broken:
        if not overwrite:
            return _recover(folder, manifest, broken)
        # A broken manifest without a part could be anybody's file of that name: only beside parts may it be deleted.
        if not Parts(folder).runs() and not is_unused(folder, _BESIDE):
            raise
    else:
        if earlier is None and not is_unused(folder):
            raise OutputError(f"{folder} holds something else than a scored corpus; give a new or an empty folder")
        if not overwrite:
            return if_begun(folder, earlier)
    Parts(folder).delete()
    return None


def if_begun(folder: str, manifest: Manifest | None) -> Manifest | None:
    """The manifest of a folder, unless it is of a start that failed before its first part: it counts for no other run.

    Begun means: a part of any run is in the folder, in a member's, or in that of candidates that were drawn for it.
    """
    if manifest is None or manifest.summary is not None:
        return manifest
    # An ensemble has no parts of its own before all of its members are scored.
    members = (folder_of(folder, name) for name in manifest.identity.get(MEMBERS, {}))
    places = (folder, storage.folder(folder).sub(DRAWN).path, *members)
    files = (Parts(place).parts_folder.entries() for place in places)
    return manifest if any(Part.parse(entry.name) for entry in itertools.chain.from_iterable(files)) else None


def is_unused(folder: str, beside: frozenset[str] = frozenset()) -> bool:
    """Whether a folder is empty, or holds only what a run leaves that was killed before it wrote its manifest.

    Names in `beside` are ignored. Everything else counts as the user's.
    """
    place = storage.folder(folder)
    try:
        names = set(place.names()) - beside
        return names <= {"parts", "ends"} and all(place.sub(name).is_empty() for name in names)
    except OSError as error:
        raise OutputError(f"{folder} can't be read: {error_text(error)}") from error


def _recover(folder: str, manifest: Manifest, broken: BrokenManifest) -> Manifest | None:
    """The manifest in place of a broken one, proved by the parts; None if the folder holds no part, so nothing is lost."""
    parts = Parts(folder)
    by_run = parts.runs()
    mark = identity_mark(manifest.identity)  # a run's name begins with it, so the names of parts tell their identity
    possible = sorted(run for run in by_run if run.startswith(mark))
    if len(possible) > 1:
        raise OutputError(
            f"{folder} has no readable manifest, and parts of several runs with these settings: "
            f"{', '.join(possible)}. Move away those of all but one, or give another output folder"
        )
    for run in possible:
        for text in (True, False):  # it may be left out by a setting: that is as the parts are
            recovered = replace(manifest, run=run, columns=replace(manifest.columns, text=text))
            if _match(recovered, parts, by_run[run]):
                return replace(recovered, made_with=_made_with(parts, by_run[run], recovered))
    if by_run or not is_unused(folder, _BESIDE):
        raise OutputError(
            f"{broken}, but the parts beside it aren't of a run with these settings and files; "
            "give the settings of that run, another output folder, or --overwrite to delete it"
        ) from broken
    return None


def _made_with(parts: Parts, listing: Sequence[Part], manifest: Manifest) -> Mapping[str, Any]:
    """The versions that the last part says it was made with; those of the manifest if it can't be read."""
    with suppress(SourceError), open_part(parts.path(listing[-1])) as parquet:
        versions: Mapping[str, Any] = json.loads(parquet.schema_arrow.metadata[b"assay"])
        return versions
    return manifest.made_with


def _match(manifest: Manifest, parts: Parts, listing: Sequence[Part]) -> bool:
    """Whether the readable parts have the columns of a manifest, and number the input files as it does."""
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
    # A mark is "count:hash" over the first `count` files: an appended run's older parts have marks of fewer files. Each must
    # be the mark of that many of the manifest's files. Without any mark nothing is proved.
    counts = (mark.partition(":")[0] for mark in marks)
    return bool(marks) and marks <= {files_mark(manifest.files[: int(count)]) for count in counts if count}
