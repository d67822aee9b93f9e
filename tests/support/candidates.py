"""Candidates, and scored corpora that hold them, made without an engine and without Ray."""

import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from actors.records import Message, Reading, Reason, RenderedRequest, Role, Score, ScoreRequest
from actors.scorers.policy import GeneratedCandidate
from pipelines.data.corpus.corpus_files import FileKind, InputFile, Range
from pipelines.data.corpus.readers import START, read
from pipelines.data.formats import CANDIDATE, RowShape, with_policy_system
from pipelines.folders.run_folder.columns import Columns
from pipelines.folders.run_folder.folder_state import FolderState
from pipelines.folders.run_folder.manifest import Manifest
from pipelines.folders.run_folder.part import Counts, Part
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.candidates import Candidate, Content
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.resolve_run import resolve
from pipelines.run.prepare.score_requests import prepare, prepared_rows
from pipelines.run.scoring.score_corpus import Run, open_run, step_settings
from pipelines.run.scoring.score_step import outcomes_of, requests_of, scored_table, stretches
from pipelines.settings.run_settings import ScoreSettings
from tests.support.corpora import RUN

Given = float | Mapping[str, float] | Reading | None
"""What a response came to: its reward, its named scores and the reward, or a reading; None if it was rejected."""

Response = tuple[str, str | None, Score, GeneratedCandidate | None]


def saying(
    context: tuple[Message, ...],
    text: str,
    reward: float,
    scores: Mapping[str, float] | None = None,
    *,
    row: str = "0:0",
    name: str = "final",
    prompt_hash: str = "",
) -> Candidate:
    """A candidate whose content is there already."""
    return Candidate(row, name, prompt_hash, reward, scores or {}, lambda: Content(context, text))


def with_content(candidate: Candidate, **changes: Any) -> Candidate:
    """The candidate with another content."""
    content = candidate.read()._replace(**changes)
    return candidate._replace(read=lambda: content)


def candidate(reward: float, text: str = "", *, prompt: str = "p", name: str = "final", **scores: float) -> Candidate:
    """A scored response; without a text of its own it says what it is worth."""
    context = (Message(Role.USER, prompt),)
    prompt_hash = ScoreRequest(context, ()).prompt_hash
    return saying(context, text or f"worth {reward}", reward, scores, row="c:0", name=name, prompt_hash=prompt_hash)


def candidates(*rewards: float) -> list[Candidate]:
    """Different responses to one prompt, named by their places."""
    return [candidate(reward, f"text {at}", name=f"candidate[{at}]") for at, reward in enumerate(rewards)]


def judged_corpus(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    rewards: Sequence[Sequence[Given]],
    shape: RowShape,
    **how: Any,
) -> str:
    """A scored corpus of rows that hold their responses; `rewards` are those of each row's responses, by its shape."""
    return _corpus(
        folder,
        rows,
        shape,
        [_of_row(row, row_rewards, shape) for row, row_rewards in zip(rows, rewards, strict=True)],
        **how,
    )


def drawn_corpus(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    candidates: Sequence[Sequence[tuple[str, Given]]],
    shape: RowShape,
    system: str | None = None,
    **how: Any,
) -> str:
    """A scored corpus of prompts and a policy's candidates: the text and the score of each."""
    responses = [
        _drawn_of_row(row, row_candidates, shape, system) for row, row_candidates in zip(rows, candidates, strict=True)
    ]
    return _corpus(folder, rows, shape, responses, policy={"policy": "m", **({"system": system} if system else {})}, **how)


def scored_corpus(settings: ScoreSettings) -> str:
    """A corpus read, rendered and committed as `score` does it, with made-up rewards."""
    planned = resolve(settings)
    commit_missing(open_run(settings, planned, manifest_of(planned, settings)))
    return settings.output


def commit_missing(run: Run) -> FolderState:
    """Read, render and commit the missing parts of a run as `score` does it, with made-up rewards; what it then holds."""
    outputs, metadata = run.preparation.columns.outputs, step_settings(run).metadata
    for unit in run.missing(run.parts.state(run.manifest.files)):
        for raw in read(unit, run.settings.corpus.max_record_bytes, run.parts.end_seen):
            prepared = prepare(raw, run.preparation)
            for stretch in stretches(prepared, run.part_rows, prepared_rows(prepared), responses=()):
                outcomes = outcomes_of(stretch.rows, [_made_up(rendered, outputs) for rendered in requests_of(stretch.rows)])
                names = [f"{unit.file.name}:{start}" for start in stretch.table.column(START).to_pylist()]
                scores = [outcome.score for row in outcomes for outcome in row]
                part = Part(stretch.file, stretch.range, Counts.of(len(names), scores))
                run.parts.commit(part, scored_table(run.preparation.columns, stretch.table, names, outcomes), metadata)
    return run.parts.state(run.manifest.files)


