"""Feedback and Edit: prompts in, drafts and what was made of them out, all judged, so that the best can be chosen.

1. Settle the plan: which rows are prompts, the three models that write, the judge; and open the output folder with it.
2. Start their engines. A model that writes in more than one place has one pool of them.
3. While something is missing: read it, draft, criticise, edit, judge and commit, part by part.
4. Audit the parts, sum them up, and close the manifest.

The folder is a scored corpus like any other: a draft is `draft[2]`, an edit of it `draft[2].edit[0]`, with the draft's name
as `parent` and its `feedback` beside it. What holds for resuming is what holds for sampling.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from actors.errors import SettingsError
from actors.scorers.policy import Policy
from actors.settings.replica import PolicySettings
from pipelines.corpus.corpus_files import Unit
from pipelines.exports.export_commands import jobs_of_run
from pipelines.exports.export_job import ExportJob
from pipelines.prepare import resolve_run
from pipelines.prepare.identity import manifest_of
from pipelines.prepare.policy_prompts import PromptPreparation
from pipelines.runtime.progress import Progress, Silent
from pipelines.sampling import policies
from pipelines.sampling.budget import CandidateBudget
from pipelines.sampling.generate import Drawer
from pipelines.sampling.policies import Engines
from pipelines.sampling.refine_step import (
    EDIT_PROMPT,
    FEEDBACK_PROMPT,
    RefineStep,
    RefineStepSettings,
    Tree,
    Writer,
    check_prompt,
)
from pipelines.sampling.sample_prompts import Counting, stepped
from pipelines.sampling.sample_step import SampleStepSettings, Usage
from pipelines.scored_corpus.columns import PARENT, RESPONSE, REWARD, ROW
from pipelines.scored_corpus.summary import Summary, connected
from pipelines.scoring.score_corpus import Flow, Run, carry_out, open_run, step_settings
from pipelines.settings.recipe import write_recipe
from pipelines.settings.run_settings import DrawSettings, RefineSettings
from pipelines.storage.lease import lease

__all__ = ["RefineSummary", "refine"]


@dataclass(frozen=True)
class RefineSummary:
    """What came of a run: of all texts, and of the prompts.

    Mean rewards are those of all drafts and all edits, and of the best draft and the best text of each prompt. `usage`
    counts prompt tokens of this run alone.
    """

    scored: Summary
    prompts: int
    drafts: int
    edits: int
    mean_draft: float | None
    mean_edit: float | None
    mean_best_draft: float | None
    mean_best: float | None
    usage: Usage

    def as_json(self) -> dict[str, Any]:
        """For the manifest and for `--json`: as `score` tells of a corpus, and the rest beside it."""
        own = {name: value for name, value in asdict(self).items() if name not in ("scored", "usage")}
        return {**self.scored.as_json(), "refining": {**own, "usage": self.usage._asdict()}}


def refine(settings: RefineSettings, progress: Progress | None = None, jobs: Sequence[ExportJob] = ()) -> RefineSummary:
    """Draft, criticise, edit and judge, into a folder, or go on where an earlier run of the same settings ended.

    `jobs` are done with each part as it comes, as is what the settings say of keeping candidates. Raises a `UserError` if
    the run can't start as it is, `RunStopped` if it ended early and can go on, and `AuditError` if what was written doesn't
    add up to the input.
    """
    jobs = [*jobs_of_run(settings), *jobs]
    counting = Counting(progress or Silent())
    if settings.policy.policy is None:
        raise SettingsError("there is no --policy to draft; edits of responses that are there aren't made")
    tree = Tree(settings.refining.drafts, settings.refining.feedbacks)
    policies.check(settings, max(tree))
    work = _Refining(settings, tree, *_prompts(settings), _writers(settings))
    plan = resolve_run.resolve(settings, unanswered=True)
    plan = replace(plan, preparation=replace(plan.preparation, columns=replace(plan.preparation.columns, refined=True)))
    plan.preparation.columns.check(())
    for policy in work.policies:
        policies.check_reasoning(policy, plan.preparation.model, settings.render)
    counting.planned(plan.shape_found)
    counting.reasoning_said = plan.preparation.model.reasoning_by(settings.render) is not None
    with lease(settings.output):
        run = open_run(settings, plan, manifest_of(plan, settings, work.recorded()))
        write_recipe(settings.output, refine=settings)
        summary = carry_out(run, work.flow, counting, jobs)
        found = _summed_up(run, summary, settings, counting.usage)
        replace(run.manifest, summary=found.as_json()).write(settings.output)
        return found


@dataclass(frozen=True)
class _Model:
    """A model that writes."""

    settings: PolicySettings
    policy: Policy | None


def _writers(settings: RefineSettings) -> tuple[_Model, _Model, _Model]:
    """The models that draft, criticise and edit; one model is one. Raises `ModelError`."""
    own, known = settings.refining, dict[str | None, _Model]()
    for name in (settings.policy.policy, own.feedback or settings.policy.policy, own.edit or settings.policy.policy):
        alike = {"policy": name}
        if name != settings.policy.policy:  # a revision, an adapter and a name are the policy's own
            alike |= dict.fromkeys(("policy_revision", "policy_adapter", "policy_name"))
        named = settings.policy.model_copy(update=alike)
        known.setdefault(name, _Model(named, policies.policy_of(named)))
    return (
        known[settings.policy.policy],
        known[own.feedback or settings.policy.policy],
        known[own.edit or settings.policy.policy],
    )


def _prompts(settings: RefineSettings) -> tuple[str, str]:
    """The prompts for feedback and for an edit. Raises `SettingsError` if one can't be read or rendered."""
    found = []
    for name, file, default, places in (
        ("--feedback-prompt", settings.refining.feedback_prompt, FEEDBACK_PROMPT, ("response",)),
        ("--edit-prompt", settings.refining.edit_prompt, EDIT_PROMPT, ("response", "feedback")),
    ):
        try:
            text = default if file is None else Path(file).read_text(encoding="utf-8")
            check_prompt(text, *places)
        except (OSError, UnicodeDecodeError, TemplateError) as error:
            raise SettingsError(f"{name} {file}: {error}") from error
        found.append(text)
    return found[0], found[1]


