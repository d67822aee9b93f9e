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
from typing import Any, ClassVar, NamedTuple

from jinja2 import TemplateError

from actors.errors import SettingsError
from actors.scorers.policy import Policy
from actors.settings.replica import PolicySettings
from pipelines.data.corpus.units import Unit
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.columns import PARENT, RESPONSE, REWARD, ROW
from pipelines.folders.run_folder.endpoint_notes import endpoint_notes
from pipelines.folders.scored_corpus.summary import Summary
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.policy_prompts import PromptPreparation
from pipelines.run.runtime.progress import Progress
from pipelines.run.runtime.run_observer import RunObserver
from pipelines.run.sampling import policies
from pipelines.run.sampling.budget import CandidateBudget
from pipelines.run.sampling.policies import Engines
from pipelines.run.sampling.refine_step import (
    EDIT_PROMPT,
    FEEDBACK_PROMPT,
    RefineStep,
    RefineStepSettings,
    Writer,
    check_prompt,
)
from pipelines.run.sampling.sample_prompts import UsageCounter, WritersSummary, first_row, opened_run, step_dataset
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
    counting = UsageCounter(progress or Progress())
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


class _Model(NamedTuple):
    settings: PolicySettings
    policy: Policy | None


def _writers(settings: RefineSettings) -> tuple[_Model, _Model, _Model]:
    """The models that draft, criticise and edit. Roles with one model share the object. Raises `ModelError`."""
    drafter = settings.policy.policy
    models = {drafter: _Model(settings.policy, policies.policy_of(settings.policy))}
    names = (settings.refining.feedback or drafter, settings.refining.edit or drafter)
    # These are of the policy, and mean nothing for another.
    unset = dict.fromkeys(("policy_revision", "policy_adapter", "policy_name", "policy_chat_template"))
    for name in names:
        if name not in models:
            other = settings.policy.model_copy(update={"policy": name, **unset})
            models[name] = _Model(other, policies.policy_of(other))
    return models[drafter], models[names[0]], models[names[1]]


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
        """All that determines the texts, for the run's identity: of the prompts their texts, as files may change."""
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
            drafts, critiques, edits = (PromptPreparation(run.preparation, model.policy, None) for model in self.writers)
            # The policy's system prompt is for answers alone: the critic and the editor have prompts of their own.
            drafts = replace(drafts, system=self.settings.policy.policy_system)
            step = RefineStepSettings(
                sampling,
                self.settings.refining,
                Writer(critic, critiques, self.feedback_prompt),
                Writer(editor, edits, self.edit_prompt),
            )
            dataset = step_dataset(run, units, drafts, RefineStep, step)
            yield Pipeline(dataset, engines.ledgers, engines.endpoint_ledgers)


def _summarise(run: Run, summary: Summary, settings: RefineSettings, counting: UsageCounter) -> RefineSummary:
    row, reward, parent, response = (f'"{settings.prefix}{name}"' for name in (ROW, REWARD, PARENT, RESPONSE))
    statistics = first_row(
        run,
        summary,
        [ROW, REWARD, PARENT, RESPONSE],
        f"""
        with written as materialized (
            select {row} as row, {reward} as reward, {parent} is null as draft from parts where {response} like 'draft[%'
        ), best as (
            select max(reward) filter (draft) as draft, max(reward) as best from written group by row
        )
        select (select count(distinct row) from written),
            (select count(*) filter (draft) from written), (select count(*) filter (not draft) from written),
            (select avg(reward) filter (draft) from written), (select avg(reward) filter (not draft) from written),
            (select avg(draft) from best), (select avg(best) from best)
        """,
    )
    prompts, drafts, edits, draft, edit, best_draft, best = statistics or (0, 0, 0, None, None, None, None)
    return RefineSummary(summary, *counting.totals, prompts, drafts, edits, draft, edit, best_draft, best)
