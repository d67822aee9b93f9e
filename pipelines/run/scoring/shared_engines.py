"""Engines that stay while runs of one model follow each other: members of an ensemble, or stages of a recipe.

Ray Data ends the actors of a dataset with it. These engines are actors of ours, and the only step of a run's dataset hands
them its blocks. For each run an engine has a `ScoreStep`, with the run's own folder, ledger and self-test: only the engine
is the same.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy

from actors.launch import placement
from actors.launch.start_engine import engine_identity
from actors.workers.engine_process import alive_nodes
from pipelines.data.corpus.units import Unit
from pipelines.run.runtime.engine_actors import Pool, pool
from pipelines.run.runtime.engine_pool import concurrent_calls, engines_with_room, ledger
from pipelines.run.runtime.session import ray_session
from pipelines.run.scoring.score_corpus import Pipeline, Run, StartPipeline, prepared_rows, share_files, step_settings
from pipelines.run.scoring.score_step import ScoreStep, StepSettings

_CPUS = 0.25  # the step that hands blocks over only waits

StepArguments = tuple[StepSettings, Any, Any]  # settings, files and ledger of a `ScoreStep`


@contextmanager
def shared_engines(*, with_vllm: bool) -> Iterator[StartPipeline]:
    """Starts pipelines of runs that follow each other, on the engines that the first starts.

    The engines end before a run of another `engine_identity`, with the block, after an error, and if one has lost its node:
    it might wait for a place for ever, and the next run's ledger wouldn't know of it.
    """
    # At most one pool, of the last run's engine: two models side by side may not fit on the GPUs.
    engines: dict[str | None, Pool] = {}
    ledgers: list[Any] = []  # that of the last run, which `last_run` ends
    with ray_session(with_vllm=with_vllm), ExitStack() as last_run, ExitStack() as stack:

        @contextmanager
        def scoring(run: Run, units: Sequence[Unit], notify: Callable[[str], None]) -> Iterator[Pipeline]:
            engine, work = run.settings.engine, run.settings.work
            identity = engine_identity(run.preparation.model, engine)
            is_lost = bool(ledgers) and bool(ray.get(ledgers.pop().engine_health.remote(alive_nodes())).lost)
            if identity not in engines or is_lost:
                engines.clear()
                stack.close()
                placement.wait_for_room(engine, run.preparation.model, notify)
                options, size = placement.actor_options(engine), engines_with_room(engine, work)
                engines[identity] = stack.enter_context(pool(SharedEngine, size=size, options=options))
            shared = engines[identity]
            last_run.close()
            deaths = last_run.enter_context(ledger(work))
            ledgers.append(deaths)
            arguments = (step_settings(run), share_files(run), deaths)
            for actor in shared.actors:  # all start now, beside reading, and not with their first block
                actor.begin.remote(arguments)
            calls = concurrent_calls(engine, run.part_rows)
            places = len(shared.actors) * calls
            # One process hands over for all engines: it only waits, and a queue of its own knows which has a free place.
            scored = prepared_rows(run, units).map_batches(
                HandOver,
                fn_constructor_args=(shared, calls, arguments),
                batch_size=None,
                batch_format="pyarrow",
                num_cpus=_CPUS,
                compute=ActorPoolStrategy(size=1, max_concurrent_calls_per_actor=places, enable_true_multi_threading=True),
            )
            try:
                yield Pipeline(scored, [deaths])
            except BaseException:
                engines.clear()
                stack.close()
                raise

        yield scoring


class SharedEngine:
    """The actor class of an engine, with the step of the run that it works for."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._step: ScoreStep | None = None
        self._ledger: Any = None

    def begin(self, arguments: StepArguments) -> None:
        self._step_of(arguments)

    def score(self, block: pa.Table, arguments: StepArguments) -> pa.Table:
        return self._step_of(arguments)(block)

    def _step_of(self, arguments: StepArguments) -> ScoreStep:
        """The step of a run, which may be another one than the last. The first of a process starts the engine."""
        settings, files, ledger = arguments
        with self._changing:
            # By its ledger, since a run that goes on after a loss has a new one.
            if self._step is None or ledger != self._ledger:
                engine = None if self._step is None else self._step.engine
                self._step = ScoreStep(settings, files, ledger, engine)
                self._ledger = ledger
            return self._step


class HandOver:
    """The step of Ray Data: gives each block to the engine that has had a free place for the longest."""

    def __init__(self, engines: Pool, calls: int, arguments: StepArguments) -> None:
        self._arguments = arguments
        self._places: SimpleQueue[Any] = SimpleQueue()
        for actor in engines.actors * calls:
            self._places.put(actor)

    def __call__(self, block: pa.Table) -> pa.Table:
        actor = self._places.get()  # Ray Data gives no more blocks at a time than there are places, so this doesn't wait
        try:
            report: pa.Table = ray.get(actor.score.remote(block, self._arguments))
            return report
        finally:
            self._places.put(actor)