def _made_up(request: RenderedRequest, outputs: Sequence[str]) -> tuple[Score, ...]:
    """Rewards from a hash of each prompt's ids: they differ between responses, and are equal in every run."""
    rewards = iter(zlib.crc32(str(list(map(int, prompt.ids))).encode()) / 2**30 - 2 for prompt in request.prompts)
    return tuple(
        Score.rejected(response.reason)
        if response.reason
        else Score.scored(Reading(reward := next(rewards), {name: reward + at for at, name in enumerate(outputs)}), 7)
        for response in request.responses
    )


def prompts(shape: str = "prompt") -> RowShape:
    """The shape of rows that are prompts for a policy."""
    return RowShape(shape, unanswered=True)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of an export, in the order of its files."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines()]


def files_in(folder: Path) -> dict[str, bytes]:
    """The files of an export, by name."""
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}


def _of_row(row: Mapping[str, Any], rewards: Sequence[Given], shape: RowShape) -> list[Response]:
    parsed = shape.requests(row)
    hashes = {response.name: request.prompt_hash for request in parsed.requests for response in request.responses}
    refused = {bad.name: Score.rejected(bad.reason, bad.detail) for bad in parsed.rejected}
    pairs = zip(parsed.names, rewards, strict=True)
    return [(name, hashes.get(name), refused[name] if name in refused else _score(reward), None) for name, reward in pairs]


def _drawn_of_row(
    row: Mapping[str, Any], candidates: Sequence[tuple[str, Given]], shape: RowShape, system: str | None
) -> list[Response]:
    parsed = shape.requests(row)
    if not parsed.requests:
        return [(CANDIDATE, None, Score.rejected(parsed.rejected[0].reason), None)]
    (request,) = parsed.requests
    prompt_hash = ScoreRequest(with_policy_system(request.context, system), (), request.principles).prompt_hash
    return [
        (f"{CANDIDATE}[{at}]", prompt_hash, _score(reward), GeneratedCandidate(text, "stop", 1, 1, 0))
        for at, (text, reward) in enumerate(candidates)
    ]


def _score(outcome: Given) -> Score:
    if outcome is None:
        return Score.rejected(Reason.TOO_LONG)
    if isinstance(outcome, Reading):
        return Score.scored(outcome, 7)
    scores = outcome if isinstance(outcome, Mapping) else {"reward": outcome}
    return Score.scored(Reading(scores["reward"], scores), 7)


def _corpus(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    shape: RowShape,
    responses_by_row: Sequence[Sequence[Response]],
    *,
    outputs: tuple[str, ...] = ("reward",),
    prefix: str = "",
    parquet: bool = False,
    part_rows: int = 2,
    ensemble: bool = False,
    steps: bool = False,
    votes: bool = False,
    texts: Sequence[str] = (),
    columns_beside: Mapping[str, pa.Array] | None = None,
    **more: Any,
) -> str:
    whole = pa.Table.from_pylist(list(rows)) if parquet else pa.table({"record": _records(rows), **(columns_beside or {})})
    columns = Columns(whole.schema, outputs, prefix, steps=steps, votes=votes, drawn=shape.unanswered, text=bool(texts))
    parts = Parts(str(folder), RUN)
    parts.create()
    judged = iter(texts)
    for start in range(0, len(rows), part_rows):
        chunk = responses_by_row[start : start + part_rows]
        flat = [(start + at, *response) for at, responses in enumerate(chunk) for response in responses]
        carried = whole.take(pa.array([at for at, *_ in flat], pa.int64()))
        named = [(f"c:{at}", name, prompt_hash, score) for at, name, prompt_hash, score, _ in flat]
        part = Part(0, Range(start, start + len(chunk)), Counts.of(len(chunk), [score for *_, score in named]))
        written = list(itertools.islice(judged, len(flat)))
        parts.commit(part, columns.table(carried, named, [candidate for *_, candidate in flat], written), {})
    identity = {
        "model": "m",
        "prefix": prefix,
        "shape": shape.name,
        "own_columns": shape.own_columns and asdict(shape.own_columns),
        "turns": shape.turns,
        "fields": dict(shape.columns),
        "written_out": shape.written_out,
        **more,
    }
    if ensemble:
        identity = {"prefix": prefix, "members": {"a": {"identity": identity, "run": ""}}}
    kind = FileKind.PARQUET if parquet else FileKind.JSONL
    file = InputFile(0, "c", "/c", kind, 1, "sha256-of-ends:0", len(rows))
    Manifest(identity, (file,), columns, {}, run=RUN).write(str(folder))
    return str(folder)


def _records(rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    return pa.array([json.dumps(row).encode() for row in rows], pa.large_binary())
