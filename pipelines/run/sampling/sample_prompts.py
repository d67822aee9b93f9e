"""Rejection sampling: prompts in, a policy's candidates with a judge's scores out.

1. Resolve the run: which rows are prompts, the policy, the judge; and open the output folder with it.
2. Start engines of both, as many as the GPUs carry. If they don't carry both at once, a run of the policy alone generates
   all candidates before, into a folder inside the output, and this one judges what lies there.
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
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from ray.data import ActorPoolStrategy, Dataset

from actors.errors import SettingsError
from actors.launch.placement import cluster_gpus
from actors.records import Reason
from actors.scorers.policy import Policy
from actors.text.readable import Readable
from pipelines.data import storage
from pipelines.data.corpus.units import Unit
from pipelines.data.storage import Folder
from pipelines.data.storage.lease import lease
from pipelines.folders.run_folder.columns import CANDIDATE, CANDIDATE_TOKENS, RESPONSE, REWARD, ROW
from pipelines.folders.run_folder.dataset_card import write_scored_card
from pipelines.folders.run_folder.earlier_run import DRAWN
from pipelines.folders.run_folder.endpoint_notes import endpoint_notes
from pipelines.folders.run_folder.parts import Parts, named_run
from pipelines.folders.scored_corpus.summary import Summary, connected
from pipelines.folders.scored_corpus.unscored import SAY_REASONING
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.identity import manifest_of
from pipelines.run.prepare.policy_prompts import PromptPreparation, prepare_prompts
from pipelines.run.prepare.resolve_run import ResolvedRun
from pipelines.run.runtime.progress import ForwardingProgress, Progress
from pipelines.run.runtime.run_observer import RunObserver
from pipelines.run.runtime.session import ray_session
from pipelines.run.sampling import policies
from pipelines.run.sampling.budget import CandidateBudget
from pipelines.run.sampling.generate import FromFolder
from pipelines.run.sampling.policies import Engines
from pipelines.run.sampling.sample_step import SampleStep, SampleStepSettings, Usage
from pipelines.run.scoring.score_corpus import Pipeline, Run, execute, open_run, read_units, share_files, step_settings
from pipelines.settings.recipe import write_recipe
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.run_settings import SampleSettings

__all__ = ["SampleSummary", "sample"]


@dataclass(frozen=True)
class WritersSummary(Readable):
    """The result of a run of models that write and a judge, over its prompts.

    `usage` counts prompt tokens and retries of this process's run alone, not of the run that it resumed; so do `causes`:
    what an endpoint said where it gave no text.
    """

    section: ClassVar[str]
    """The key of the run's own figures, beside those of a scored corpus."""

    scored: Summary
    usage: Usage
    causes: Mapping[str, int]
    prompts: int

    def as_json(self) -> dict[str, Any]:
        """For the manifest and for `--json`."""
        # Flat beside the summary of a scored corpus, which a reader of either may take it for.
        omitted = ("scored", "usage", *(() if self.causes else ("causes",)))
        figures = {name: value for name, value in asdict(self).items() if name not in omitted}
        return {**self.scored.as_json(), self.section: {**figures, "usage": self.usage._asdict()}}


@dataclass(frozen=True)
class SampleSummary(WritersSummary):
    """The result of `sample`, over its candidates and over its prompts.

    `drawn` candidates were generated of at most `possible`, with `tokens` tokens together. `mean_reward` is over all scored
    candidates, `mean_best` over the best one of each prompt.
    """

    section: ClassVar[str] = "sampling"

    drawn: int
    possible: int
    tokens: int
    mean_reward: float | None
    mean_best: float | None


def sampling_identity(settings: SampleSettings, policy: Policy | None) -> dict[str, Any]:
    """All that determines the candidates, for the run's identity."""
    written_by = policies.policy_identity(settings.policy, policy, policies.policy_engine(settings))
    return {"policy": written_by, "draw": settings.draw.model_dump(mode="json")}


