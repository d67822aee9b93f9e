"""Samples for rows of a Ray Dataset in its workers: prompts in, one row per candidate out. Nothing is committed."""

import hashlib
import logging
import pickle
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa
import ray

from pipelines.data.formats import RowRequests
from pipelines.run.prepare.identity import open_score_store
from pipelines.run.prepare.policy_prompts import PromptPreparation, read_prompt_rows
from pipelines.run.prepare.score_requests import Preparation
from pipelines.run.sampling import policies
from pipelines.run.sampling.budget import CandidateBudget
from pipelines.run.sampling.policies import Engines
from pipelines.run.sampling.sample_step import CandidateSampler, PromptCandidates
from pipelines.settings.run_settings import DatasetSampleSettings
from pipelines.workflows.datasets.score_rows import ROW_ID, prepare_rows


def prepare_prompt_rows(block: pa.Table, prompt_preparation: PromptPreparation, batch_rows: int) -> Iterator[pa.Table]:
    """Add to a block of the dataset a column of prepared prompts (pickled) and one of row ids, a batch at a time."""

    def prepare(requests: Sequence[RowRequests], _: Preparation) -> pa.Array:
        return pa.array([pickle.dumps(row) for row in prompt_preparation.rows(requests)], pa.large_binary())

    return prepare_rows(block, prompt_preparation.preparation, batch_rows, prepare)


class RowSampleStep(CandidateSampler):
    """Ray Data's actor class. It owns its pools of engines, which end with it."""

    def __init__(self, prompt_preparation: PromptPreparation, settings: DatasetSampleSettings) -> None:
        writers, judges = policies.sizes(settings, writers=1)
        self._stack = ExitStack()  # never closed, but kept: Ray ends an actor's actors when it ends the actor
        engines = Engines(self._stack, settings, logging.getLogger(__name__).warning)
        self._source = engines.source(settings.policy, prompt_preparation.policy, writers)
        model = prompt_preparation.preparation.model
        pool = engines.judges(model, judges, open_score_store(settings.store, model, settings.engine))
        super().__init__(prompt_preparation.preparation, CandidateBudget(settings.draw), settings.policy.policy_seed, pool)
        self._holder = ray.get_runtime_context().get_actor_id()

    def __call__(self, block: pa.Table) -> pa.Table:
        """Sample a block; returns a row per candidate."""
        ids = block.column(ROW_ID).to_pylist()
        prompts = [prompt for prompt in read_prompt_rows(block) if prompt is not None]
        rows = [PromptCandidates(row_id, prompt) for row_id, prompt in zip(ids, prompts, strict=True)]
        work = f"{self._holder}-{hashlib.md5(''.join(ids).encode(), usedforsecurity=False).hexdigest()}"
        self.sample(work, rows, self._source)
        table, _ = self.table(block, rows)
        return table
