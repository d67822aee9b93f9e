"""Rejection sampling: prompts in, candidates of a policy and what a judge makes of them out.

1. Settle the plan: which rows are prompts, the policy, the judge; and open the output folder with it.
2. Start an engine of each, or as many as the GPUs carry. Where they carry only one, all is drawn first, and judged then.
3. While something is missing: read it, render it for the policy, draw, judge and commit, part by part.
4. Audit the parts, sum them up, and close the manifest.

The folder is a scored corpus like any other, with a row for each candidate: filters, choices and pairs are made of it. What
is committed is never drawn again. What isn't is drawn with the same seeds: the same text, but for the last bits of a
probability, which depend on what else is in the batch.
"""

import functools
import json
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
from pipelines.corpus.corpus_files import Unit
from pipelines.exports.export_commands import jobs_of_run
from pipelines.exports.export_job import ExportJob
from pipelines.prepare import resolve_run
from pipelines.prepare.identity import manifest_of
from pipelines.prepare.policy_prompts import PromptPreparation, prepare_prompts
from pipelines.runtime.progress import PassedOn, Progress, Silent
from pipelines.runtime.session import ray_session
from pipelines.sampling import policies
from pipelines.sampling.budget import CandidateBudget
from pipelines.sampling.engine_actors import Pool
from pipelines.sampling.generate import Drawer, FromParts
from pipelines.sampling.policies import Engines
from pipelines.sampling.sample_step import SampleStep, SampleStepSettings, Usage
from pipelines.scored_corpus.columns import CANDIDATE, CANDIDATE_TOKENS, RESPONSE, REWARD, ROW
from pipelines.scored_corpus.earlier_run import FIRST_PASS
from pipelines.scored_corpus.part_files import drop_unreadable
from pipelines.scored_corpus.parts import Parts
from pipelines.scored_corpus.summary import Summary, connected
from pipelines.scoring.score_corpus import Flow, Run, carry_out, open_run, read_units, step_settings
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import SampleSettings
from pipelines.storage.lease import lease

__all__ = ["SampleSummary", "sample"]


@dataclass(frozen=True)
class SampleSummary:
    """What came of a run: of all candidates, and of the prompts.

    `drawn` of at most `possible` candidates were drawn, of so many `tokens`. `mean_reward` is that of all that were scored,
    `mean_best` that of the best of each prompt. `usage` counts prompt tokens of this run alone, not of what it went on with.
    """

    scored: Summary
    prompts: int
    drawn: int
    possible: int
    tokens: int
    mean_reward: float | None
    mean_best: float | None
    usage: Usage

    def as_json(self) -> dict[str, Any]:
        """For the manifest and for `--json`: as `score` tells of a corpus, and the rest beside it."""
        own = {name: value for name, value in asdict(self).items() if name not in ("scored", "usage")}
        return {**self.scored.as_json(), "sampling": {**own, "usage": self.usage._asdict()}}


def sampling_identity(settings: SampleSettings, policy: Policy | None) -> dict[str, Any]:
    """All that decides what is drawn, for a run's identity."""
    written_by = policies.policy_identity(settings.policy, policy, policies.policy_engine(settings))
    return {"policy": written_by, "draw": settings.draw.model_dump(mode="json")}


