"""The step that generates drafts, feedback on each and an edit by each feedback, has drafts and edits judged, and commits.

Feedback and Edit (arXiv 2503.04378): a prompt gets D drafts, a draft F texts of feedback, and each feedback one edit, so a
prompt has up to D * (1 + F) responses. An edit carries its draft's name (`parent`) and its `feedback`, so the tree can be
read back from the rows.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from actors.models.reward_anything import as_text
from actors.records import Message, Reason, Reasoning, Role, ScoreRequest
from actors.scorers.policy import GeneratedCandidate, failed_candidate
from actors.text.reasoning import final_answer, split_reasoning
from pipelines.run.prepare.policy_prompts import PromptPreparation, PromptRow
from pipelines.run.prepare.score_requests import reasoning_of
from pipelines.run.sampling.generate import CandidateRequest, CandidateSource
from pipelines.run.sampling.sample_step import (
    NamedCandidate,
    PromptCandidates,
    SampleStep,
    SampleStepSettings,
    Usage,
    generation_usage,
)
from pipelines.settings.refine_settings import RefiningSettings

# Sandboxed, since a recipe may come from somebody else, and its prompts are programs. Undefined names raise.
_JINJA = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)

FEEDBACK_PROMPT = """\
Here is a conversation, and a response to its last turn.

{{ conversation }}

Response:
{{ response }}

Say in a few sentences how helpful the response is: whether it is not, slightly, partially, mostly or perfectly helpful, what
is right about it, and what should be better.
"""
EDIT_PROMPT = """\
Here is a conversation, a response to its last turn, and what somebody says of that response.

{{ conversation }}

Response:
{{ response }}

Feedback:
{{ feedback }}

Write the response anew, so that it meets the feedback. Write the new response alone.
"""


@dataclass(frozen=True)
class Writer:
    """A model that writes about drafts, and its prompt: a Jinja template, rendered into one user turn."""

    source: CandidateSource
    preparation: PromptPreparation
    template: str

    def request(self, name: str, fields: Mapping[str, object], seeds: tuple[int, ...]) -> CandidateRequest:
        """The request with the template's fields filled in. It has no token ids yet: `write` makes them."""
        turn = Message(Role.USER, _compile(self.template).render(fields))
        return CandidateRequest(name, PromptRow(ScoreRequest((turn,), ())), seeds)

    async def write(
        self, work: str, requests: Sequence[CandidateRequest], rendering: Executor
    ) -> list[tuple[GeneratedCandidate, ...]]:
        """A text for each seed of each request; where the prompt can't be rendered (too long), its reason for each seed."""
        loop = asyncio.get_running_loop()
        prompts = await loop.run_in_executor(rendering, self.preparation.rendered, [request.prompt for request in requests])
        answerable = [
            request._replace(prompt=prompt)
            for request, prompt in zip(requests, prompts, strict=True)
            if prompt.reason is None
        ]
        texts = iter(await self.source.generate(work, answerable) if answerable else ())
        return [
            next(texts) if prompt.reason is None else (failed_candidate(prompt.reason),) * len(request.seeds)
            for request, prompt in zip(requests, prompts, strict=True)
        ]


@dataclass(frozen=True)
class RefineStepSettings:
    """What the step needs in its process. The source of `sampling` writes the drafts."""

    sampling: SampleStepSettings
    tree: RefiningSettings
    critic: Writer
    editor: Writer


