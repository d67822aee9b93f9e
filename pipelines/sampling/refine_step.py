"""The step that drafts, has drafts criticised, edits them by that, has all of them judged, and commits.

Feedback and Edit (arXiv 2503.04378): each draft gets several texts of feedback, and each of these an edit of the draft. What
a text grew out of stays with it: an edit has its draft's name and the feedback, so the whole tree can be read back.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from jinja2 import StrictUndefined, Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from actors.models.reward_anything import as_text
from actors.records import Message, Reason, Reasoning, Role, ScoreRequest
from actors.scorers.policy import Drawn, failed_candidate
from actors.text.reasoning import split_reasoning
from pipelines.prepare.policy_prompts import PromptPreparation, PromptRow
from pipelines.prepare.score_requests import reasoning_of
from pipelines.sampling.generate import Asked, Drawer
from pipelines.sampling.sample_step import Sampled, SampleStep, SampleStepSettings, Text, Usage, drawing_usage

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


class Tree(NamedTuple):
    """How many drafts a prompt gets, and how many texts of feedback, each with its edit, a draft."""

    drafts: int
    feedbacks: int


@dataclass(frozen=True)
class Writer:
    """A model that writes about drafts, and how it is asked: by a prompt in Jinja, as a user turn."""

    drawer: Drawer
    asking: PromptPreparation
    prompt: str

    def asked(self, row: str, places: Mapping[str, object], seeds: tuple[int, ...]) -> Asked:
        """The question with everything in its place."""
        turn = Message(Role.USER, _template(self.prompt).render(places))
        return Asked(row, PromptRow(ScoreRequest((turn,), ())), seeds)

    async def write(self, work: str, asked: Sequence[Asked], rendering: Executor) -> list[tuple[Drawn, ...]]:
        """What it writes, a text for each seed. A question that it can't be asked has the reason in place of each."""
        loop = asyncio.get_running_loop()
        rendered = await loop.run_in_executor(rendering, self.asking.rendered, [one.asked for one in asked])
        able = [one._replace(asked=own) for one, own in zip(asked, rendered, strict=True) if own.reason is None]
        drawn = iter(await self.drawer.draw(work, able) if able else ())
        return [
            next(drawn) if own.reason is None else (failed_candidate(own.reason),) * len(one.seeds)
            for one, own in zip(asked, rendered, strict=True)
        ]


@dataclass(frozen=True)
class RefineStepSettings:
    """What the step needs in its process, beside what sampling does, whose drawer drafts."""

    sampling: SampleStepSettings
    tree: Tree
    critic: Writer
    editor: Writer


class RefineStep(SampleStep):
    """Ray Data's actor class."""

    def __init__(self, settings: RefineStepSettings) -> None:
        super().__init__(settings.sampling)
        self._own = settings

    async def _answer(self, work: str, rows: Sequence[Sampled], drawer: Drawer) -> Usage:
        tree = self._own.tree
        asked = [Asked(row.row, row.asked, self.seeds(row.row, tree.drafts)) for row in rows]
        drafted = await drawer.draw(f"{work}/0", asked)
        how = reasoning_of(self._preparation)
        texts = [[Text(f"draft[{at}]", _answering(one, how)) for at, one in enumerate(own)] for own in drafted]
        good = [(at, text) for at, own in enumerate(texts) for text in own if text.drawn.reason is None]
        told = [[_shown(_answering(one, how), how) for one in own] for own in await self._told(f"{work}/1", rows, good)]
        edited = await self._edited(f"{work}/2", rows, good, told)
        for (at, draft), critiques, edits in zip(good, told, edited, strict=True):
            for number, (said, edit) in enumerate(zip(critiques, edits, strict=True)):
                drawn = replace(edit, parent=draft.name, feedback=said.text or None)
                texts[at].append(Text(f"{draft.name}.edit[{number}]", drawn))
        usage = sum((drawing_usage(drawn) for drawn in (drafted, told, edited)), Usage())
        return usage + await self.judge(f"{work}/3", rows, texts)

    async def _told(self, work: str, rows: Sequence[Sampled], good: Sequence[tuple[int, Text]]) -> list[tuple[Drawn, ...]]:
        """The feedback on each good draft."""
        asked = [
            self._own.critic.asked(
                f"{rows[at].row} {draft.name} feedback",
                self._places(rows[at], draft),
                self.seeds(f"{rows[at].row} {draft.name} feedback", self._own.tree.feedbacks),
            )
            for at, draft in good
        ]
        return await self._own.critic.write(work, asked, self._rendering)

    async def _edited(
        self,
        work: str,
        rows: Sequence[Sampled],
        good: Sequence[tuple[int, Text]],
        told: Sequence[Sequence[Drawn]],
    ) -> list[list[Drawn]]:
        """An edit for each text of feedback. Where there is none, the reason why not is the edit's, too."""
        asked = [
            self._own.editor.asked(
                f"{rows[at].row} {draft.name} edit {number}",
                {**self._places(rows[at], draft), "feedback": said.text},
                self.seeds(f"{rows[at].row} {draft.name} edit {number}", 1),
            )
            for (at, draft), own in zip(good, told, strict=True)
            for number, said in enumerate(own)
            if said.reason is None
        ]
        found = iter(await self._own.editor.write(work, asked, self._rendering))
        return [[next(found)[0] if said.reason is None else failed_candidate(said.reason) for said in own] for own in told]

    def _places(self, row: Sampled, draft: Text) -> dict[str, object]:
        context = row.asked.request.context
        turns = [{"role": turn.role.value, "content": turn.content} for turn in context]
        shown = _shown(draft.drawn, reasoning_of(self._preparation))
        return {"conversation": as_text(context), "turns": turns, "response": shown.text}


def _answering(drawn: Drawn, how: Reasoning) -> Drawn:
    """A text, with the reason why it is none that anybody is shown if that is its reasoning."""
    found = split_reasoning(drawn.text)
    if drawn.reason is not None or not found.reasoned or how is Reasoning.KEEP:
        return drawn
    return replace(drawn, reason=Reason.REASONING) if how is Reasoning.REJECT or found.answer is None else drawn


def _shown(drawn: Drawn, how: Reasoning) -> Drawn:
    """A text as another model is shown it: without its reasoning, where that is stripped."""
    answer = split_reasoning(drawn.text).answer
    return replace(drawn, text=answer) if how is Reasoning.STRIP and answer is not None else drawn


@lru_cache(maxsize=16)
def _template(text: str) -> Template:
    return _JINJA.from_string(text)


def check_prompt(text: str, *places: str) -> None:
    """Raise what Jinja raises if a prompt can't be rendered with these places beside the conversation."""
    known = {"conversation": "", "turns": [{"role": "user", "content": ""}]}
    _template(text).render(known | dict.fromkeys(places, ""))
