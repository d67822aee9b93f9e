"""The folders that a filter fills: new ones, or those of an earlier filter, known by their `filter.json`.

kept/
  filter.json          what was filtered by which condition; at the end, the counts
  kept-00000.jsonl     the first of the kept rows, if there are any; or .parquet
  done/00000.json      while it is under way: the files of this number are complete, and their counts
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from actors.errors import OutputError
from pipelines import storage
from pipelines.storage import told

NAME = "filter.json"
_DONE = "done"
_DONE_NAME = re.compile(r"(\d{5,})\.json")
_VERSION = 1
_OURS = re.compile(r"(kept|rest)-\d{5,}\.(jsonl|parquet)")


def check_apart(folders: Sequence[str]) -> None:
    """Raise `OutputError` if one of the folders is or holds another."""
    for folder, other in itertools.combinations(folders, 2):
        if storage.overlap(folder, other):
            raise OutputError(f"{other} and {folder} are the same folder, or one is inside the other; keep them apart")


def check_free(folder: str, overwrite: bool) -> None:
    """Raise `OutputError` unless the folder is new, empty, or holds a filter's result that may be replaced.

    A filter that never came to its end left nothing to lose: its folder may always be used again.
    """
    try:
        if storage.folder(folder).is_empty():
            return
    except NotADirectoryError:
        raise OutputError(f"{folder} is a file, and a folder is needed") from None
    except OSError as error:
        raise OutputError(f"{folder} can't be read: {told(error)}") from error
    earlier = _read(folder)
    if earlier is None:
        raise OutputError(f"{folder} holds something else than the result of a filter; give a new or an empty folder")
    if earlier.get("summary") is not None and not overwrite:
        raise OutputError(f"{folder} holds what {earlier.get('asked')!r} gave; --overwrite replaces it")


def start(folder: str, document: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Make the folder, and mark it as ours. Returns what was noted as done, if the same filter was here before.

    What another one left is deleted.
    """
    place = storage.folder(folder)
    try:
        place.make()
        if (earlier := _read(folder)) and {**earlier, "summary": None} == _whole(document, None):
            done = place.sub(_DONE)
            names = (_DONE_NAME.fullmatch(entry.name) for entry in done.entries())  # a killed worker leaves others
            return {int(name[1]): json.loads(done.read(name[0])) for name in names if name}
        _write(folder, document, None)
        place.sub(_DONE).delete_all()
        for entry in place.entries():
            if _OURS.fullmatch(entry.name):
                place.delete(entry.name)
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {told(error)}") from error
    return {}


def note_done(folder: str, index: int, summary: Mapping[str, Any]) -> None:
    """Say that the files of a number are complete."""
    try:
        storage.folder(folder).sub(_DONE).replace(f"{index:05d}.json", json.dumps(summary).encode())
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {told(error)}") from error


def finish(folder: str, document: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    """Say what came of it. What a killed worker left half written goes."""
    storage.folder(folder).make()
    _write(folder, document, summary)
    storage.folder(folder).sub(_DONE).delete_all()


def _read(folder: str) -> dict[str, Any] | None:
    try:
        document = json.loads(storage.folder(folder).read(NAME))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("assay_filter") == _VERSION else None


def _whole(document: Mapping[str, Any], summary: Mapping[str, Any] | None) -> dict[str, Any]:
    """The document as it is read back."""
    whole: dict[str, Any] = json.loads(json.dumps({"assay_filter": _VERSION, **document, "summary": summary}))
    return whole


def _write(folder: str, document: Mapping[str, Any], summary: Mapping[str, Any] | None) -> None:
    storage.folder(folder).replace(NAME, (json.dumps(_whole(document, summary), indent=2) + "\n").encode())
