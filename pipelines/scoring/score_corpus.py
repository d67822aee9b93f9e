"""The main job: a corpus in, a scored corpus out.

1. Settle the plan, and open the output folder with it.
2. While something is missing: read it, prepare it on CPUs, score it on the engines and commit it, part by part. What is to
   be made of the corpus row by row (`export_job`) is made of each part then.
3. Audit the parts, sum them up, and close the manifest.

A killed run, a lost part and new input are all the same case of step 2.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ray
from ray.data import DataContext, Dataset
from ray.data.exceptions import ExecutionTimeoutError

from actors.errors import (
    AssayError,
    AuditError,
    EndpointError,
    EnginesLost,
    ModelError,
    OutputError,
    RunStopped,
    SettingsError,
    SourceError,
)
from actors.launch import placement
from actors.timeline import mark
from actors.workers.crash_ledger import Begun
from pipelines import storage
from pipelines.corpus.corpus_files import InputFile, Range, Unit, check_unchanged, cut, file_exists, left_out_message
from pipelines.corpus.datasource import CorpusSource
from pipelines.estimate import compare_run
from pipelines.exports import export_job
from pipelines.exports.export_job import ExportJob, FinishedExport, StartedExport
from pipelines.prepare import resolve_run
from pipelines.prepare.identity import manifest_of
from pipelines.prepare.score_requests import Preparation, prepare
from pipelines.runtime.engine_pool import engine_pool, ledger
from pipelines.runtime.lost_engines import EngineWatch
from pipelines.runtime.progress import Progress, Silent
from pipelines.runtime.run_timing import time_session
from pipelines.runtime.session import check_stopped, ray_session
from pipelines.scored_corpus.columns import check_carried
from pipelines.scored_corpus.earlier_run import FILES_KEY, earlier_run
from pipelines.scored_corpus.manifest import Manifest, files_mark, provenance
from pipelines.scored_corpus.part_files import drop_unreadable
from pipelines.scored_corpus.parts import Counts, Parts, audit, by_file, gaps, merge_ranges, strays_message
from pipelines.scored_corpus.summary import Summary, summarise
from pipelines.scoring.score_step import ScoreStep, StepSettings
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import JudgingSettings, ScoreSettings
from pipelines.storage.lease import check_held, lease, ticket

_OURS = re.compile(r"^actors\.errors\.\w+: (.+)$", re.MULTILINE)
_NEVER_WORKS = {"EndpointError": EndpointError, "ModelError": ModelError, "SettingsError": SettingsError}
_NEVER = re.compile(rf"^actors\.errors\.({'|'.join(_NEVER_WORKS)}): (.+)$", re.MULTILINE)
_STORAGE = re.compile(r"^\w*Error: (\[Errno \d+\] .+)$", re.MULTILINE)

_FOLLOWING_CPUS = 0.25  # it must find room beside the engines, on the smallest machine too
_NO_PROGRESS_S = 4 * 3600.0
"""Ray Data's own limit is half an hour, in which a large model may not even be loaded, nor a part of a judge's be done."""
_LEDGER_S = 30.0  # to answer in; it may have gone with its node
_LITTLE_TEXT = 2**20
"""Bytes of input, compressed or not, that one process prepares sooner than a second has imported a tokenizer's library."""
_NAMED = 20  # of what may be thousands of files
_PASSES = 3
"""One does the work, another fills what an overlapping part of a dead driver left open, the last finds nothing to do."""