def sample(
    settings: SampleSettings, progress: Progress | None = None, observers: Sequence[RunObserver] = ()
) -> SampleSummary:
    """Generate answers to prompts and judge them into a folder, or resume an earlier run with the same settings.

    Raises a `UserError` if the run can't start as it is, `RunStopped` if it ended early and can go on, and `AuditError` if
    the parts don't add up to the input.
    """
    counting = UsageCounter(progress or Progress())
    check(settings)
    for observer in observers:
        observer.check(settings.output)
    policy = policies.policy_of(settings.policy)
    plan = resolve_run.resolve(settings, unanswered=True, notify=counting.noted)
    policies.check_judge(plan.preparation.model, settings.draw)
    counting.begin(settings, plan, [policy])
    with opened_run("sample", settings, plan, sampling_identity(settings, policy), counting) as run:
        if settings.overwrite:
            _drawn_folder(run).delete_all()
        preparation = PromptPreparation(run.preparation, policy, settings.policy.policy_system)
        work = _Sampling(preparation, settings)
        with ExitStack() as session:
            if run.missing(run.state):
                session.enter_context(ray_session(with_vllm=policies.policy_engine(settings).is_vllm))
                if _goes_in_turns(run, settings):
                    _draw(run, plan, work, counting)
            summary = execute(run, work.flow, counting, observers)
        sampled = _summarise(run, summary, settings, counting)
        replace(run.manifest, summary=sampled.as_json()).write(settings.output)
        return sampled


@contextmanager
def opened_run(
    command: str,
    settings: SampleSettings | RefineSettings,
    plan: ResolvedRun,
    recorded: Mapping[str, Any],
    progress: Progress,
) -> Iterator[Run]:
    """The run of a command whose texts depend on all that is `recorded`, in its folder, whose lease is held."""
    with lease(settings.output, progress.noted, settings.work.storage_patience_s):
        run = open_run(settings, plan, manifest_of(plan, settings, recorded), progress.noted)
        write_recipe(settings.output, **{command: settings})
        write_scored_card(settings.output, command, run.manifest)
        yield run


def check(settings: SampleSettings) -> None:
    """Raise `SettingsError` if settings contradict each other.

    Needs no cluster: a recipe is checked by it before its first step.
    """
    policies.check(settings, settings.draw.n)
    if settings.in_turns and settings.draw.adaptive:
        raise SettingsError(
            "draw.enough and draw.min_gain need rewards while candidates are generated, so they don't go with in_turns"
        )


def _goes_in_turns(run: Run, settings: SampleSettings) -> bool:
    """Whether all candidates are drawn before any is judged: what was begun so is gone on with.

    Raises `SettingsError` if they have to be, and can't.
    """
    # Whatever the settings say now: --overwrite is the way to draw anew.
    if not _drawn_folder(run).is_empty():
        return True
    lacking = policies.lacking_room(settings)
    if not settings.in_turns and not lacking:
        return False
    if settings.draw.adaptive:
        raise SettingsError(f"draw.enough and draw.min_gain need {lacking}")
    if run.state.parts:
        raise SettingsError(
            f"{settings.output} holds judged candidates and no {DRAWN}/, so in turns all would be drawn again: it goes on "
            f"{f'with {lacking}' if lacking else 'without in_turns'}; else give another output folder or --overwrite"
        )
    return True


def _drawn_folder(run: Run) -> Folder:
    return storage.folder(run.parts.folder).sub(DRAWN)


@dataclass(frozen=True)
class _Sampling:
    """The flow of a run: pools of engines, and the step that calls them and commits; without `judges`, unjudged."""

    preparation: PromptPreparation
    settings: SampleSettings
    judges: bool = True

    @contextmanager
    def flow(self, run: Run, units: Sequence[Unit], note: Callable[[str], None]) -> Iterator[Pipeline]:
        """See `score_corpus.StartPipeline`. Candidates that an earlier run has drawn are taken from its folder."""
        settings, folder = self.settings, _drawn_folder(run)
        drawn = None if folder.is_empty() else FromFolder(Parts(folder.path, named_run(folder.path)), settings.prefix)
        writers, judges = policies.sizes(settings, writers=0 if drawn else 1, with_judge=self.judges)
        with ExitStack() as stack:
            engines = Engines(stack, settings, note)
            source = drawn or engines.source(settings.policy, self.preparation.policy, writers)
            judge = (
                engines.judges(run.preparation.model, judges, run.store, endpoint_notes(run.parts.folder))
                if self.judges
                else None
            )
            budget, seed = CandidateBudget(settings.draw), settings.policy.policy_seed
            step = SampleStepSettings(step_settings(run), budget, seed, source, judge)
            dataset = step_dataset(run, units, self.preparation, SampleStep, step)
            yield Pipeline(dataset, engines.ledgers, engines.endpoint_ledgers)


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


