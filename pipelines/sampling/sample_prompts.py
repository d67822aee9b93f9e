"""Rejection sampling: prompts in, a policy's candidates with a judge's scores out.

1. Resolve the run: which rows are prompts, the policy, the judge; and open the output folder with it.
2. Start engines of both, as many as the GPUs carry. If they don't carry both at once, a first pass generates all candidates,
   and a second one judges them.
3. For each missing range of rows: read, render for the policy, generate, judge and commit, part by part.
4. Audit the parts, add up the summary, and close the manifest.

The folder is a scored corpus like any other, with a row for each candidate, from which `filter`, `choose` and `pairs` read.
A committed candidate is never generated again. After a crash the missing ones are generated with the same seeds: the same
texts, except where the last bits of a probability, which depend on the rest of the batch, decide a token.
"""

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

from ray.data import ActorPoolStrategy, Dataset

from actors.errors import SettingsError
from actors.launch.placement import cluster_gpus, engine_gpus
from actors.records import Reason
from actors.scorers.policy import Policy
from pipelines import storage
from pipelines.corpus.units import Unit
from pipelines.exports.export_commands import jobs_of_run
from pipelines.exports.export_job import ExportJob
from pipelines.prepare import resolve_run
from pipelines.prepare.identity import manifest_of
from pipelines.prepare.policy_prompts import PromptPreparation, prepare_prompts
from pipelines.prepare.preview import SAY_REASONING
from pipelines.run_folder.columns import CANDIDATE, CANDIDATE_TOKENS, RESPONSE, REWARD, ROW
from pipelines.run_folder.dataset_card import write_scored_card
from pipelines.run_folder.earlier_run import FIRST_PASS
from pipelines.run_folder.parts import Parts
from pipelines.run_logging.logged_progress import check_loggers
from pipelines.runtime.progress import PassedOn, Progress, Silent
from pipelines.runtime.session import ray_session
from pipelines.sampling import policies
from pipelines.sampling.budget import CandidateBudget
from pipelines.sampling.engine_actors import Pool
from pipelines.sampling.generate import CandidateSource, FirstPassCandidates
from pipelines.sampling.policies import Engines
from pipelines.sampling.sample_step import SampleStep, SampleStepSettings, Usage
from pipelines.scored_corpus.part_files import drop_unreadable
from pipelines.scored_corpus.summary import Summary, connected
from pipelines.scoring.score_corpus import Flow, Run, carry_out, open_run, read_units, share_files, step_settings
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import SampleSettings
from pipelines.storage.lease import lease

__all__ = ["SampleSummary", "sample"]


@dataclass(frozen=True)
class SampleSummary:
    """The result of a run, over its candidates and over its prompts.

    `drawn` candidates were generated of at most `possible`, with `tokens` tokens together. `mean_reward` is over all scored
    candidates, `mean_best` over the best one of each prompt. `usage` counts prompt tokens and retries of this process's run
    alone, not of the run that it resumed; so do `causes`: what an endpoint said where it gave no candidate.
    """

    scored: Summary
    prompts: int
    drawn: int
    possible: int
    tokens: int
    mean_reward: float | None
    mean_best: float | None
    usage: Usage
    causes: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """For the manifest and for `--json`: the fields of a scored corpus, and those of sampling under `sampling`."""
        omitted = ("scored", "usage", *(() if self.causes else ("causes",)))
        sampling = {name: value for name, value in asdict(self).items() if name not in omitted}
        return {**self.scored.as_json(), "sampling": {**sampling, "usage": self.usage._asdict()}}


def sampling_identity(settings: SampleSettings, policy: Policy | None) -> dict[str, Any]:
    """All that determines the candidates, for the run's identity."""
    written_by = policies.policy_identity(settings.policy, policy, policies.policy_engine(settings))
    return {"policy": written_by, "draw": settings.draw.model_dump(mode="json")}


