"""What the result of `filter`, `choose`, `pairs`, `export` or `evaluate` is, from its folder alone, finished or not."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from actors.errors import OutputError, SourceError
from actors.text.model_names import short_name
from pipelines.cli.status import RunHolder, RunState, read_recipe_path, state_of
from pipelines.cli.status import status as run_status
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import EVALUATED, FILTER, PUBLISHED_SUFFIX, RESULTS, OutputKind
from pipelines.data.storage import error_text
from pipelines.data.storage.lease import read_holding
from pipelines.folders.run_folder.manifest import read_manifest
from pipelines.folders.run_folder.output_folder import parts_fingerprint, read_notes
from pipelines.folders.run_folder.parts import Parts

# What the rows of each result are.
ROWS_OF = {"filter": "responses", "choose": "candidates", "pairs": "pairs", "export": "rows", "evaluate": "items"}
_NAMED = re.compile(r"([\w-]+)=.+", re.DOTALL)  # as evaluations take files: BENCHMARK=FILE


class SourceState(StrEnum):
    """What became of the scored corpus that a result was made of."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True)
class EvaluatedRun:
    """A model on a benchmark. `state` is None, and `share` 0, where its scoring hasn't begun."""

    model: str
    benchmark: str
    """Its name, or the file as it was given where only reading it tells the benchmark."""
    state: RunState | None
    share: float = 0.0
    responses: int | None = None

    def line(self) -> str:
        title = f"{short_name(self.model)} on {self.benchmark}"
        if self.state is None:
            return f"{title}: not begun"
        counted = "" if self.responses is None else f", {self.responses:,} responses"
        done = "" if self.state is RunState.COMPLETE else f", {self.share:.1%} done"
        return f"{title}: {self.state}{done}{counted}"


@dataclass(frozen=True)
class ResultStatus:
    """A command's result. `rows` are those that are written; None if they can't be counted. `bytes` are of all `files`."""

    command: str
    state: RunState
    complete: bool
    description: str
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
        runs = tuple(_evaluated_runs(folder, document)) if kind is EVALUATED else ()
        rows = _count_rows(folder, kind, document, [entry.name for entry in entries])
    except OSError as error:
        raise SourceError(f"{folder} can't be read: {error_text(error)}") from error
    complete, source = document.get("summary") is not None, document.get("source") or {}
    identity = source.get("identity") or {}
    return ResultStatus(
        command=kind.name,
        state=state_of(complete, holding),
        complete=complete,
        description=str(document.get("description", "")),
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
    if kind is EVALUATED:
        return _count_items(folder, files)
    summary = document.get("summary")
    counts = [summary] if summary is not None else list(read_notes(folder).values())
    if kind is not FILTER:
        return sum(count["rows"] for count in counts)
    # A filter may write two folders: what it keeps, and the rest.
    kept, responses = (sum(count[name] for count in counts) for name in ("kept", "responses"))
    return kept if document.get("holds", "kept") == "kept" else responses - kept


def _count_items(folder: str, files: list[str]) -> int | None:
    # From the footers: an evaluation has no count in its document until it is finished.
    total = 0
    for name in files:
        try:
            with storage.open_read(storage.folder(folder).file(name)) as stream, pq.ParquetFile(stream) as parquet:
                total += parquet.metadata.num_rows
        except (OSError, pa.ArrowException):
            return None
    return total


def _source_state(source: Mapping[str, Any]) -> SourceState:
    # By its run, and its parts where these are noted: a retry changes parts of the same run.
    try:
        manifest = read_manifest(source["folder"])
        if manifest is None:
            return SourceState.GONE
        parts = parts_fingerprint(Parts(source["folder"], manifest.run).entries())
    except (OutputError, OSError):
        return SourceState.GONE
    as_noted = (source.get("fingerprint"), source.get("made_of", parts))
    return SourceState.UNCHANGED if as_noted == (manifest.fingerprint, parts) else SourceState.CHANGED


def _evaluated_runs(folder: str, document: Mapping[str, Any]) -> list[EvaluatedRun]:
    if document.get("summary") is not None:
        return _finished(folder)
    settings = document["settings"]
    models, scored = settings.get("model") or [], settings["scored"]
    if not models:
        return [_run(corpus, None, corpus) for corpus in scored]
    return [run for model in models for run in _of_model(folder, model, scored)]


def _finished(folder: str) -> list[EvaluatedRun]:
    try:
        evaluations = json.loads(storage.folder(folder).read("results.json"))["evaluations"]
        return [
            EvaluatedRun(
                f"{each['model']}{', as published' if each.get('preset') else ''}", each["benchmark"], RunState.COMPLETE, 1.0
            )
            for each in evaluations
        ]
    # The results are a file for people and programs, who may have changed it: the rest of the status holds without it.
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _of_model(folder: str, model: str, files: Sequence[str]) -> Iterator[EvaluatedRun]:
    # An evaluation scores into scored/BENCHMARK/MODEL of its folder; "/" in a model's id can't stand there.
    scored, name, begun = storage.folder(folder).sub("scored"), storage.file_name(model), set[str]()
    for benchmark in sorted(scored.names()):
        present = scored.sub(benchmark).names()
        for run, title in ((name, model), (name + PUBLISHED_SUFFIX, f"{model}, as published")):
            if run in present:
                begun.add(benchmark)
                yield _run(scored.sub(benchmark).sub(run).path, title, benchmark)
    named = [match[1] for file in files if (match := _NAMED.fullmatch(file))]
    unnamed = [file for file in files if not _NAMED.fullmatch(file)]
    # Files are scored in the order given, so of those without a benchmark's name the first ones have begun.
    unnamed_begun = len(begun - set(named))
    for benchmark in itertools.chain((name for name in named if name not in begun), unnamed[unnamed_begun:]):
        yield EvaluatedRun(model, benchmark, None)


def _run(scored: str, model: str | None, benchmark: str) -> EvaluatedRun:
    try:
        run = run_status(scored)
    except SourceError:  # its manifest isn't written yet
        return EvaluatedRun(model or "a model", benchmark, None)
    return EvaluatedRun(model or run.model, benchmark, run.state, run.share, run.responses)
