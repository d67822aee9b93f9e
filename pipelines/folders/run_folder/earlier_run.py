"""Decides what an output folder holds when a run begins: nothing, or an earlier run.

All else is refused, because a run deletes and overwrites files.
"""

import itertools

from actors.errors import OutputError
from pipelines.data import storage
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.manifest import Manifest, read_manifest
from pipelines.folders.run_folder.member_runs import MEMBERS, folder_of
from pipelines.folders.run_folder.part import Part
from pipelines.folders.run_folder.parts import Parts

FILES_KEY = "assay_files"  # the key of `files_mark` in a part's metadata: it tells which file a part's file index stands for

# The folder, in that of a run of candidates, of an earlier run that drew them. It is a scored folder of its own.
DRAWN = "drawn"


def earlier_run(folder: str, overwrite: bool) -> Manifest | None:
    """The manifest of the run in a folder, to resume; None to start from nothing, after deleting a run to be overwritten.

    Raises `OutputError` if the folder holds anything else, and for a manifest that can't be read, with `overwrite`, too: it
    could be anybody's file of that name. Ours are replaced in one step, so a killed run leaves no half of one.
    """
    earlier = read_manifest(folder)
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


def is_unused(folder: str) -> bool:
    """Whether a folder is empty, or holds only what a run leaves that was killed before it wrote its manifest.

    Everything else counts as the user's.
    """
    place = storage.folder(folder)
    try:
        names = set(place.names())
        return names <= {"parts", "ends"} and all(place.sub(name).is_empty() for name in names)
    except OSError as error:
        raise OutputError(f"{folder} can't be read: {error_text(error)}") from error
