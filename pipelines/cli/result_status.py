"""What the result of `filter`, `choose`, `pairs`, `export` or `evaluate` is, from its folder alone, finished or not."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import OutputError, SourceError
from pipelines.cli.evaluation_status import EvaluatedRun, evaluated_runs
from pipelines.cli.status import RunHolder, RunState, read_recipe_path, state_of
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import EVALUATED, FILTER, RESULTS, OutputKind
from pipelines.data.storage import error_text
from pipelines.data.storage.lease import read_holding
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.output_folder import parts_fingerprint, read_notes
from pipelines.folders.run_folder.parts import Parts

ROWS_OF = {"filter": "responses", "choose": "candidates", "pairs": "pairs", "export": "rows", "evaluate": "items"}
"""What the rows of each result are."""


class SourceState(StrEnum):
    """What became of the scored corpus that a result was made of."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True)
class ResultStatus:
    """A command's result. `rows` are those that are written; None if they can't be counted. `bytes` are of all `files`."""

    command: str
    state: RunState
    complete: bool
    asked: str
    rows: int | None
    files: int
    bytes: int
    source: str
    """The folder of the scored corpus; those of an evaluation with spaces between them."""
    source_state: SourceState | None
    """None of an evaluation, whose results stay true of what was scored then."""
    model: str | None = None
    made_up: bool = False
    holder: RunHolder | None = None
    recipe: str | None = None
    runs: tuple[EvaluatedRun, ...] = ()
    """Of an evaluation: each model on each benchmark."""


def result_status(folder: str) -> ResultStatus | None:
    """The state of a command's result; None if the folder holds none. Raises `SourceError` if it can't be read."""
    kind, document = next(((kind, read) for kind in RESULTS if (read := kind.read(folder)) is not None), (None, None))
    if kind is None or document is None:
        return None
    try:
        holding, recipe = read_holding(folder), read_recipe_path(folder)
        entries = [entry for entry in storage.folder(folder).entries() if kind.is_file(entry.name)]
        runs = tuple(evaluated_runs(folder, document)) if kind is EVALUATED else ()
        rows = _count_rows(folder, kind, document, [entry.name for entry in entries])
    except OSError as error:
        raise SourceError(f"{folder} can't be read: {error_text(error)}") from error
    complete, source = document.get("summary") is not None, document.get("source") or {}
    identity = source.get("identity") or {}
    return ResultStatus(
        command=kind.name,
        state=state_of(complete, holding),
        complete=complete,
        asked=str(document.get("asked", "")),
        rows=rows,
        files=len(entries),
        bytes=sum(entry.size for entry in entries),
        source=source.get("folder") or " ".join(document["settings"]["scored"]),
        source_state=_source_state(source) if source else None,
        model=identity.get("model"),
        made_up=bool((document.get("summary") or {}).get("made_up")),
        holder=RunHolder.of(holding) if holding is not None else None,
        recipe=recipe,
        runs=runs,
    )


def _count_rows(folder: str, kind: OutputKind, document: Mapping[str, Any], files: list[str]) -> int | None:
    """The rows of a finished result by its summary, of an unfinished one by the notes of what is done."""
    if kind is EVALUATED:
        return _count_items(folder, files)
    summary = document.get("summary")
    counts = [summary] if summary is not None else list(read_notes(folder).values())
    if kind is not FILTER:
        return sum(count["rows"] for count in counts)
    kept, responses = (sum(count[name] for count in counts) for name in ("kept", "responses"))
    return kept if document.get("holds", "kept") == "kept" else responses - kept


def _count_items(folder: str, files: list[str]) -> int | None:
    """The rows of Parquet files, from their footers; None if one of them can't be read."""
    total = 0
    for name in files:
        try:
            with storage.open_read(storage.folder(folder).file(name)) as stream, pq.ParquetFile(stream) as parquet:
                total += parquet.metadata.num_rows
        except (OSError, pa.ArrowException):
            return None
    return total


def _source_state(source: Mapping[str, Any]) -> SourceState:
    """Whether the scored corpus is what the result was made of: its run, and its parts where these are noted."""
    try:
        manifest = read_manifest(source["folder"])
        if manifest is None:
            return SourceState.GONE
        parts = parts_fingerprint(Parts(source["folder"], manifest.run).entries())
    except (OutputError, OSError):
        return SourceState.GONE
    as_noted = (source.get("fingerprint"), source.get("made_of", parts))
    return SourceState.UNCHANGED if as_noted == (manifest.fingerprint, parts) else SourceState.CHANGED
