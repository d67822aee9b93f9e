"""The output folders of `filter`, `pairs`, `export` and the like: starts, resumes and finishes them.

Such a folder is recognised by a document in it: `filter.json`, `pairs.json`, ...

kept/
  filter.json          the source, the settings, and at the end the counts
  kept-00000.jsonl     the first kept rows, if there are any; or .parquet
  _responses/          which responses these are, for commands that read the result (`kept_responses`); of a filter only
  done/00000.json      only while it runs: the files of this number are complete; holds their counts

Files that are written part by part have the names of the parts as numbers:
  pairs-000000-000000000000-000000065536-512-510-2-0-0a1b2c3d4e5f6071.jsonl
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from actors.errors import OutputError
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import FILTER, NUMBER, SELECTION, OutputKind, describe
from pipelines.data.storage import Entry, Folder, error_text
from pipelines.data.storage.lease import check_lease
from pipelines.folders.run_folder.manifest import array_digest
from pipelines.folders.run_folder.part import Part

_DONE = "done"
# Keys of a finished document: the fingerprint of the parts it was made of, and its files with their sizes.
_MADE_OF, _FILES = "made_of", "files"
_THREADS = 32  # notes are read concurrently: in a store each is a round trip, of 30 ms or so
_DONE_NAME = re.compile(rf"({NUMBER})\.json")


def check_apart(folders: Sequence[str]) -> None:
    """Raise `OutputError` if one of the folders is or holds another.

    Else a command could delete or replace what it reads, or what another result was made of.
    """
    for folder, other in itertools.combinations(folders, 2):
        if storage.overlap(folder, other):
            raise OutputError(f"{other} and {folder} are the same folder, or nested; give two separate folders")


def check_free(folder: str, overwrite: bool, kind: OutputKind = FILTER) -> None:
    """Raise `OutputError` unless the folder is new, empty, or holds a replaceable result of the same kind.

    An unfinished result may always be replaced, a finished one only with `overwrite`.
    """
    try:
        if storage.folder(folder).is_empty():
            return
    except NotADirectoryError:
        raise OutputError(f"{folder} is a file, and a folder is needed") from None
    except OSError as error:
        raise OutputError(f"{folder} can't be read: {error_text(error)}") from error
    earlier = kind.read(folder)
    if earlier is None:
        raise OutputError(
            f"{folder} holds something else than the result of `{kind.name}`: it {describe(folder)}; give a new or an empty "
            "folder"
        )
    if earlier.get("summary") is not None and not overwrite:
        raise OutputError(f"{folder} holds what {earlier.get('description')!r} gave; --overwrite replaces it")


def start(folder: str, document: Mapping[str, Any], kind: OutputKind = FILTER) -> dict[str, dict[str, Any]]:
    """Create the folder with its document, or resume it. Returns the notes of what is done, by number.

    Notes count only if the document in the folder is of the same work. Files without a note are deleted: they are of other
    work, or may be incomplete. Safe to kill at any point: notes of other work are deleted before the new document is
    written, which would make them count.
    """
    place = storage.folder(folder)
    note_folder, notes = place.sub(_DONE), dict[str, dict[str, Any]]()
    try:
        place.make()
        if (earlier := kind.read(folder)) and {**earlier, "summary": None} == _full_document(document, None, kind):
            notes = read_notes(folder)
        else:
            note_folder.delete_all()
            _write(folder, document, None, kind)
            # Notes of what an earlier result holds would be read as this one's.
            place.sub(SELECTION).delete_all()
        for entry in list(place.entries()):
            if (number := kind.number(entry.name)) is not None and number not in notes:
                place.delete(entry.name)
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error_text(error)}") from error
    return notes


def read_notes(folder: str) -> dict[str, dict[str, Any]]:
    """The notes of what is done in an unfinished folder, by number. Raises `OSError`.

    A temporary file that a killed worker left has another name, and a note that breaks off counts as none.
    """
    note_folder = storage.folder(folder).sub(_DONE)
    names = [
        name for entry in note_folder.entries() if (name := _DONE_NAME.fullmatch(entry.name))
    ]  # no killed worker's *.tmp
    with ThreadPoolExecutor(_THREADS) as threads:
        notes = threads.map(lambda name: _read_note(note_folder, name[0]), names)
        # None is a note that breaks off: its files are written again.
        return {name[1]: note for name, note in zip(names, notes, strict=True) if note is not None}


def _read_note(note_folder: Folder, name: str) -> dict[str, Any] | None:
    try:
        note = json.loads(note_folder.read(name))
    except (FileNotFoundError, ValueError):
        return None
    return note if isinstance(note, dict) else None


def result_name(index: int) -> str:
    """A file's number as it stands in its name."""
    return f"{index:05d}"


