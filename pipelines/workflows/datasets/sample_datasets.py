"""Sampling from Ray Datasets, and exports of scored ones, as lazy steps of a caller's pipeline.

Errors in workers are raised as described in `pipelines.workflows.datasets.score_datasets`.
"""

import functools
import logging
import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, Dataset

from actors.errors import SettingsError, SourceError
from pipelines.data.formats import RowRequests
from pipelines.folders.run_folder.columns import PROMPT_HASH, RESPONSE, ROW
from pipelines.folders.scored_corpus.candidates import Candidate
from pipelines.folders.scored_corpus.expressions import Condition
from pipelines.folders.scored_corpus.prompt_groups import group_by_prompt
from pipelines.folders.scored_corpus.read_back import Reader
from pipelines.results.exports import export_commands, export_job
from pipelines.results.exports.export_job import ExportJob
from pipelines.run.prepare.identity import open_score_store
from pipelines.run.prepare.policy_prompts import PromptPreparation, read_prompt_rows
from pipelines.run.prepare.score_requests import Preparation
from pipelines.run.sampling import policies
from pipelines.run.sampling.budget import CandidateBudget
from pipelines.run.sampling.sample_step import CandidateSampler, PromptCandidates
from pipelines.settings.export_settings import ChooseSettings, ExportSettings, OutputSettings, PairSettings
from pipelines.settings.options import build
from pipelines.settings.run_settings import DatasetSampleSettings
from pipelines.workflows.datasets.blocks import conform, known_schema, reader_of, schema_of, with_plain_blocks, with_types_of
from pipelines.workflows.datasets.score_datasets import prepare_dataset, register_scored
from pipelines.workflows.datasets.score_rows import ROW_ID, prepare_rows, work_of

_NUMBER = re.compile(r"(\d+)")
_FOLDERS = {"scored": "", "output": ""}  # required by the settings of the commands, and not used here


def sample(dataset: Dataset, *, policy: str, judge: str, **options: Any) -> Dataset:
    """Generate and judge candidates for the prompts in a dataset: one row per candidate, with all input and Assay's columns.

    Lazy, except that the first rows are read. `row` is the MD5 of the input row's content, and seeds are derived from it, so
    equal rows get equal candidates. Raises a `UserError` if rows, settings or a model are unusable.
    """
    settings = build(DatasetSampleSettings, {"policy": policy, "model": judge, **options})
    policies.check(settings, settings.draw.n)
    if lacking := policies.lacking_room(settings):
        raise SettingsError(f"a dataset needs {lacking}; into a folder they work in turns")
    dataset, preparation = prepare_dataset(dataset, settings, unanswered=True)
    policies.check_judge(preparation.model, settings.draw)
    writer, system = policies.policy_of(settings.policy), settings.policy.policy_system
    policies.check_reasoning(writer, preparation.model, settings.render)
    prompt_preparation = PromptPreparation(preparation, writer, system)
    sampled = dataset.map_batches(
        functools.partial(_prepare_prompt_rows, prompt_preparation=prompt_preparation, batch_rows=settings.batch_rows),
        batch_size=None,
        batch_format="pyarrow",
    ).map_batches(
        RowSampleStep,
        fn_constructor_args=(prompt_preparation, settings),
        batch_size=settings.batch_rows,
        batch_format="pyarrow",
        num_cpus=0.25,
        # One process waits for all engines, 16 blocks at a time; the engines are actors of its own.
        compute=ActorPoolStrategy(size=1, max_concurrent_calls_per_actor=16, enable_true_multi_threading=True),
    )
    return register_scored(sampled, preparation, settings.engine, system)


def _prepare_prompt_rows(block: pa.Table, prompt_preparation: PromptPreparation, batch_rows: int) -> Iterator[pa.Table]:
    def prepare(requests: Sequence[RowRequests], _: Preparation) -> pa.Array:
        return pa.array([pickle.dumps(row) for row in prompt_preparation.rows(requests)], pa.large_binary())

    return prepare_rows(block, prompt_preparation.preparation, batch_rows, prepare)


class RowSampleStep(CandidateSampler):
    """Ray Data's actor class. It owns its pools of engines, which end with it."""

    def __init__(self, prompt_preparation: PromptPreparation, settings: DatasetSampleSettings) -> None:
        writers, judges = policies.sizes(settings, writers=1)
        self._stack = ExitStack()  # never closed, but kept: Ray ends an actor's actors when it ends the actor
        engines = policies.Engines(self._stack, settings, logging.getLogger(__name__).warning)
        self._source = engines.source(settings.policy, prompt_preparation.policy, writers)
        model = prompt_preparation.preparation.model
        pool = engines.judges(model, judges, open_score_store(settings.store, model, settings.engine))
        super().__init__(prompt_preparation.preparation, CandidateBudget(settings.draw), settings.policy.policy_seed, pool)
        self._holder = ray.get_runtime_context().get_actor_id()  # see `RowStep`

    def __call__(self, block: pa.Table) -> pa.Table:
        ids = block.column(ROW_ID).to_pylist()
        prompts = [prompt for prompt in read_prompt_rows(block) if prompt is not None]
        rows = [PromptCandidates(row_id, prompt) for row_id, prompt in zip(ids, prompts, strict=True)]
        self.sample(work_of(self._holder, ids), rows, self._source)
        table, _ = self.table(block, rows)
        return table