def sample(settings: SampleSettings, progress: Progress | None = None, jobs: Sequence[ExportJob] = ()) -> SampleSummary:
    """Answer prompts and judge the answers, into a folder, or go on where an earlier run of the same settings ended.

    `jobs` are done with each part as it comes, as is what the settings say of keeping candidates. Raises a `UserError` if
    the run can't start as it is, `RunStopped` if it ended early and can go on, and `AuditError` if what was written doesn't
    add up to the input.
    """
    jobs = [*jobs_of_run(settings), *jobs]
    counting = Counting(progress or Silent())
    check(settings)
    policy = policies.policy_of(settings.policy)
    plan = resolve_run.resolve(settings, unanswered=True)
    policies.check_judge(plan.preparation.model, settings.draw)
    policies.check_reasoning(policy, plan.preparation.model, settings.render)
    counting.planned(plan.shape_found)
    counting.reasoning_said = plan.preparation.model.reasoning_by(settings.render) is not None
    with lease(settings.output):
        run = open_run(settings, plan, manifest_of(plan, settings, sampling_identity(settings, policy)))
        if settings.overwrite:
            _delete_drawn(settings.output)
        write_recipe(settings.output, sample=settings)
        asking = PromptPreparation(run.preparation, policy, settings.policy.policy_system, settings.render.control_tokens)
        work = _Sampling(asking, settings)
        if not run.missing():  # as `carry_out` looks, but before it is known whether there is anything to draw
            drop_unreadable(run.parts, counting.noted)
        with ray_session(with_vllm=settings.engine.is_vllm) if run.missing() else nullcontext():
            run.parts.repair()
            if run.missing() and _goes_in_turns(run, settings, counting):
                _draw_first(run, work, counting)
            summary = carry_out(run, work.judging, counting, jobs)
        _delete_drawn(settings.output)
        found = _summed_up(run, summary, settings, counting.usage)
        replace(run.manifest, summary=found.as_json()).write(settings.output)
        return found


def check(settings: SampleSettings) -> None:
    """Raise `SettingsError` unless what is asked for goes together."""
    if settings.policy.policy is None:
        raise SettingsError("there is no --policy; candidates that are in the rows already are judged by `assay score`")
    policies.check(settings, settings.draw.n)
    if settings.in_turns and settings.draw.adaptive:
        raise SettingsError("--enough and --min-gain need the rewards while candidates are drawn: not with --in-turns")


def _goes_in_turns(run: Run, settings: SampleSettings, progress: Progress) -> bool:
    """Whether all is drawn before it is judged. A first pass that was begun is gone on with, whatever could be done now."""
    if _first_pass(run) is None:
        return _in_turns(settings)
    progress.noted("an earlier time began to draw first and to judge then, and this goes on with that")
    return True


def _in_turns(settings: SampleSettings) -> bool:
    """Whether the policy and the judge can't be there at the same time, or aren't to."""
    if settings.in_turns or settings.policy.is_endpoint or settings.engine.autoscaled:
        return settings.in_turns
    judge, policy, there = (
        engine_gpus(settings.engine),
        engine_gpus(policies.policy_engine(settings)),
        cluster_gpus(),
    )
    if judge + policy <= there:
        return False
    if settings.draw.adaptive:
        raise SettingsError(
            f"--enough and --min-gain need the policy ({policy} GPUs) and the judge ({judge}) side by side, and the cluster "
            f"has {there} GPUs"
        )
    return True


@dataclass(frozen=True)
class _Sampling:
    """What does the work of a run: pools of engines, and the step that asks them and commits."""

    asking: PromptPreparation
    settings: SampleSettings

    @contextmanager
    def judging(self, run: Run, units: Sequence[Unit], noted: Callable[[str], None]) -> Iterator[Flow]:
        """Draw and judge, or judge what a first pass has drawn."""
        settings, first = self.settings, _first_pass(run)
        writers, judges = policies.sizes(settings, writers=0 if first else 1)
        with ExitStack() as stack:
            engines = Engines(stack, settings, noted)
            own = (settings.policy, self.asking.policy, writers)
            drawer = FromParts(first, settings.prefix) if first else engines.drawer(*own)
            judge = engines.judges(run.preparation.model, judges)
            yield Flow(self._dataset(run, units, drawer, judge), engines.ledgers)

    @contextmanager
    def drawing(self, run: Run, units: Sequence[Unit], noted: Callable[[str], None]) -> Iterator[Flow]:
        """Draw, and leave judging for later."""
        writers, _ = policies.sizes(self.settings, writers=1, judged=False)
        with ExitStack() as stack:
            engines = Engines(stack, self.settings, noted)
            drawer = engines.drawer(self.settings.policy, self.asking.policy, writers)
            yield Flow(self._dataset(run, units, drawer, None), engines.ledgers)

    def _dataset(self, run: Run, units: Sequence[Unit], drawer: Drawer | FromParts, judges: Pool | None) -> Dataset:
        settings = self.settings
        step = SampleStepSettings(
            step_settings(run), CandidateBudget(settings.draw), settings.policy.policy_seed, drawer, judges
        )
        return stepped(run, units, self.asking, SampleStep, step)


