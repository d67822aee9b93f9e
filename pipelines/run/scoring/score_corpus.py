"""The main job: a corpus in, a scored corpus out.

1. Resolve the run from its settings, and open the output folder for it.
2. While ranges of the input have no part: read them, prepare them on CPUs, score them on the engines and commit them, part
   by part.
3. Audit the parts, summarise them, and write the manifest with the summary.

Resuming a killed run, replacing a lost part and scoring appended input are the same case of step 2.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import ray
from ray.data import DataContext, Dataset
from ray.data.exceptions import ExecutionTimeoutError

from actors.engine.protocol import Task
from actors.errors import (
    AssayError,
    AuditError,
    DamagedSource,
    EndpointError,
    EnginesLost,
    ModelError,
    OutputError,
    RunStopped,
    SettingsError,
    SourceError,
)
from actors.launch import placement
from actors.scorers.batch_noise import largest_noise
from actors.text.counted import first_of
from actors.timeline import mark
from actors.workers.crash_ledger import EngineStarts
from pipelines.data import storage
from pipelines.data.corpus.corpus_files import FileKind, check_unchanged, file_exists
from pipelines.data.corpus.datasource import CorpusSource, Prepare
from pipelines.data.corpus.find_corpus import left_out_message
from pipelines.data.corpus.units import Unit, task_bytes
from pipelines.data.storage.lease import check_held, lease, ticket
from pipelines.folders.run_folder.carried_columns import check_carried
from pipelines.folders.run_folder.columns import FROM_STORE, TEXT
from pipelines.folders.run_folder.dataset_card import write_scored_card
from pipelines.folders.run_folder.earlier_run import FILES_KEY, earlier_run
from pipelines.folders.run_folder.endpoint_notes import endpoint_work
from pipelines.folders.run_folder.folder_state import FolderState
from pipelines.folders.run_folder.manifest import Manifest, files_mark, provenance
from pipelines.folders.run_folder.part import Counts
from pipelines.folders.run_folder.parts import Parts
from pipelines.folders.score_store.open_store import OpenStore
from pipelines.folders.scored_corpus.part_files import drop_unreadable
from pipelines.folders.scored_corpus.summary import Summary, summarise
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.identity import manifest_of, open_score_store
from pipelines.run.prepare.score_requests import Preparation, prepare
from pipelines.run.runtime.engine_pool import engine_pool, ledger, window_batches
from pipelines.run.runtime.lost_engines import EngineWatch, watch_first_worker
from pipelines.run.runtime.progress import Progress
from pipelines.run.runtime.run_observer import RunObserver
from pipelines.run.runtime.run_timing import read_run_work, time_session
from pipelines.run.runtime.session import check_stopped, import_vllm, ray_session
from pipelines.run.scoring.score_step import FileTable, ScoreStep, StepSettings
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import JudgingSettings, ScoreSettings

# Of an actor that died at its start, Ray passes on the text of a traceback alone. These find our own errors in it, by the
# module that defines them; an error of `_NEVER_WORKS` would come again on every retry.
_OURS = re.compile(r"^actors\.errors\.(\w+): (.+)$", re.MULTILINE)
_NEVER_WORKS = {error.__name__: error for error in (DamagedSource, EndpointError, ModelError, SettingsError)}
_STORAGE = re.compile(r"^\w*Error: (\[Errno \d+\] .+)$", re.MULTILINE)

# Ray Data's default is half an hour, too short to load a large model, or for a judge to finish a part.
_NO_PROGRESS_S = 4 * 3600.0
# A batch of an endpoint takes up to a day, and what fails for the moment is sent three times.
_BATCH_S = 3 * 24 * 3600.0
_LEDGER_S = 30.0  # timeout of a ledger's answer
# Input (compressed or not) that one process prepares in less time than a second process needs to import its tokenizer.
_SMALL_INPUT_BYTES = 2**20
_MAX_NAMED = 20  # file names in a message; a folder may hold thousands
# The first does the work, the second fills gaps that a dead driver's parts left, the third finds nothing to do.
_PASSES = 3


@dataclass(frozen=True)
class Run:
    """An opened run: its settings, its manifest, and the folder that it fills.

    `state` is what the folder held when the run was opened, `earlier` the manifest that was there, if nothing is appended to
    it. `left_out` are paths in the input's folders that aren't read.
    """

    settings: JudgingSettings
    manifest: Manifest
    preparation: Preparation
    parts: Parts
    state: FolderState
    part_rows: int
    block_bytes: int
    earlier: Manifest | None = None
    left_out: Sequence[str] = ()
    store: OpenStore | None = None

    @property
    def task_bytes(self) -> int:
        return task_bytes(sum(file.size for file in self.manifest.files), self.settings.work.unit_bytes)

    def missing(self, state: FolderState) -> list[Unit]:
        """The units of work for what has no part yet."""
        return state.missing(self.task_bytes)


class Pipeline(NamedTuple):
    """A running pipeline: a dataset with one row per committed part, and the ledgers of engine pools and endpoints."""

    dataset: Dataset
    ledgers: Sequence[Any]
    endpoint_ledgers: Sequence[Any] = ()

    def engine_starts(self) -> EngineStarts | None:
        """What all pools' ledgers say of their engines together; None if a ledger doesn't answer."""
        starts: list[EngineStarts] | None = self._call("engine_starts")
        if starts is None:
            return None
        return EngineStarts(
            sum(pool_starts.engines for pool_starts in starts),
            min((pool_starts.at for pool_starts in starts if pool_starts.at), default=None),
            largest_noise(pool_starts.noise for pool_starts in starts if pool_starts.noise),
        )

    def engine_errors(self) -> list[str]:
        """The last causes of engines' deaths, one a pool; none if a ledger doesn't answer."""
        return [error for error in self._call("last_error") or () if error]

    def _call(self, method: str) -> list[Any] | None:
        """The answer of each ledger; None if one doesn't answer: with its node, its actor may be gone."""
        try:
            answers: list[Any] = ray.get([getattr(ledger, method).remote() for ledger in self.ledgers], timeout=_LEDGER_S)
        except ray.exceptions.RayError:
            return None
        return answers