@dataclass(frozen=True)
class Run:
    """A run on its way: the plan, and the folder that it fills."""

    settings: JudgingSettings
    manifest: Manifest
    preparation: Preparation
    parts: Parts
    part_rows: int
    block_bytes: int
    known: Sequence[str] = ()
    """Files that were given to be taken in, and are in it already."""
    later: Parts | None = None
    """Of a first pass, the parts of the pass that comes after it: what is done there needs no first pass any more."""
    left_out: Sequence[str] = ()
    """Files in the input's folders that aren't read."""

    def missing(self) -> list[Unit]:
        """The units of work that aren't done."""
        unit_bytes = self.settings.work.unit_bytes
        return [unit for file, remaining, done in self.unfinished() for unit in cut(file, remaining, done, unit_bytes)]

    def unfinished(self) -> Iterator[tuple[InputFile, list[Range] | None, list[Range]]]:
        """The files that aren't done: what remains of each (None: its end isn't known yet), and what is done."""
        passes = [self.parts, *([self.later] if self.later else [])]
        extents = [parts.extents(self.manifest.files) for parts in passes]
        parts = by_file(sorted(part for parts in passes for part in parts.listing()))
        for file in self.manifest.files:
            done = merge_ranges(part.range for part in parts.get(file.index, []))
            extent = next((ends[file.index] for ends in extents if ends[file.index] is not None), None)
            remaining = None if extent is None else gaps(done, extent)
            if remaining is None or remaining:
                yield file, remaining, done

    def audited(self) -> Counts:
        """What the parts hold, by their names. Raises `AuditError` unless all that is to be done is."""
        parts = self.parts.listing()
        if self.later is None:
            return audit(self.manifest.files, self.parts.extents(self.manifest.files), parts)
        if missing := self.missing():
            raise AuditError(f"the first pass isn't complete: {len(missing)} pieces of work are missing")
        return sum((part.counts for part in parts), Counts())


class Flow(NamedTuple):
    """What does the work: it gives one row per part that was committed. The ledgers know of engines that died."""

    dataset: Dataset
    ledgers: Sequence[Any]

    def begun(self) -> Begun | None:
        """What engines there have been; None if nobody knows."""
        try:
            found: list[Begun] = ray.get([ledger.begun.remote() for ledger in self.ledgers], timeout=_LEDGER_S)
        except ray.exceptions.RayError:
            return None
        return Begun(sum(own.engines for own in found), min((own.at for own in found if own.at), default=None))


Flows = Callable[[Run, Sequence[Unit], Callable[[str], None]], AbstractContextManager[Flow]]
"""Starts what does some units of work; the context ends what it holds. The last argument is told what it waits for."""


def score(
    settings: ScoreSettings,
    progress: Progress | None = None,
    reserved: tuple[str, ...] = (),
    jobs: Sequence[ExportJob] = (),
) -> Summary:
    """Score a corpus into a folder, or go on where an earlier run of the same settings ended.

    `reserved` are names of columns that the input may not have, beside ours: of what will be made of this run. `jobs` are
    done with each part as it comes.
    Raises a `UserError` if the run can't start as it is, `RunStopped` if it ended early and can go on, and `AuditError`
    if what was written doesn't add up to the input.
    """
    progress = progress or Silent()
    mark("plan")
    plan = resolve_run.resolve(settings, reserved)
    progress.planned(plan.shape_found)
    manifest = manifest_of(plan, settings)
    compare_run.check_planned(settings.plan, manifest)
    with lease(settings.output):
        run = open_run(settings, plan, manifest)
        write_recipe(settings.output, score=settings)
        return carry_out(run, _scoring, progress, jobs)


def carry_out(run: Run, flows: Flows, progress: Progress, jobs: Sequence[ExportJob] = ()) -> Summary:
    """Do what is missing of a run, prove that nothing is, and sum it up. Raises as `score` does.

    With each part, and at the end with what a killed run left of that, `jobs` are done, which go by part.
    """
    todo = [job for job in jobs if export_job.read_finished_export(job) is None]
    for job in todo:
        export_job.check(job, run.manifest)
    with ExitStack() as held:
        for job in todo:
            held.enter_context(lease(job.output))
        return _carry_out(run, flows, progress, jobs, todo)


def _carry_out(run: Run, flows: Flows, progress: Progress, jobs: Sequence[ExportJob], todo: Sequence[ExportJob]) -> Summary:
    if run.known:
        progress.noted(f"taken for known, as they were taken in before: {_some(run.known)}")
    if run.left_out and run.later is None:
        progress.noted(left_out_message(run.left_out))
    steps = [export_job.begin(job, run.manifest)[0] for job in todo]
    if strays := run.parts.strays():
        progress.noted(strays_message(strays))
    _repair(run, progress)
    if not run.missing():
        drop_unreadable(run.parts, progress.noted)  # whoever asks again for what is complete may have met one
    for left in reversed(range(_PASSES)):
        if run.missing():
            with ray_session(with_vllm=run.settings.engine.is_vllm):
                _complete(run, flows, steps, progress)
        check_held()
        counts = run.audited()
        try:
            summary = summarise(run.parts, run.manifest.columns, counts)
            summary = replace(
                summary,
                made=[FinishedExport(job, export_job.read_finished_export(job) or export_job.complete(job)) for job in jobs],
            )
            break
        except (SourceError, AuditError):
            if not left or not drop_unreadable(run.parts, progress.noted):
                raise
    summary = replace(compare_run.with_facts(summary, run.parts, run.settings), left_out=run.left_out)
    replace(run.manifest, summary=summary.as_json()).write(run.settings.output)
    return summary


