"""Scores a corpus on an endpoint, of `assay serve` or of chat completions, into a scored corpus like any other.

Rows are read as `score` reads them, and what is missing is asked for, part by part: a run that was killed, or whose endpoint
went away, is resumed by the same command. What decides the numbers is the endpoint's own account (`/v1/models`): another
model under the same name is another run, as far as the endpoint tells. No engine and no Ray is started.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from actors.errors import EndpointError, EngineError, RunStopped
from actors.records import Score
from actors.scorers.head_scorer import gather
from actors.settings.replica import AS_ITS_CARD, AS_PUBLISHED
from actors.text.tool_calls import write_turn
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import InputFile
from pipelines.data.corpus.find_corpus import find_corpus
from pipelines.data.corpus.readers import read
from pipelines.data.corpus.units import Unit
from pipelines.data.formats import ROW_READER, RowRequests, RowShape
from pipelines.data.storage.lease import check_held, lease, ticket
from pipelines.folders.run_folder.carried_columns import carried_columns
from pipelines.folders.run_folder.dataset_card import write_scored_card
from pipelines.folders.run_folder.earlier_run import FILES_KEY, earlier_run
from pipelines.folders.run_folder.manifest import Manifest, files_mark, installed
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.scored_corpus.summary import Summary, summarise
from pipelines.run.prepare.choose_shape import preview_of
from pipelines.run.prepare.preview import fill_fields
from pipelines.run.prepare.row_sample import read_sample
from pipelines.run.prepare.score_requests import Outcome, parse_rows
from pipelines.run.runtime.progress import Progress
from pipelines.run.sampling.endpoint_faults import display_url
from pipelines.run.scoring.score_step import Stretch, part_report, scored_table, stretches
from pipelines.settings.evaluate_settings import EvaluateSettings
from pipelines.settings.run_settings import CorpusSettings, ScoreSettings
from pipelines.workflows.benchmarking.chat_judge import ChatJudge
from pipelines.workflows.benchmarking.endpoint_connection import served_card
from pipelines.workflows.benchmarking.rewards_client import RewardsClient

_PART_ROWS = 64  # a killed run loses at most so many rows' rewards
_UNIT_BYTES = 8 * 2**20


EndpointModel = RewardsClient | ChatJudge


class _EndpointRun(NamedTuple):
    """An opened run: what it is, where its parts are, and how its rows are read and asked for."""

    manifest: Manifest
    parts: Parts
    row_shape: RowShape
    client: EndpointModel
    max_record_bytes: int


def score_on_endpoint(settings: EvaluateSettings, run: ScoreSettings, progress: Progress) -> Summary:
    """Score the corpus of a run on the endpoint of the settings, or resume an earlier run of it.

    Raises a `UserError` if the run can't start, and `RunStopped` if the endpoint answers nothing any more.
    """
    corpus, output = run.corpus, run.output
    served = open_served(settings, run.model.model, progress.noted)
    files, _, schemas = find_corpus(corpus.inputs)
    sample = read_sample(files, corpus.max_record_bytes).rows
    preview = fill_fields(preview_of(corpus, sample), run.model.model, served.field_names)
    progress.planned(preview.explain())
    row_shape = preview.row_shape
    objects: list[Mapping[str, Any]] = [row for row in sample if isinstance(row, dict)]
    columns = served.columns(carried_columns(files, objects, schemas, read=row_shape.fields), row_shape, run.prefix)
    columns.check(field for row in objects for field in row)
    made_with = {"assay": installed("assay"), "endpoint": display_url(str(settings.endpoint))}
    manifest = Manifest(_identity(served, row_shape, corpus, run.prefix), tuple(files), columns, made_with)
    with lease(output, progress.noted, settings.endpoint_patience_s):
        manifest = _opened(manifest, storage.absolute(output), files)
        parts = Parts(storage.absolute(output), manifest.run, ticket(storage.absolute(output)))
        parts.create()
        write_scored_card(output, "score", manifest)
        return _execute(_EndpointRun(manifest, parts, row_shape, served, corpus.max_record_bytes), output, progress)


def open_served(settings: EvaluateSettings, name: str, notify: Callable[[str], None]) -> EndpointModel:
    """A model of the endpoint: one of `assay serve`, or else a judge that writes chat completions.

    Raises `EndpointError` if it can't be asked as the settings say, `RunStopped` if it doesn't answer now.
    """
    card, url = served_card(str(settings.endpoint), name), display_url(str(settings.endpoint))
    names_judge = settings.family is not None or settings.judge != AS_ITS_CARD or settings.read != AS_PUBLISHED
    if "identity" in card:
        if names_judge:
            raise EndpointError(
                f"the endpoint {url} asks {name} as it was started: leave out the settings of judges, --rubric and --family"
            )
        return RewardsClient(settings, name, card, notify)
    if settings.family is None and settings.judge.rubric is None:
        raise EndpointError(
            f"the endpoint {url} doesn't say what {name} is, as that of `assay serve` does; to ask it as a judge that "
            "writes, give --rubric FILE, or --family if it is a published judge"
        )
    judge = ChatJudge(settings, name, card, notify)
    judge.check()
    return judge


def _identity(served: EndpointModel, row_shape: RowShape, corpus: CorpusSettings, prefix: str) -> dict[str, Any]:
    """What decides the numbers: what is known of the model, and how rows are read."""
    return {
        **served.identity,
        "shape": row_shape.name,
        "row_reader": ROW_READER,
        "own_columns": None,
        "fields": dict(row_shape.columns),
        "written_out": row_shape.written_out,
        "turns": row_shape.turns,
        "limit": None,
        "max_record_bytes": corpus.max_record_bytes,
        "prefix": prefix,
    }


def _opened(manifest: Manifest, folder: str, files: Sequence[InputFile]) -> Manifest:
    """The manifest of a new run, or of the earlier one in the folder; written before any part."""
    earlier = earlier_run(folder, manifest, overwrite=False)
    if earlier is None:
        manifest = manifest.started()
    else:
        earlier.check(manifest)
        manifest = replace(manifest, files=earlier.check_files(files), columns=earlier.columns, run=earlier.run)
    manifest.write(folder)
    return manifest


def _execute(run: _EndpointRun, output: str, progress: Progress) -> Summary:
    """Score what is missing, prove that nothing is, and summarise it."""
    files = run.manifest.files
    state = run.parts.repair(files, progress.noted)
    with progress.running(files, state.parts):
        try:
            asyncio.run(_score_missing(run, state.missing(_UNIT_BYTES), progress))
        except EngineError as error:  # its patience is over: what is committed stays, and the same command goes on
            raise RunStopped(str(error)) from error
    counts = run.parts.state(files).audit()
    run.parts.set_strays_aside(progress.noted)
    summary = summarise(run.parts, run.manifest.columns, counts)
    replace(run.manifest, summary=summary.as_json()).write(output)
    summary.check_scored()
    return summary


async def _score_missing(run: _EndpointRun, units: Sequence[Unit], progress: Progress) -> None:
    try:
        for unit in units:
            for table in read(unit, run.max_record_bytes, run.parts.end_seen):
                rows, ranges = parse_rows(table, run.row_shape, run.manifest.columns)
                responses = [0 if row is None else len(row.names) for row in rows]
                for stretch in stretches(ranges, _PART_ROWS, rows, responses=responses):
                    check_held()
                    progress.part_done(await _commit(run, unit.file, stretch))
    finally:
        await run.client.close()


async def _commit(run: _EndpointRun, file: InputFile, stretch: Stretch[RowRequests]) -> dict[str, Any]:
    """Score the rows of a stretch, and commit them as a part."""
    outcomes = await gather(_outcomes(run.client, row) for row in stretch.rows)
    scores = [outcome.score for row in outcomes for outcome in row]
    part = stretch.part(sum(row is not None for row in stretch.rows), scores)
    names = stretch.row_names({file.index: file.name})
    metadata = {"assay": json.dumps(run.manifest.made_with), FILES_KEY: files_mark(run.manifest.files)}
    run.parts.commit(part, scored_table(run.manifest.columns, stretch.table, names, outcomes), metadata)
    return part_report(part, scores)


async def _outcomes(client: EndpointModel, row: RowRequests | None) -> list[Outcome]:
    """One outcome per response of a row, in its order."""
    if row is None:
        return []
    by_name = {each.name: Outcome(each.name, None, Score.rejected(each.reason, each.detail)) for each in row.rejected}
    requests = row.requests
    if not client.takes_principles:  # as a batch run: the endpoint would refuse them, and hashes of prompts would differ
        requests = tuple(replace(request, principles=()) for request in requests)
    answers = await gather(map(client.score, requests))
    for request, scores in zip(requests, answers, strict=True):
        for response, score in zip(request.responses, scores, strict=True):
            text = client.judged_text(write_turn(response))
            by_name[response.name] = Outcome(response.name, request.prompt_hash, score, text)
    return [by_name[name] for name in row.names]