StartPipeline = Callable[[Run, Sequence[Unit], Callable[[str], None]], AbstractContextManager[Pipeline]]
"""Starts a pipeline for units of work, and ends it with the context. The last argument receives messages about waiting."""


def score(
    settings: ScoreSettings,
    progress: Progress | None = None,
    reserved: tuple[str, ...] = (),
    observers: Sequence[RunObserver] = (),
    start_pipeline: StartPipeline | None = None,
) -> Summary:
    """Score a corpus into a folder, or resume an earlier run of the same settings.

    `reserved` are further column names that the input may not have, for a corpus that will be made from this one.
    `start_pipeline` is for engines that aren't the run's alone (`shared_engines`).
    Raises a `UserError` if the run can't start, `RunStopped` if it ended early and can be resumed, and `AuditError` if the
    parts don't cover the input exactly.
    """
    progress = progress or Progress()
    for observer in observers:
        observer.check(settings.output)
    mark("plan")
    import_vllm(settings.engine.is_vllm)
    plan = resolve_run.resolve(settings, reserved, notify=progress.noted)
    progress.planned(plan.shape_found)
    manifest = manifest_of(plan, settings)
    with lease(settings.output, progress.noted, settings.work.storage_patience_s):
        run = open_run(settings, plan, manifest, progress.noted)
        write_recipe(settings.output, score=settings)
        write_scored_card(settings.output, "score", run.manifest)
        return execute(run, start_pipeline or _scoring, progress, observers)


def execute(run: Run, start_pipeline: StartPipeline, progress: Progress, observers: Sequence[RunObserver] = ()) -> Summary:
    """Score what is missing of a run, prove that nothing is, and summarise it. Raises as `score` does."""
    with ExitStack() as watching:
        for observer in observers:
            progress = watching.enter_context(observer.started(run.settings, run.manifest, progress))
        return _execute(run, start_pipeline, progress, observers)