def open_run(settings: JudgingSettings, plan: resolve_run.ResolvedRun, manifest: Manifest) -> Run:
    """Open the output folder: new, to go on with, or to add new input to."""
    folder = storage.absolute(settings.output)
    known: Sequence[str] = ()
    earlier = earlier_run(folder, manifest, settings.overwrite)
    if earlier is None:
        manifest = manifest.started()
    else:
        earlier.check(manifest)
        if settings.append:
            check_unchanged(earlier.files)
            known = [file.path for file in earlier.known(plan.files)]
            manifest = earlier.with_appended(plan.files, plan.preparation.columns.carried.names)
            if not earlier.columns.is_json:
                check_carried(earlier.columns.carried, manifest.files[len(earlier.files) :])
        else:
            files = earlier.check_files(plan.files)
            manifest = replace(manifest, files=files, columns=earlier.columns, run=earlier.run)
    parts = Parts(folder, manifest.run, ticket(folder))
    manifest.write(folder)  # before any part: without it, nobody could tell what they are parts of
    parts.create()
    preparation = replace(plan.preparation, columns=manifest.columns)
    run = Run(settings, manifest, preparation, parts, plan.part_rows, plan.block_bytes, known, left_out=plan.left_out)
    if settings.append:
        _check_there(run)
    return run