def stepped(run: Run, units: Sequence[Unit], asking: PromptPreparation, step: type, settings: Any) -> Dataset:
    """Read, ask, and what a step makes of it: a step asks the pools, and holds no engine itself."""
    steps = max(1, cluster_gpus() // 8)  # each keeps the engines of a node busy
    asked = read_units(run, units).map_batches(
        functools.partial(prepare_prompts, asking=asking), batch_size=None, batch_format="pyarrow"
    )
    return asked.map_batches(
        step,
        fn_constructor_args=(settings,),
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=0.25,
        compute=ActorPoolStrategy(size=steps, max_concurrent_calls_per_actor=16, enable_true_multi_threading=True),
    )


def _draw_first(run: Run, work: _Sampling, progress: Progress) -> None:
    """The first pass of two: the policy's engines alone, and its candidates in a folder of their own.

    What is judged already isn't drawn again: of an earlier time, or in the files that others are appended to.
    """
    folder = storage.folder(run.settings.output).sub(FIRST_PASS).path
    drawn = Parts(folder, run.parts.run, run.parts.ticket)
    first = replace(run, settings=run.settings.model_copy(update={"output": folder}), parts=drawn, later=run.parts)
    first.manifest.write(folder)
    first.parts.create()
    first.parts.repair()
    if not first.missing():  # as `carry_out` looks, which isn't asked then
        drop_unreadable(first.parts, progress.noted)
    if first.missing():
        carry_out(first, work.drawing, progress)


def _first_pass(run: Run) -> Parts | None:
    """What a first pass has drawn, if there was one."""
    folder = storage.folder(run.parts.folder).sub(FIRST_PASS)
    return None if folder.is_empty() else Parts(folder.path, run.parts.run)


def _delete_drawn(output: str) -> None:
    storage.folder(output).sub(FIRST_PASS).delete_all()


def _summed_up(run: Run, summary: Summary, settings: SampleSettings, usage: Usage) -> SampleSummary:
    prefix, outcome = settings.prefix, None
    if summary.responses:
        with connected(run.parts, run.manifest.columns.ours) as connection:
            outcome = connection.execute(
                f"""
                with drawn as (
                    select "{prefix}{ROW}" as row, "{prefix}{REWARD}" as reward, "{prefix}{CANDIDATE_TOKENS}" as tokens
                    from parts where "{prefix}{RESPONSE}" like '{CANDIDATE}[%'
                ), best as (select max(reward) as best from drawn group by row)
                select (select count(distinct row) from drawn), (select count(*) from drawn),
                    (select sum(tokens) from drawn), (select avg(reward) from drawn), (select avg(best) from best)
                """
            ).fetchone()
    prompts, drawn, tokens, mean, best = outcome or (0, 0, 0, None, None)
    return SampleSummary(summary, prompts, drawn, prompts * settings.draw.n, int(tokens or 0), mean, best, usage)


class Counting(PassedOn):
    """Counts prompt tokens."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.usage = Usage()
        self.reasoning_said = False
        """Whether somebody says what becomes of candidates that hold reasoning."""

    def part_done(self, part: Mapping[str, Any]) -> None:
        """See `Progress`. Raises `SettingsError` if the policy turns out to reason, and nobody says what becomes of that."""
        self.usage += Usage(**{name: part[name] for name in Usage._fields})
        reasoned = json.loads(part["reasons"]).get(Reason.REASONING, 0)
        responses = part["scored"] + part["rejected"] + part["failed"]
        if not self.reasoning_said and 2 * reasoned > responses:
            raise SettingsError(
                f"{reasoned} of {responses} candidates begin with reasoning. {resolve_run.SAY_REASONING}; --overwrite "
                "deletes what was drawn"
            )
        super().part_done(part)