def _execute(run: Run, start_pipeline: StartPipeline, progress: Progress, observers: Sequence[RunObserver]) -> Summary:
    state = run.state
    saved = None
    if not run.missing(state):
        saved, state = _check_complete(run, state, progress)
    for attempts_left in reversed(range(_PASSES)):
        if units := run.missing(state):
            run.manifest.check_versions(provenance(run.settings), run.settings)
            state = _complete(run, state, units, start_pipeline, progress)
        check_held()
        counts = state.audit()
        try:
            summary = saved or summarise(run.parts, run.manifest.columns, counts)
            work = asdict(read_run_work(run.parts, len(state.parts)))
            endpoint = endpoint_work(run.parts.folder)
            summary = replace(summary, work=work, left_out=run.left_out, endpoint=endpoint)
            break
        except (SourceError, AuditError):
            # A part is damaged, or contradicts its name. Drop such parts and score their rows again; if there are none, the
            # error has another cause, and a retry would meet it again.
            saved = None
            if not attempts_left or not drop_unreadable(run.parts, progress.noted):
                raise
            state = run.parts.state(run.manifest.files)
    for observer in observers:
        observer.finished(summary)
    run.parts.set_strays_aside(progress.noted)
    # The mark is of the parts as they were listed before they were read: if one has changed since, the next run of this
    # command doesn't take the summary for that of what it finds.
    replace(run.manifest, summary=summary.as_json(), summary_of=state.mark()).write(run.settings.output)
    return summary


def _check_complete(run: Run, state: FolderState, progress: Progress) -> tuple[Summary | None, FolderState]:
    """The summary that a complete run has already, if its parts are as they were; else drop those that can't be read.

    Repeating the command of a complete run is how a user mends a damaged part, so all parts are read completely then: the
    summary reads only some columns.
    """
    earlier, count = run.earlier, len(state.parts)
    there = f"nothing is left to score, {count:,} part{'s are' if count != 1 else ' is'} there"
    # The mark is of the parts' names, sizes and times, which one listing tells: a million parts needn't be read again.
    if earlier is not None and earlier.summary is not None and earlier.summary_of == state.mark():
        progress.noted(f"{there}, and none has changed since all were read; `assay verify` reads them again")
        return Summary.of_json(earlier.summary), state
    progress.noted(f"{there}; checking")
    return None, run.parts.state(run.manifest.files) if drop_unreadable(run.parts, progress.noted) else state


def open_run(
    settings: JudgingSettings,
    plan: resolve_run.ResolvedRun,
    manifest: Manifest,
    notify: Callable[[str], None] = lambda text: None,
) -> Run:
    """Open the output folder for a new run, to resume one, or to append to one. Raises `OutputError` or `SourceError`.

    `notify` receives what of the settings and the input the run passes over. The caller holds the folder's lease.
    """
    folder = storage.absolute(settings.output)
    store = open_score_store(settings.store, plan.preparation.model, settings.engine, folder)
    earlier = earlier_run(folder, manifest, settings.overwrite)
    if earlier is None:
        manifest = manifest.started()  # with a new name for the run, which no part in the folder has
    else:
        earlier.check(manifest)
        earlier.check_versions(manifest.made_with, settings)
        if earlier.summary is not None and not settings.append:
            # Nothing is scored, unless a part is missing or damaged: `_execute` looks again.
            manifest = replace(manifest, made_with=earlier.made_with)
        if settings.append:
            check_unchanged(earlier.files)
            if held := [file.path for file in earlier.known(plan.files)]:
                notify(f"not appended again, as the run holds them already: {first_of(held, _MAX_NAMED)}")
            appended = earlier.with_appended(plan.files, plan.preparation.columns.carried.names)
            manifest = replace(appended, made_with=manifest.made_with)
            if not earlier.columns.is_json:
                check_carried(earlier.columns.carried, manifest.files[len(earlier.files) :])
        else:
            files = earlier.check_files(plan.files)
            manifest = replace(manifest, files=files, columns=earlier.columns, run=earlier.run, retries=earlier.retries)
    if store is not None and FROM_STORE not in manifest.columns.flags:
        raise OutputError(
            f"--store: the run in {folder} began without one, and its parts have no column {FROM_STORE} to say which scores "
            "are from it; resume without --store, or give another output folder or --overwrite"
        )
    if manifest.columns.text != settings.text:
        name, have = manifest.columns.prefix + TEXT, "have" if manifest.columns.text else "don't have"
        notify(f"the parts in this folder {have} the column {name}, so new ones {have} it, too; --overwrite scores all anew")
    if plan.left_out:
        notify(left_out_message(plan.left_out))
    parts = Parts(folder, manifest.run, ticket(folder))
    manifest.write(folder)  # before any part: without it, nobody could tell what they are parts of
    parts.create()
    # A dead driver's late writer may have left a part that overlaps others: the audit would find it only at the end.
    state = parts.repair(manifest.files, notify)
    # The inputs of --append may be only the new ones, so that nobody has looked for the earlier ones yet.
    if settings.append and (gone := [file.path for file, *_ in state.unfinished_files() if not file_exists(file.path)]):
        raise OutputError(
            f"{gone[0]} isn't there any more, and its scoring isn't finished; put it back, or, if it was moved, go on "
            "without --append where it is now, and append after that"
        )
    return Run(
        settings,
        manifest,
        replace(plan.preparation, columns=manifest.columns),
        parts,
        state,
        plan.part_rows,
        plan.block_bytes,
        earlier=None if settings.append else earlier,
        left_out=plan.left_out,
        store=store,
    )