def note_done(folder: str, number: str, summary: Mapping[str, Any]) -> None:
    """Note that the files of a number are complete.

    Written after the files, so a note means that they are whole. Raises `OutputError`.
    """
    try:
        storage.folder(folder).sub(_DONE).replace(f"{number}.json", json.dumps(summary).encode())
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error_text(error)}") from error


def finish(
    folder: str, document: Mapping[str, Any], summary: Mapping[str, Any], kind: OutputKind = FILTER, *, made_of: str = ""
) -> None:
    """Write the final document: the summary, the fingerprint of the parts, and the files with their sizes.

    Half-written files are deleted first, which is safe since only the holder of the lease writes there. Raises `RunStopped`
    if this process held it and has lost it.
    """
    place = storage.folder(folder)
    check_lease(folder)
    for written in (place, place.sub(SELECTION)):
        written.clear()
    # Sizes tell later whether a file was cut off or deleted since.
    full_document = {**document, _MADE_OF: made_of, _FILES: _files(folder, kind)}
    check_lease(folder)  # again, as many files take long to list
    _write(folder, full_document, summary, kind)
    place.sub(_DONE).delete_all()


def read_finished(
    folder: str, settings: Mapping[str, Any], fingerprint: str | None, made_of: str, kind: OutputKind = FILTER
) -> dict[str, Any] | None:
    """The summary, if the folder holds the finished result of these settings, this run and these parts; else None.

    Files are compared by their sizes, so a result of which one was deleted or cut off is made again.
    """
    earlier = kind.read(folder)
    if earlier is None or earlier.get("summary") is None:
        return None
    source, stored_settings = earlier.get("source", {}), earlier.get("settings", {})
    stored = (source.get("fingerprint"), earlier.get(_MADE_OF), earlier.get(_FILES), _without_overwrite(stored_settings))
    if stored != (fingerprint, made_of, _files(folder, kind), json.loads(json.dumps(_without_overwrite(settings)))):
        return None
    summary: dict[str, Any] = earlier["summary"]
    return summary


def parts_fingerprint(entries: Sequence[tuple[Part, Entry]]) -> str:
    """A hash of the names and sizes of parts, for `finish` and `read_finished`.

    A listing tells both. Sizes, since a retry may replace a part under the same name.
    """
    return f"sha256:{array_digest([part.name, entry.size] for part, entry in entries)}"


def _without_overwrite(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "overwrite"}


def _files(folder: str, kind: OutputKind) -> dict[str, int]:
    return {entry.name: entry.size for entry in sorted(storage.folder(folder).entries()) if kind.is_file(entry.name)}


def _full_document(document: Mapping[str, Any], summary: Mapping[str, Any] | None, kind: OutputKind) -> dict[str, Any]:
    # The full document, through JSON once, so that it compares equal to one that is read back (tuples become lists).
    full_document: dict[str, Any] = json.loads(json.dumps(kind.marked({**document, "summary": summary})))
    return full_document


def _write(folder: str, document: Mapping[str, Any], summary: Mapping[str, Any] | None, kind: OutputKind) -> None:
    kind.write(folder, _full_document(document, summary, kind))