def choose(
    scored: Dataset, strategy: str, *, of: Dataset | None = None, partitions: int | None = None, **options: Any
) -> Dataset:
    """The chosen candidates of each prompt, as conversations; `strategy` and options are those of `assay choose`.

    `of` is the dataset of `score`, `sample` or `read_scored` from which this one was derived, if other steps came between.
    Ray groups rows in a shuffle with `partitions` partitions; its default, 200, is meant for large data. Raises a
    `UserError`.
    """
    job = export_commands.choosing_job(build(ChooseSettings, {**_FOLDERS, "strategy": strategy, **_check_options(options)}))
    return _export_rows(scored, job, of, partitions)


def pairs(
    scored: Dataset, trainer: str = "trl", *, of: Dataset | None = None, partitions: int | None = None, **options: Any
) -> Dataset:
    """Preference pairs in a trainer's format; options are those of `assay pairs`. Otherwise as `choose`."""
    job = export_commands.pairing_job(build(PairSettings, {**_FOLDERS, "trainer": trainer, **_check_options(options)}))
    return _export_rows(scored, job, of, partitions)


def export(
    scored: Dataset, trainer: str, *, of: Dataset | None = None, partitions: int | None = None, **options: Any
) -> Dataset:
    """Rows for a trainer; options are those of `assay export`. Otherwise as `choose`."""
    job = export_commands.exporting_job(build(ExportSettings, {**_FOLDERS, "trainer": trainer, **_check_options(options)}))
    return _export_rows(scored, job, of, partitions)


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options, checked: those about folders mean nothing for a dataset. Raises `SettingsError`."""
    if of_folders := sorted(options.keys() & ({*OutputSettings.model_fields, *_FOLDERS} - {"where"})):
        raise SettingsError(f"{', '.join(of_folders)}: a dataset is no folder, and has no use for it")
    return options


def _export_rows(scored: Dataset, job: ExportJob, of: Dataset | None, partitions: int | None) -> Dataset:
    reader = reader_of(scored if of is None else of)
    if reader is None:
        raise SourceError(
            "how the rows of this dataset were read isn't known: it wasn't made by `score`, `sample` or `read_scored`, or "
            "`.materialize()` or steps of your own came after them; give of=DATASET, the one that it was made of"
        )
    if reader.made_up:
        export_job.refuse_made_up(job)
    export_job.check_comparable(job, reader.columns)
    reader = export_job.carrying(job, reader, by_column=True)
    export_job.check_scores(job, reader.columns)
    # Types as planned, where the steps between left a column of nothing but null, which has none of its own.
    planned = known_schema(scored if of is None else of) or pa.schema([])
    scored = with_plain_blocks(scored)
    schema = with_types_of(planned, schema_of(scored))
    if job.settings.where is not None:
        reader = replace(reader, where=Condition.check(job.settings.where, schema))
    key = reader.columns.prefix + (PROMPT_HASH if job.per == "prompt" else ROW)
    make_rows: Any = _make_rows
    exported: Dataset = scored.groupby(key, num_partitions=partitions).map_groups(
        make_rows, fn_kwargs={"of": _Group(job, reader, schema)}, batch_format="pyarrow"
    )
    return exported


def _make_rows(group: pa.Table, of: "_Group") -> pa.Table:
    return of.rows(group)


@dataclass(frozen=True)
class _Group:
    """Makes the rows of a job from the responses of one group, which Ray delivers in any order."""

    job: ExportJob
    reader: Reader
    schema: pa.Schema

    def rows(self, group: pa.Table) -> pa.Table:
        group = conform(group, self.schema)
        # In a fixed order, as that decides ties and seeds, and as the reader needs the responses of a row side by side.
        order = sorted(range(len(group)), key=self._sort_keys(group).__getitem__)
        rows = self.reader.candidates([group.take(pa.array(order, pa.int64())).select(self.reader.reads)])
        exported = [row for candidates in self._candidates(rows) for row in self.job.maker(candidates).rows]
        names = dict.fromkeys(name for row in exported for name in row)  # Arrow takes the columns from the first row alone
        # Own fields have the types of their columns: by the values of a group alone, those of two may not go together.
        columns, carried = self.reader.columns.carried, self.reader.carried
        kinds = {name: columns.field(name).type if name in carried else None for name in names}
        return pa.table({name: pa.array([row.get(name) for row in exported], kind) for name, kind in kinds.items()})

    def _sort_keys(self, group: pa.Table) -> list[tuple[Any, ...]]:
        """Keys by row, then by response name with its numbers in numerical order: draft[2] before draft[10]."""
        rows, names = (group.column(self.reader.columns.prefix + name).to_pylist() for name in (ROW, RESPONSE))
        parts = ([int(part) if part.isdigit() else part for part in _NUMBER.split(name)] for name in names)
        return [(row, part) for row, part in zip(rows, parts, strict=True)]

    def _candidates(self, rows: Iterator[Any]) -> Iterator[list[Candidate]]:
        groups = rows if self.job.per == "conversation" else group_by_prompt(rows)
        for group in groups:
            if candidates := [response for response in group if isinstance(response, Candidate)]:
                yield candidates