def _complete(
    run: Run, state: FolderState, units: Sequence[Unit], start_pipeline: StartPipeline, progress: Progress
) -> FolderState:
    """Run the pipeline until nothing is missing, at most `_PASSES` times, not counting passes that lost engines.

    Returns what the folder holds then. Raises `AuditError` if something is missing even then.
    """
    work = {(unit.file.index, unit.range) for unit in units}
    done = [part for part in state.parts if (part.file, part.range) not in work]  # without those that `retry` writes again
    with (
        progress.running(run.manifest.files, done),
        ExitStack() as after_ray,
        ray_session(with_vllm=run.settings.engine.is_vllm),
    ):
        gpus, passes_left = placement.engine_gpus(run.settings.engine), _PASSES
        while units and passes_left:
            timed = functools.partial(time_session, before=len(state.parts), after_ray=after_ray)
            try:
                with (
                    start_pipeline(run, units, progress.noted) as flow,
                    timed(run.parts, run.settings, progress, flow.engine_starts) as timed_progress,
                ):
                    consume(run, flow, timed_progress)
                passes_left -= 1
            except EnginesLost as lost:
                # Not counted as a pass: nodes may come and go for as long as the run lasts. But with no GPU left in the
                # cluster, starting again would wait for ever.
                if gpus and not placement.engine_gpus(run.settings.engine):
                    raise RunStopped(f"{lost}: the cluster has no GPU any more") from lost
                progress.noted(f"{lost}; the others go on")
            state = run.parts.repair(run.manifest.files, progress.noted)
            units = run.missing(state)
        state.audit()
        return state


def consume(run: Run, flow: Pipeline, progress: Progress) -> None:
    """Consume the pipeline: count parts, and stop the run where too much fails.

    Raises `RunStopped` with the cause of an error in a worker; for an error that would come again on every retry, such as an
    unusable endpoint, the error itself (`run_stopped`).
    """
    counts = Counts()
    gpus = placement.engine_gpus(run.settings.engine)
    callback: Any = functools.partial(EngineWatch, flow.ledgers, gpus, progress, flow.endpoint_ledgers)
    dataset = flow.dataset
    dataset.context.custom_execution_callback_classes = [callback]
    try:
        with watch_first_worker(flow.ledgers, progress.noted):
            for part in dataset.iter_rows():
                check_stopped()
                check_held()
                counts += Counts(part["rows"], part["scored"], part["rejected"], part["failed"])
                progress.part_done(part)
                _check_failures(counts, run.settings.work.max_failed_fraction)
    except (ray.exceptions.RayError, ExecutionTimeoutError) as error:
        raise run_stopped(error, "; ".join(flow.engine_errors())) from error


@contextmanager
def _scoring(run: Run, units: Sequence[Unit], notify: Callable[[str], None]) -> Iterator[Pipeline]:
    mark("pipeline of Ray Data")
    placement.wait_for_room(run.settings.engine, run.preparation.model, notify)
    engine, work = run.settings.engine, run.settings.work
    # A judge writes for longer than it reads, so more rows at a time would cost more than they save: by a row that kills
    # engines, all are scored one by one.
    meets = run.preparation.model.task in (Task.CLASSIFY, Task.EMBED)
    window = window_batches(engine, work, run.part_rows, run.block_bytes) if meets else 0
    # batch_size=None passes each block as it is: with a fixed number of rows, every block would leave a small remainder for
    # a call of its own. The public `map_batches` demands a number for steps with GPUs, because a whole block may not fit
    # into GPU memory; our blocks are text, which is queued. Hence the internal method.
    try:
        with ledger(work) as deaths:
            scored = prepared_rows(run, units).map_batches_internal(
                ScoreStep,
                fn_constructor_args=(step_settings(run), share_files(run), deaths),
                batch_size=None,
                batch_format="pyarrow",
                **engine_pool(engine, work, run.part_rows, window),
            )
            yield Pipeline(scored, [deaths])
    finally:
        # Only engines over nodes leave groups. To ask for others would end an interrupted run a minute late, with a dead
        # lease and no message, where Ray was stopped together with it: as schedulers and `timeout` do, by one signal to all.
        if engine.pipeline_parallel > 1:
            placement.sweep()