@dataclass(frozen=True)
class _Refining:
    """What does the work of a run."""

    settings: RefineSettings
    tree: Tree
    feedback_prompt: str
    edit_prompt: str
    writers: tuple[_Model, _Model, _Model]

    @property
    def policies(self) -> tuple[Policy | None, ...]:
        """The models that write; None for an endpoint."""
        return tuple(model.policy for model in self.writers)

    def recorded(self) -> dict[str, Any]:
        """All that decides what is written, for a run's identity."""
        engine = policies.policy_engine(self.settings)
        drafter, critic, editor = (policies.policy_identity(model.settings, model.policy, engine) for model in self.writers)
        prompts = {"feedback_prompt": self.feedback_prompt, "edit_prompt": self.edit_prompt}
        return {"policy": drafter, "feedback": critic, "edit": editor, "tree": self.tree._asdict(), **prompts}

    @contextmanager
    def flow(self, run: Run, units: Sequence[Unit], noted: Callable[[str], None]) -> Iterator[Flow]:
        """See `score_corpus.Flows`."""
        own = {id(model): model for model in self.writers}
        writers, judges = policies.sizes(self.settings, len(own))
        with ExitStack() as stack:
            engines = Engines(stack, self.settings, noted)
            drawers = {at: engines.drawer(model.settings, model.policy, writers) for at, model in own.items()}
            drafter, critic, editor = (drawers[id(model)] for model in self.writers)
            sampling = SampleStepSettings(
                step_settings(run),
                CandidateBudget(DrawSettings()),
                self.settings.policy.policy_seed,
                drafter,
                engines.judges(run.preparation.model, judges),
            )
            step = RefineStepSettings(
                sampling,
                self.tree,
                self._writer(run, self.writers[1], critic, self.feedback_prompt),
                self._writer(run, self.writers[2], editor, self.edit_prompt),
            )
            asking = self._asking(run, self.writers[0], self.settings.policy.policy_system)
            yield Flow(stepped(run, units, asking, RefineStep, step), engines.ledgers)

    def _writer(self, run: Run, model: _Model, drawer: Drawer, prompt: str) -> Writer:
        return Writer(drawer, self._asking(run, model, None), prompt)

    def _asking(self, run: Run, model: _Model, system: str | None) -> PromptPreparation:
        return PromptPreparation(run.preparation, model.policy, system, self.settings.render.control_tokens)


def _summed_up(run: Run, summary: Summary, settings: RefineSettings, usage: Usage) -> RefineSummary:
    row, reward, parent = (f'"{settings.prefix}{name}"' for name in (ROW, REWARD, PARENT))
    found = None
    if summary.responses:
        with connected(run.parts, run.manifest.columns.ours) as connection:
            found = connection.execute(
                f"""
                with written as (
                    select {row} as row, {reward} as reward, {parent} is null as draft
                    from parts where "{settings.prefix}{RESPONSE}" like 'draft[%'
                ), best as (
                    select max(reward) filter (draft) as draft, max(reward) as best from written group by row
                )
                select (select count(distinct row) from written),
                    (select count(*) filter (draft) from written), (select count(*) filter (not draft) from written),
                    (select avg(reward) filter (draft) from written), (select avg(reward) filter (not draft) from written),
                    (select avg(draft) from best), (select avg(best) from best)
                """
            ).fetchone()
    prompts, drafts, edits, draft, edit, best_draft, best = found or (0, 0, 0, None, None, None, None)
    return RefineSummary(summary, prompts, drafts, edits, draft, edit, best_draft, best, usage)
