"""Feedback and Edit: prompts in, judged drafts and edits out, so that the best can be chosen.

1. Resolve the run: which rows are prompts, the three models that write, the judge; and open the output folder with it.
2. Start their engines. A model with more than one role (drafts, feedback, edits) has one pool.
3. For each missing range of rows: read, draft, criticise, edit, judge and commit, part by part.
4. Audit the parts, add up the summary, and close the manifest.

The folder is a scored corpus like any other: a draft is `draft[2]`, an edit of it `draft[2].edit[0]`, with the draft's name
as `parent` and its `feedback` beside it. A run resumes as a run of sampling does.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import TemplateError

from actors.errors import SettingsError
from actors.scorers.policy import Policy
from actors.settings.replica import PolicySettings
from pipelines.data.corpus.units import Unit
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.columns import PARENT, RESPONSE, REWARD, ROW
from pipelines.folders.run_folder.endpoint_notes import endpoint_notes
from pipelines.folders.scored_corpus.summary import Summary, connected
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.policy_prompts import PromptPreparation
from pipelines.run.runtime.progress import NoProgress, Progress
from pipelines.run.runtime.run_observer import RunObserver
from pipelines.run.sampling import policies
from pipelines.run.sampling.budget import CandidateBudget
from pipelines.run.sampling.generate import CandidateSource
from pipelines.run.sampling.policies import Engines
from pipelines.run.sampling.refine_step import (
    EDIT_PROMPT,
    FEEDBACK_PROMPT,
    RefineStep,
    RefineStepSettings,
    Writer,
    check_prompt,
)
from pipelines.run.sampling.sample_prompts import UsageCounter, WritersSummary, opened_run, step_dataset
from pipelines.run.sampling.sample_step import SampleStepSettings
from pipelines.run.scoring.score_corpus import Pipeline, Run, execute, step_settings
from pipelines.settings.refine_settings import RefineSettings
from pipelines.settings.run_settings import DrawSettings

__all__ = ["RefineSummary", "refine"]


@dataclass(frozen=True)
class RefineSummary(WritersSummary):
    """The result of `refine`, over its texts and over its prompts.

    Mean rewards are those of all drafts and all edits, and of the best draft and the best text of each prompt.
    """

    section: ClassVar[str] = "refining"

    drafts: int
    edits: int
    mean_draft: float | None
    mean_edit: float | None
    mean_best_draft: float | None
    mean_best: float | None


def refine(
    settings: RefineSettings, progress: Progress | None = None, observers: Sequence[RunObserver] = ()
) -> RefineSummary:
    """Draft, criticise, edit and judge into a folder, or resume an earlier run with the same settings.

    Raises a `UserError` if the run can't start as it is, `RunStopped` if it ended early and can go on, and `AuditError` if
    the parts don't add up to the input.
    """
    counting = UsageCounter(progress or NoProgress())
    policies.check(settings, max(settings.refining.drafts, settings.refining.feedbacks))
    for observer in observers:
        observer.check(settings.output)
    work = _Refining(settings, *_prompts(settings), _writers(settings))
    plan = resolve_run.resolve(settings, unanswered=True, notify=counting.noted)
    plan = replace(plan, preparation=replace(plan.preparation, columns=replace(plan.preparation.columns, refined=True)))
    plan.preparation.columns.check(())
    counting.begin(settings, plan, [model.policy for model in work.writers])
    with opened_run("refine", settings, plan, work.recorded(), counting) as run:
        summary = execute(run, work.flow, counting, observers)
        refined = _summarise(run, summary, settings, counting)
        replace(run.manifest, summary=refined.as_json()).write(settings.output)
        return refined


@dataclass(frozen=True)
class _Model:
    """A model that writes."""

    settings: PolicySettings
    policy: Policy | None


def _writers(settings: RefineSettings) -> tuple[_Model, _Model, _Model]:
    """The models that draft, criticise and edit. Roles with one model share the object. Raises `ModelError`."""
    models: dict[str, _Model] = {}
    drafter = settings.policy.policy
    names = (drafter, settings.refining.feedback or drafter, settings.refining.edit or drafter)
    for name in names:
        changes: dict[str, str | None] = {"policy": name}
        if name != drafter:  # these are of the policy, and mean nothing for another
            changes |= dict.fromkeys(("policy_revision", "policy_adapter", "policy_name", "policy_chat_template"))
        model = settings.policy.model_copy(update=changes)
        models.setdefault(name, _Model(model, policies.policy_of(model)))
    drafts, feedback, edits = names
    return models[drafts], models[feedback], models[edits]


def _prompts(settings: RefineSettings) -> tuple[str, str]:
    """The prompts for feedback and for an edit. Raises `SettingsError` if one can't be read or rendered."""
    prompts = []
    for name, file, default, places in (
        ("refining.feedback_prompt", settings.refining.feedback_prompt, FEEDBACK_PROMPT, ("response",)),
        ("refining.edit_prompt", settings.refining.edit_prompt, EDIT_PROMPT, ("response", "feedback")),
    ):
        try:
            text = default if file is None else Path(file).read_text(encoding="utf-8")
            check_prompt(text, *places)
        except OSError as error:
            problem = f"{file!r} can't be read: {error_text(error)}"
            raise SettingsError(f"{name} takes a file with the prompt, and {problem}") from error
        except (UnicodeDecodeError, TemplateError) as error:
            raise SettingsError(f"{name} {file}: {error}") from error
        prompts.append(text)
    return prompts[0], prompts[1]