def prepared_rows(run: Run, units: Sequence[Unit]) -> Dataset:
    """The rows of units of work as a scorer gets them: `PreparedRow`s, pickled, beside the columns that parts carry."""
    max_tasks = 1 if sum(file.size for file in run.manifest.files) < _SMALL_INPUT_BYTES else None
    return read_units(run, units, functools.partial(prepare, preparation=run.preparation), max_tasks)


def read_units(run: Run, units: Sequence[Unit], prepare: Prepare, task_limit: int | None = None) -> Dataset:
    """The rows of units of work, prepared, in blocks of about a part.

    `task_limit` is the maximum number of concurrent read tasks; None: as many as fit on the cluster.
    """
    context = DataContext.get_current()
    # A block is what an actor's death loses, and the least that an actor gets. About a part, instead of Ray's 128 MiB.
    context.target_max_block_size = run.block_bytes
    context.execution_no_progress_timeout_s = _NO_PROGRESS_S if not run.settings.model.endpoint.batch else _BATCH_S
    context.enable_progress_bars = False  # Ray's show blocks and operators; ours shows responses and reasons
    source = CorpusSource(units, run.parts.end_seen, run.settings.corpus.max_record_bytes, run.task_bytes, prepare)
    return ray.data.read_datasource(source, override_num_blocks=source.tasks, concurrency=task_limit)


def step_settings(run: Run) -> StepSettings:
    """The settings that `ScoreStep` needs in its process."""
    return StepSettings(
        # The driver has waited for the first engine's GPUs. Further engines may wait for theirs without end: the run works
        # without them.
        engine=run.settings.engine.model_copy(update={"placement_timeout_s": math.inf}),
        preparation=run.preparation,
        parts=run.parts,
        part_rows=run.part_rows,
        metadata={"assay": json.dumps(provenance(run.settings)), FILES_KEY: files_mark(run.manifest.files)},
        store=run.store,
    )


def share_files(run: Run) -> Any:
    """Ray's reference to the `FileTable` of a run, for its actors."""
    files = run.manifest.files  # their indices count from 0
    # Those may share a part with their neighbours that a part would take whole. Of compressed files and arrays only reading
    # tells the extent, so they have parts of their own.
    small_extents = [
        file.extent if file.size < run.block_bytes and file.kind in (FileKind.JSONL, FileKind.PARQUET) else None
        for file in files
    ]
    names = pa.array([file.name for file in files], pa.large_string())
    return ray.put(FileTable(names, pa.array(small_extents, pa.int64())))


def _check_failures(counts: Counts, max_fraction: float) -> None:
    # Above 100 failures only, so that a few at the start, when nothing else is done yet, don't end the run.
    if counts.failed > 100 and counts.failed > max_fraction * counts.responses:
        raise RunStopped(
            f"{counts.failed:,} of {counts.responses:,} responses failed, and work.max_failed_fraction allows a share of "
            f"{max_fraction:g}"
        )


def run_stopped(error: Exception, engine_error: str = "") -> AssayError:
    """The error that ends the run, from an error in a worker: `RunStopped`, or one that a retry can't mend, as it is.

    `RunStopped` has the cause: our own error, else the engine's, else the storage's, else Ray's whole text.
    """
    # The text holds the tracebacks of all processes that the error went through, the first cause above the others.
    traceback = str(error)
    errors = _OURS.findall(traceback)
    for name, message in errors:
        if name in _NEVER_WORKS:
            return _NEVER_WORKS[name](message)
    causes = [message for _, message in errors] or ([engine_error] if engine_error else _STORAGE.findall(traceback))
    return RunStopped(causes[0] if causes else traceback)