def _draw(run: Run, plan: ResolvedRun, work: _Sampling, progress: Progress) -> None:
    """Draw all candidates of a run before it judges any: in a run of its own, of the same identity and files."""
    folder = _drawn_folder(run).path
    progress.noted(f"all candidates are drawn into {folder} first, and judged when they are all there")
    # Without logs: a tracker would show one run twice.
    settings = run.settings.model_copy(update={"output": folder, "overwrite": False, "log": ()})
    with lease(folder, progress.noted, settings.work.storage_patience_s):
        drawing = open_run(settings, replace(plan, files=run.manifest.files), run.manifest)
        execute(drawing, replace(work, judges=False).flow, progress)


def _summarise(run: Run, summary: Summary, settings: SampleSettings, counting: "UsageCounter") -> SampleSummary:
    row, reward, tokens, response = (f'"{settings.prefix}{name}"' for name in (ROW, REWARD, CANDIDATE_TOKENS, RESPONSE))
    # A rejected prompt has a row of its own, named without a number, which is no candidate.
    outcome = first_row(
        run,
        summary,
        [ROW, REWARD, RESPONSE, CANDIDATE_TOKENS],
        f"""
        with drawn as materialized (
            select {row} as row, {reward} as reward, {tokens} as tokens from parts where {response} like '{CANDIDATE}[%'
        ), best as (select max(reward) as best from drawn group by row)
        select (select count(distinct row) from drawn), (select count(*) from drawn),
            (select sum(tokens) from drawn), (select avg(reward) from drawn), (select avg(best) from best)
        """,
    )
    prompts, candidates, token_count, mean, best = outcome or (0, 0, 0, None, None)
    return SampleSummary(
        summary, *counting.totals, prompts, candidates, prompts * settings.draw.n, int(token_count or 0), mean, best
    )


def first_row(run: Run, summary: Summary, columns: Sequence[str], query: str) -> tuple[Any, ...] | None:
    """What a query over these columns of a run's `parts` gives; None of a run without a response.

    No part has rows then, and there is nothing to connect to.
    """
    if not summary.responses:
        return None
    with connected(run.parts, run.manifest.columns, columns) as connection:
        return connection.execute(query).fetchone()


class UsageCounter(ForwardingProgress):
    """Adds up prompt tokens, and stops a run whose policy turns out to reason while nothing says what to do with that."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.usage = Usage()
        self.causes: Counter[str] = Counter()
        self._is_reasoning_set = False

    def begin(self, settings: policies.Sampling, plan: ResolvedRun, writers: Sequence[Policy | None]) -> None:
        """The run is resolved. Raises `SettingsError` if a policy may reason, and nothing says what to do with that."""
        for policy in writers:
            policies.check_reasoning(policy, plan.preparation.model, settings.render)
        self._is_reasoning_set = plan.preparation.model.reasoning_by(settings.render) is not None
        self.planned(plan.shape_found)

    @property
    def totals(self) -> tuple[Usage, dict[str, int]]:
        return self.usage, dict(self.causes.most_common())

    def part_done(self, part: Mapping[str, Any]) -> None:
        """Raises `SettingsError` if over half of a part reasons, and nothing says what to do."""
        self.usage += Usage(**{name: part[name] for name in Usage._fields})
        self.causes.update(json.loads(part["causes"]))
        reasoned = json.loads(part["reasons"]).get(Reason.REASONING, 0)
        responses = part["scored"] + part["rejected"] + part["failed"]
        # Over half, since a candidate that only quotes a mark may look like reasoning; and after the first part, not
        # hours later.
        if not self._is_reasoning_set and 2 * reasoned > responses:
            raise SettingsError(
                f"{reasoned} of {responses} candidates begin with reasoning. {SAY_REASONING}; --overwrite "
                "deletes what was drawn"
            )
        super().part_done(part)
