"""The folders that a filter fills: new ones, or those of an earlier filter, known by their `filter.json`.

kept/
  filter.json          what was filtered by which condition; at the end, the counts
  kept-00000.jsonl     the rows of the first group of parts, if any was kept; or .parquet
"""

import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.errors import OutputError

NAME = "filter.json"
_VERSION = 1
_OURS = re.compile(r"(kept|rest)-\d{5,}\.(jsonl|parquet)(\.[0-9a-f]{32}\.tmp)?")


def check_apart(folders: Sequence[str]) -> None:
    """Raise `OutputError` if one of the folders is or holds another."""
    resolved = [(folder, Path(folder).resolve()) for folder in folders]
    for at, (folder, path) in enumerate(resolved):
        for other, other_path in resolved[:at]:
            if path.is_relative_to(other_path) or other_path.is_relative_to(path):
                raise OutputError(f"{folder} and {other} are the same folder, or one is inside the other; keep them apart")


def check_free(folder: str, overwrite: bool) -> None:
    """Raise `OutputError` unless the folder is new, empty, or holds a filter's result that may be replaced.

    A filter that never came to its end left nothing to lose: its folder may always be used again.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise OutputError(f"{folder} is a file, and a folder is needed")
    if not path.is_dir() or not any(path.iterdir()):
        return
    earlier = _read(path / NAME)
    if earlier is None:
        raise OutputError(f"{folder} holds something else than the result of a filter; give a new or an empty folder")
    if earlier.get("summary") is not None and not overwrite:
        raise OutputError(f"{folder} holds what {earlier.get('condition')!r} gave; --overwrite replaces it")


def start(folder: str, document: Mapping[str, Any]) -> None:
    """Make the folder, empty it of an earlier result, and mark it as ours."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        _write(path, document, None)
        _delete(path, temporary_only=False)
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error.strerror} ({error.filename})") from error


def finish(folder: str, document: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    """Say what came of it. What a killed worker left half written goes."""
    path = Path(folder)
    _delete(path, temporary_only=True)
    _write(path, document, summary)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("assay_filter") == _VERSION else None


def _write(path: Path, document: Mapping[str, Any], summary: Mapping[str, Any] | None) -> None:
    temporary = path / f"{uuid.uuid4().hex}.tmp"
    temporary.write_text(json.dumps({"assay_filter": _VERSION, **document, "summary": summary}, indent=2) + "\n")
    os.replace(temporary, path / NAME)


def _delete(path: Path, temporary_only: bool) -> None:
    for entry in os.scandir(path):
        match = _OURS.fullmatch(entry.name)
        if match and (match[3] or not temporary_only):
            os.unlink(entry.path)