def sample(settings: SampleSettings, progress: Progress | None = None, jobs: Sequence[ExportJob] = ()) -> SampleSummary:
    """Generate answers to prompts and judge them into a folder, or resume an earlier run with the same settings.

    `jobs`, and the export of kept candidates if the settings ask for one, run on each part after its commit. Raises a
    `UserError` if the run can't start as it is, `RunStopped` if it ended early and can go on, and `AuditError` if the parts
    don't add up to the input.
    """
    jobs = [*jobs_of_run(settings), *jobs]
    counting = UsageCounter(progress or Silent())
    check(settings)
    check_loggers(settings.log, settings.output)
    policy = policies.policy_of(settings.policy)
    plan = resolve_run.resolve(settings, unanswered=True, notify=counting.noted)
    policies.check_judge(plan.preparation.model, settings.draw)
    policies.check_reasoning(policy, plan.preparation.model, settings.render)
    counting.planned(plan.shape_found)
    counting.is_reasoning_set = plan.preparation.model.reasoning_by(settings.render) is not None
    with lease(settings.output, counting.noted, settings.work.storage_patience_s):
        run = open_run(settings, plan, manifest_of(plan, settings, sampling_identity(settings, policy)))
        if settings.overwrite:
            _delete_first_pass(settings.output)
        write_recipe(settings.output, sample=settings)
        write_scored_card(settings.output, "sample", run.manifest)
        preparation = PromptPreparation(
            run.preparation, policy, settings.policy.policy_system, settings.render.control_tokens
        )
        work = _Sampling(preparation, settings)
        if run.missing():
            counting.noted(_kept_note(run.part_rows))
        # `carry_out` drops unreadable parts too, but too late: what they held is missing, and may need a first pass.
        if not run.missing():
            drop_unreadable(run.parts, counting.noted)
        with ray_session(with_vllm=settings.engine.is_vllm) if run.missing() else nullcontext():
            run.parts.repair()
            if run.missing() and _goes_in_turns(run, settings, counting):
                _generate_first(run, work, counting)
            summary = carry_out(run, work.flow, counting, jobs)
        # Only now: until every candidate is judged and committed, the first pass is the only copy of the others.
        _delete_first_pass(settings.output)
        sampled = _summarise(run, summary, settings, counting)
        replace(run.manifest, summary=sampled.as_json()).write(settings.output)
        return sampled


def _kept_note(part_rows: int) -> str:
    prompts = f"{part_rows} prompts" if part_rows > 1 else "a prompt"
    return (
        f"candidates are kept by parts of up to {prompts} (--part-rows), and a kill loses those in work; "
        "--policy-max-in-flight bounds how many are generated at once, so that parts are done one after another"
    )


def check(settings: SampleSettings) -> None:
    """Raise `SettingsError` if settings contradict each other."""
    policies.check(settings, settings.draw.n)
    if settings.in_turns and settings.draw.adaptive:
        raise SettingsError(
            "--enough and --min-gain need rewards while candidates are generated, so they don't go with --in-turns"
        )


def _goes_in_turns(run: Run, settings: SampleSettings, progress: Progress) -> bool:
    """Whether all candidates are generated before any is judged. A first pass that was begun is resumed in any case."""
    if _first_pass(run) is None:
        return _in_turns(settings)
    # Also where both would fit by now, on a larger cluster: what the first pass has generated would be lost.
    progress.noted("resuming a run that generates all candidates first and judges them afterwards")
    return True


def _in_turns(settings: SampleSettings) -> bool:
    """Whether the policy's and the judge's engines don't fit on the GPUs together, or --in-turns is set."""
    if settings.in_turns or settings.policy.is_endpoint or settings.engine.autoscaled:
        return settings.in_turns
    judge, policy, gpus = (
        engine_gpus(settings.engine),
        engine_gpus(policies.policy_engine(settings)),
        cluster_gpus(),
    )
    if judge + policy <= gpus:
        return False
    if settings.draw.adaptive:
        raise SettingsError(
            f"--enough and --min-gain need the policy ({policy} GPUs) and the judge ({judge}) side by side, and the cluster "
            f"has {gpus} GPUs"
        )
    return True


@dataclass(frozen=True)
class _Sampling:
    """The flows of a run: pools of engines, and the step that calls them and commits."""

    preparation: PromptPreparation
    settings: SampleSettings

    @contextmanager
    def flow(self, run: Run, units: Sequence[Unit], note: Callable[[str], None]) -> Iterator[Flow]:
        """Generate and judge, or judge the candidates of a first pass."""
        settings, first = self.settings, _first_pass(run)
        writers, judges = policies.sizes(settings, writers=0 if first else 1)
        with ExitStack() as stack:
            engines = Engines(stack, settings, note)
            source: CandidateSource | FirstPassCandidates = (
                FirstPassCandidates(first, settings.prefix)
                if first
                else engines.source(settings.policy, self.preparation.policy, writers)
            )
            judge = engines.judges(run.preparation.model, judges, run.store)
            yield Flow(self._dataset(run, units, source, judge), engines.ledgers, engines.endpoint_ledgers)

    @contextmanager
    def generation_flow(self, run: Run, units: Sequence[Unit], note: Callable[[str], None]) -> Iterator[Flow]:
        """Generate alone: the candidates are committed unjudged."""
        writers, _ = policies.sizes(self.settings, writers=1, with_judge=False)
        with ExitStack() as stack:
            engines = Engines(stack, self.settings, note)
            source = engines.source(self.settings.policy, self.preparation.policy, writers)
            yield Flow(self._dataset(run, units, source, None), engines.ledgers, engines.endpoint_ledgers)

    def _dataset(
        self, run: Run, units: Sequence[Unit], source: CandidateSource | FirstPassCandidates, judges: Pool | None
    ) -> Dataset:
        settings = self.settings
        step = SampleStepSettings(
            step_settings(run), CandidateBudget(settings.draw), settings.policy.policy_seed, source, judges
        )
        return step_dataset(run, units, self.preparation, SampleStep, step)