def _check_there(run: Run) -> None:
    """Raise `OutputError` for a file whose scoring isn't finished, and which is gone: new ones may be all that was given."""
    if gone := [file.path for file, *_ in run.unfinished() if not file_exists(file.path)]:
        raise OutputError(
            f"{gone[0]} isn't there any more, and its scoring isn't finished; put it back, or, if it was moved, go on "
            "without --append where it is now, and append after that"
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _repair(run: Run, progress: Progress) -> None:
    for part in run.parts.repair():
        progress.noted(f"{part.name} overlapped an older part or was empty, and is dropped; its rows are scored again")


def _complete(run: Run, flows: Flows, steps: Sequence[StartedExport], progress: Progress) -> None:
    gpus = placement.engine_gpus(run.settings.engine)
    with progress.running(run.manifest.files, run.parts.listing()):
        left = _PASSES
        while left:
            _repair(run, progress)
            units = run.missing()
            if not units:
                return
            try:
                with (
                    flows(run, units, progress.noted) as flow,
                    time_session(run.parts, run.settings, progress, flow.begun) as watched,
                ):
                    _flow(run, _followed(flow, steps), watched)
                left -= 1
            except EnginesLost as lost:
                if gpus and not placement.engine_gpus(run.settings.engine):
                    raise RunStopped(f"{lost}: the cluster has no GPU any more") from lost
                progress.noted(f"{lost}; the others go on")


def _followed(flow: Flow, steps: Sequence[StartedExport]) -> Flow:
    if not steps:
        return flow
    following = functools.partial(export_job.follow, steps=steps)
    return flow._replace(
        dataset=flow.dataset.map_batches(following, batch_size=None, batch_format="pyarrow", num_cpus=_FOLLOWING_CPUS)
    )


def _flow(run: Run, flow: Flow, progress: Progress) -> None:
    """Let it flow. Whatever goes wrong in a worker ends here as a `RunStopped` that says so.

    But for an endpoint that can't be asked as it is given: the same command wouldn't go on. Raises `EndpointError`.
    """
    done, told = Counts(), 0
    watch: Any = functools.partial(EngineWatch, flow.ledgers, progress.noted)
    flow.dataset.context.custom_execution_callback_classes = [watch]
    try:
        for part in flow.dataset.iter_rows():
            check_stopped()
            check_held()
            done += Counts(part["rows"], part["scored"], part["rejected"], part["failed"])
            progress.part_done(part)
            found = ray.get([ledger.restarts.remote() for ledger in flow.ledgers])
            restarts = sum(times for times, _ in found)
            if restarts > told:
                progress.noted(f"engines died and were started again, {restarts} so far; the last one: {max(found)[1]}")
                told = restarts
            _check_failures(done, run.settings.work.max_failed_fraction)
    except (ray.exceptions.RayError, ExecutionTimeoutError) as error:
        words = filter(None, ray.get([ledger.last_error.remote() for ledger in flow.ledgers]))
        raise run_stopped(error, "; ".join(words)) from error


@contextmanager
def _scoring(run: Run, units: Sequence[Unit], noted: Callable[[str], None]) -> Iterator[Flow]:
    """The pipeline of Ray Data: read, prepare, score."""
    mark("pipeline of Ray Data")
    placement.wait_for_room(run.settings.engine, run.preparation.model, noted)
    engine, work, deaths = run.settings.engine, run.settings.work, ledger(run.settings.work)
    task_limit = 1 if sum(file.size for file in run.manifest.files) < _LITTLE_TEXT else None
    prepared = read_units(run, units, task_limit).map_batches(
        functools.partial(prepare, preparation=run.preparation),
        batch_size=None,
        batch_format="pyarrow",
        concurrency=task_limit,
    )
    # Blocks as they come: cut to a number of rows, each would leave a few rows for a call alone. `map_batches` wants a
    # number wherever there are GPUs, because an array of so many rows may not fit one; ours are text, which waits its turn.
    scored = prepared.map_batches_internal(
        ScoreStep,
        fn_constructor_args=(step_settings(run), deaths),
        batch_size=None,
        batch_format="pyarrow",
        **engine_pool(engine, work, run.part_rows),
    )
    try:
        yield Flow(scored, [deaths])
    finally:
        placement.sweep()


def read_units(run: Run, units: Sequence[Unit], task_limit: int | None = None) -> Dataset:
    """The raw rows of units of work, in blocks of about a part.

    `task_limit` is how many tasks read at a time at most; without it, as many as there is room for.
    """
    context = DataContext.get_current()
    # A task is what an actor's death costs, and the least that an actor gets: about a part, not 128 MiB of them.
    context.target_max_block_size = run.block_bytes
    context.execution_no_progress_timeout_s = _NO_PROGRESS_S
    context.enable_progress_bars = False  # ours shows responses and reasons, theirs blocks and operators
    source = CorpusSource(units, run.parts.end_seen, run.settings.corpus.max_record_bytes)
    return ray.data.read_datasource(source, override_num_blocks=len(units), concurrency=task_limit)


def step_settings(run: Run) -> StepSettings:
    """What the step that commits needs in its process."""
    return StepSettings(
        # The driver has waited for the first engine. Others may wait as long as the run lasts, which goes on without them.
        engine=run.settings.engine.model_copy(update={"placement_timeout_s": math.inf}),
        preparation=run.preparation,
        parts=run.parts,
        part_rows=run.part_rows,
        names={file.index: file.name for file in run.manifest.files},
        metadata={"assay": json.dumps(provenance(run.settings)), FILES_KEY: files_mark(run.manifest.files)},
    )


def _check_failures(done: Counts, most: float) -> None:
    if done.failed > 100 and done.failed > most * done.responses:
        raise RunStopped(f"{done.failed} of {done.responses} responses failed, which is more than --max-failed-fraction")


def run_stopped(error: Exception, engine_error: str = "") -> AssayError:
    """What ends a run by an error of a worker's: what can never work is no matter of going on."""
    never = _NEVER.search(str(error))
    return RunStopped(stop_reason(error, engine_error)) if never is None else _NEVER_WORKS[never[1]](never[2])


def stop_reason(error: Exception, engine_error: str = "") -> str:
    """The cause in a worker: an error of ours or of the storage, an engine's last words, or all that Ray says.

    Ray Data raises an error of its own from the one in a worker, and of that only its traceback arrives here.
    """
    traceback = str(error)
    told = _OURS.findall(traceback) or ([engine_error] if engine_error else _STORAGE.findall(traceback))
    return str(told[0] if told else error)