class RefineStep(SampleStep):
    """The actor class for Ray Data."""

    def __init__(self, settings: RefineStepSettings, files: Any) -> None:
        super().__init__(settings.sampling, files)
        self._refining = settings

    @property
    def _most_responses(self) -> int:
        tree = self._refining.tree
        return tree.drafts * (1 + tree.feedbacks)  # each draft and its edits

    async def _sample_group(self, work: str, rows: Sequence[PromptCandidates], source: CandidateSource) -> Usage:
        """Four rounds for a group of rows, each one call to a pool: drafts, feedback, edits, and the scores of all."""
        tree, reasoning = self._refining.tree, reasoning_of(self._preparation)
        requests = [CandidateRequest(row.row, row.prompt, self.seeds(row.row, tree.drafts)) for row in rows]
        drafted = await source.generate(f"{work}/0", requests)
        texts = [
            [NamedCandidate(f"draft[{number}]", _reject_reasoning(draft, reasoning)) for number, draft in enumerate(drafts)]
            for drafts in drafted
        ]
        # A draft that is cut off, empty or rejected gets no feedback: it keeps its reason, and the tree ends there.
        usable = [
            (position, draft) for position, drafts in enumerate(texts) for draft in drafts if draft.generated.reason is None
        ]
        criticised = await self._write_feedback(f"{work}/1", rows, usable)
        # The critic's own reasoning goes the way of the drafts': an editor must not read it as feedback.
        feedback = [
            [_without_reasoning(_reject_reasoning(text, reasoning), reasoning) for text in critiques]
            for critiques in criticised
        ]
        edited = await self._write_edits(f"{work}/2", rows, usable, feedback)
        for (position, draft), critiques, edits in zip(usable, feedback, edited, strict=True):
            for number, (critique, edit) in enumerate(zip(critiques, edits, strict=True)):
                # Also of an edit that failed: the tree is read back from the rows alone.
                with_origin = replace(edit, parent=draft.name, feedback=critique.text or None)
                texts[position].append(NamedCandidate(f"{draft.name}.edit[{number}]", with_origin))
        usage = sum((generation_usage(generated) for generated in (drafted, feedback, edited)), Usage())
        # Drafts and edits of a prompt are judged in one request: a judge that compares sees them together.
        return usage + await self.judge(f"{work}/3", rows, texts)

    async def _write_feedback(
        self, work: str, rows: Sequence[PromptCandidates], drafts: Sequence[tuple[int, NamedCandidate]]
    ) -> list[tuple[GeneratedCandidate, ...]]:
        """The texts of feedback on each draft; drafts come with the position of their row."""
        # The names, not positions in the group, seed the texts: another grouping after a crash gives the same feedback.
        requests = [
            self._refining.critic.request(
                f"{rows[position].row} {draft.name} feedback",
                self._fields(rows[position], draft),
                self.seeds(f"{rows[position].row} {draft.name} feedback", self._refining.tree.feedbacks),
            )
            for position, draft in drafts
        ]
        return await self._refining.critic.write(work, requests, self._rendering)

    async def _write_edits(
        self,
        work: str,
        rows: Sequence[PromptCandidates],
        drafts: Sequence[tuple[int, NamedCandidate]],
        feedback: Sequence[Sequence[GeneratedCandidate]],
    ) -> list[list[GeneratedCandidate]]:
        """An edit for each text of feedback of each draft. Feedback with a reason against it gives a failed edit."""
        requests = [
            self._refining.editor.request(
                f"{rows[position].row} {draft.name} edit {number}",
                {**self._fields(rows[position], draft), "feedback": critique.text},
                self.seeds(f"{rows[position].row} {draft.name} edit {number}", 1),
            )
            for (position, draft), critiques in zip(drafts, feedback, strict=True)
            for number, critique in enumerate(critiques)
            if critique.reason is None
        ]
        edits = iter(await self._refining.editor.write(work, requests, self._rendering))
        # In the order of the requests above: `next` is called for exactly the critiques without a reason.
        return [
            [
                next(edits)[0] if critique.reason is None else failed_candidate(critique.reason, critique.cause)
                for critique in critiques
            ]
            for critiques in feedback
        ]

    def _fields(self, row: PromptCandidates, draft: NamedCandidate) -> dict[str, object]:
        """The fields of a prompt's template: the conversation as text and as turns, and the draft."""
        context = row.prompt.request.context
        turns = [{"role": turn.role.value, "content": turn.content} for turn in context]
        response = _without_reasoning(draft.generated, reasoning_of(self._preparation))
        return {"conversation": as_text(context), "turns": turns, "response": response.text}


def _reject_reasoning(candidate: GeneratedCandidate, reasoning: Reasoning) -> GeneratedCandidate:
    """The text, with the reason `reasoning` if it holds reasoning that is rejected, or that has no answer after it."""
    split = split_reasoning(candidate.text)
    if candidate.reason is not None or not split.reasoned or reasoning is Reasoning.KEEP:
        return candidate
    is_rejected = reasoning is Reasoning.REJECT or split.answer is None
    return replace(candidate, reason=Reason.REASONING) if is_rejected else candidate


def _without_reasoning(candidate: GeneratedCandidate, reasoning: Reasoning) -> GeneratedCandidate:
    """The text as another model is shown it: its answer alone with `reasoning: strip`, otherwise unchanged."""
    return replace(candidate, text=final_answer(candidate.text)) if reasoning is Reasoning.STRIP else candidate


# Cached: compiling takes longer than rendering, and a run has two prompts.
@lru_cache(maxsize=16)
def _compile(text: str) -> Template:
    return _JINJA.from_string(text)


def check_prompt(text: str, *places: str) -> None:
    """Raise Jinja's `TemplateError` if a prompt can't be rendered with the fields `places` beside the conversation.

    Undefined names raise (StrictUndefined): a misspelt field would otherwise render as nothing, in every prompt of a run.
    """
    fields = {"conversation": "", "turns": [{"role": "user", "content": ""}]}
    _compile(text).render(fields | dict.fromkeys(places, ""))