def step_dataset(run: Run, units: Sequence[Unit], preparation: PromptPreparation, step: type, settings: Any) -> Dataset:
    """The dataset of a run: read rows, prepare prompts, and `step`, which calls the pools and holds no engine itself."""
    # The steps only wait for pools: 0.25 CPU each, 16 blocks at a time, and `batch_size=None` leaves blocks as they were
    # read.
    steps = max(1, cluster_gpus() // 8)  # with 16 calls each, one keeps the engines of a node of 8 GPUs busy
    prompts = read_units(run, units, functools.partial(prepare_prompts, preparation=preparation))
    return prompts.map_batches(
        step,
        fn_constructor_args=(settings, share_files(run)),
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=0.25,
        compute=ActorPoolStrategy(size=steps, max_concurrent_calls_per_actor=16, enable_true_multi_threading=True),
    )


def _generate_first(run: Run, work: _Sampling, progress: Progress) -> None:
    """Run the first pass of two: the policy's engines alone, which commit candidates to a folder inside the output.

    Rows that are judged already, by an earlier run, aren't generated again: `later` is what says so.
    """
    folder = storage.folder(run.settings.output).sub(FIRST_PASS).path
    # The same run id and lease as the run itself: a first pass of other settings isn't taken for its own.
    parts = Parts(folder, run.parts.run, run.parts.ticket)
    first = replace(run, settings=run.settings.model_copy(update={"output": folder}), parts=parts, later=run.parts)
    first.manifest.write(folder)
    first.parts.create()
    first.parts.repair()
    if not first.missing():  # `carry_out` would check this, but isn't called when nothing is missing
        drop_unreadable(first.parts, progress.noted)
    if first.missing():
        carry_out(first, work.generation_flow, progress)


def _first_pass(run: Run) -> Parts | None:
    """The parts of a first pass, if one was begun."""
    folder = storage.folder(run.parts.folder).sub(FIRST_PASS)
    return None if folder.is_empty() else Parts(folder.path, run.parts.run)


def _delete_first_pass(output: str) -> None:
    storage.folder(output).sub(FIRST_PASS).delete_all()


def _summarise(run: Run, summary: Summary, settings: SampleSettings, counting: "UsageCounter") -> SampleSummary:
    prefix, outcome = settings.prefix, None
    if summary.responses:  # no part has rows otherwise, and there is nothing to connect to
        with connected(run.parts, run.manifest.columns, [ROW, REWARD, RESPONSE, CANDIDATE_TOKENS]) as connection:
            outcome = connection.execute(
                f"""
                with drawn as materialized (
                    select "{prefix}{ROW}" as row, "{prefix}{REWARD}" as reward, "{prefix}{CANDIDATE_TOKENS}" as tokens
                    from parts where "{prefix}{RESPONSE}" like '{CANDIDATE}[%'
                ), best as (select max(reward) as best from drawn group by row)
                select (select count(distinct row) from drawn), (select count(*) from drawn),
                    (select sum(tokens) from drawn), (select avg(reward) from drawn), (select avg(best) from best)
                """
            ).fetchone()
    prompts, candidates, tokens, mean, best = outcome or (0, 0, 0, None, None)
    possible = prompts * settings.draw.n
    used, causes = counting.usage, dict(counting.causes.most_common())
    return SampleSummary(summary, prompts, candidates, possible, int(tokens or 0), mean, best, used, causes)


class UsageCounter(PassedOn):
    """Adds up prompt tokens, and stops a run whose policy turns out to reason while nothing says what to do with that."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.usage = Usage()
        self.causes: Counter[str] = Counter()
        self.is_reasoning_set = False
        """Whether the settings or the judge's card say what to do with candidates that hold reasoning."""

    def part_done(self, part: Mapping[str, Any]) -> None:
        """See `Progress`. Raises `SettingsError` if over half of a part reasons, and nothing says what to do."""
        self.usage += Usage(**{name: part[name] for name in Usage._fields})
        self.causes.update(json.loads(part["causes"]))
        reasoned = json.loads(part["reasons"]).get(Reason.REASONING, 0)
        responses = part["scored"] + part["rejected"] + part["failed"]
        # Over half, since a candidate that only quotes a mark may look like reasoning; and after the first part, not
        # hours later.
        if not self.is_reasoning_set and 2 * reasoned > responses:
            raise SettingsError(
                f"{reasoned} of {responses} candidates begin with reasoning. {SAY_REASONING}; --overwrite "
                "deletes what was drawn"
            )
        super().part_done(part)