@dataclass(frozen=True)
class _Refining:
    """The parts of a run that don't change: settings, prompts and the models that write."""

    settings: RefineSettings
    feedback_prompt: str
    edit_prompt: str
    writers: tuple[_Model, _Model, _Model]

    def recorded(self) -> dict[str, Any]:
        """All that determines the texts, for the run's identity."""
        engine = policies.policy_engine(self.settings)
        drafter, critic, editor = (policies.policy_identity(model.settings, model.policy, engine) for model in self.writers)
        prompts = {"feedback_prompt": self.feedback_prompt, "edit_prompt": self.edit_prompt}
        tree = self.settings.refining.model_dump(include={"drafts", "feedbacks"})
        return {"policy": drafter, "feedback": critic, "edit": editor, "tree": tree, **prompts}

    @contextmanager
    def flow(self, run: Run, units: Sequence[Unit], note: Callable[[str], None]) -> Iterator[Pipeline]:
        """See `score_corpus.StartPipeline`."""
        distinct = {id(model): model for model in self.writers}  # a model with two roles gets its GPUs once
        writers, judges = policies.sizes(self.settings, len(distinct))
        with ExitStack() as stack:
            engines = Engines(stack, self.settings, note)
            sources = {number: engines.source(model.settings, model.policy, writers) for number, model in distinct.items()}
            drafter, critic, editor = (sources[id(model)] for model in self.writers)
            sampling = SampleStepSettings(
                step_settings(run),
                CandidateBudget(DrawSettings()),  # not used: the tree says how many texts a prompt gets
                self.settings.policy.policy_seed,
                drafter,
                engines.judges(run.preparation.model, judges, run.store, endpoint_notes(run.parts.folder)),
            )
            step = RefineStepSettings(
                sampling,
                self.settings.refining,
                self._writer(run, self.writers[1], critic, self.feedback_prompt),
                self._writer(run, self.writers[2], editor, self.edit_prompt),
            )
            preparation = self._preparation(run, self.writers[0], self.settings.policy.policy_system)
            yield Pipeline(
                step_dataset(run, units, preparation, RefineStep, step), engines.ledgers, engines.endpoint_ledgers
            )

    def _writer(self, run: Run, model: _Model, source: CandidateSource, prompt: str) -> Writer:
        # Without the policy's system prompt: that is for answers, and the critic and the editor have prompts of their own.
        return Writer(source, self._preparation(run, model, None), prompt)

    def _preparation(self, run: Run, model: _Model, system: str | None) -> PromptPreparation:
        return PromptPreparation(run.preparation, model.policy, system)


def _summarise(run: Run, summary: Summary, settings: RefineSettings, counting: UsageCounter) -> RefineSummary:
    row, reward, parent = (f'"{settings.prefix}{name}"' for name in (ROW, REWARD, PARENT))
    statistics = None
    if summary.responses:  # no part has rows otherwise, and there is nothing to connect to
        with connected(run.parts, run.manifest.columns, [ROW, REWARD, PARENT, RESPONSE]) as connection:
            statistics = connection.execute(
                f"""
                with written as materialized (
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
    prompts, drafts, edits, draft, edit, best_draft, best = statistics or (0, 0, 0, None, None, None, None)
    return RefineSummary(summary, *counting.totals, prompts, drafts, edits, draft, edit, best_draft, best)
