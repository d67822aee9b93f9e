"""The pipeline that scores rows of parts again: read and prepare (CPUs), score (actors with an engine), then what is wanted.

A part travels as one row, so that Ray Data can't cut it: what becomes of it is decided with all of its requests at once.
"""

import functools
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import ray

from actors.launch import placement
from actors.timeline import mark
from actors.workers.batch_actor import BatchActor
from pipelines.folders.run_folder.endpoint_notes import endpoint_notes
from pipelines.folders.run_folder.part import Part
from pipelines.run.prepare.score_requests import Outcome
from pipelines.run.runtime.engine_pool import engine_pool, ledger
from pipelines.run.scoring.score_corpus import Pipeline, Run, step_settings
from pipelines.run.scoring.score_step import StepSettings
from pipelines.workflows.rescoring.part_rows import PartWork

_THREADS = 16  # parts of a block that are scored concurrently
_WORK = "work"


class Rescoring(Protocol):
    """What is scored again of a part (`select`), and what becomes of it (`finish`). Small and picklable.

    `finish` gets the outcomes of each selected request and the name of vLLM's model runner, and returns the row of counts
    for the driver. An engine behind an address reads and writes the run's notes (batches that were answered, money that was
    spent) only if `uses_notes`: the folder's lease is held then.
    """

    uses_notes: ClassVar[bool]

    def select(self, settings: StepSettings, part: Part) -> PartWork: ...

    def finish(
        self, settings: StepSettings, work: PartWork, outcomes: Sequence[Sequence[Outcome]], runner: str
    ) -> dict[str, Any]: ...


class RescoreStep:
    """The actor class for Ray Data: holds a scorer, and finishes what it scores."""

    def __init__(self, settings: StepSettings, rescoring: Rescoring, ledger: Any) -> None:
        self._settings = settings
        self._rescoring = rescoring
        notes = endpoint_notes(settings.parts.folder) if rescoring.uses_notes else None
        self._actor = BatchActor(settings.preparation.model, settings.engine, ledger, notes=notes)

    def __call__(self, block: pa.Table) -> pa.Table:
        with ThreadPoolExecutor(_THREADS) as threads:
            works = [pickle.loads(blob.as_buffer()) for blob in block.column(_WORK)]
            return pa.Table.from_pylist(list(threads.map(self._rescore, works)))

    def _rescore(self, work: PartWork) -> dict[str, Any]:
        part = work.part
        # A name of its own: the ledger counts engines' deaths by it, and those of the first time are none of a retry.
        scores = self._actor.score(f"again-{part.place}", [request.request for request in work.requests])
        outcomes = [request.outcomes(results) for request, results in zip(work.requests, scores, strict=True)]
        return self._rescoring.finish(self._settings, work, outcomes, self._actor.runner)


@contextmanager
def rescoring_flow(
    run: Run, parts: Sequence[Part], rescoring: Rescoring, notify: Callable[[str], None]
) -> Iterator[Pipeline]:
    """The Ray Data pipeline over some parts of a run."""
    mark("pipeline of Ray Data")
    placement.wait_for_room(run.settings.engine, run.preparation.model, notify)
    settings = step_settings(run)
    # A block each, as a part is selected and prepared by one task: many in one block would keep all but one CPU idle.
    names = ray.data.from_items([{"part": part.name} for part in parts], override_num_blocks=len(parts))
    selected = names.map_batches(
        functools.partial(_select, settings=settings, rescoring=rescoring), batch_size=None, batch_format="pyarrow"
    )
    try:
        with ledger(run.settings.work) as deaths:
            rescored = selected.map_batches_internal(
                RescoreStep,
                fn_constructor_args=(settings, rescoring, deaths),
                batch_size=None,
                batch_format="pyarrow",
                **engine_pool(run.settings.engine, run.settings.work, run.part_rows),
            )
            yield Pipeline(rescored, [deaths])
    finally:
        if run.settings.engine.pipeline_parallel > 1:  # only engines over nodes leave groups
            placement.sweep()


def _select(block: pa.Table, settings: StepSettings, rescoring: Rescoring) -> pa.Table:
    parts = filter(None, map(Part.parse, block.column("part").to_pylist()))
    works = [pickle.dumps(rescoring.select(settings, part)) for part in parts]
    return pa.table({_WORK: pa.array(works, pa.large_binary())})
