"""The step that draws candidates, has them judged, and commits both. It asks pools of engines, and holds none itself.

A few rows go together, since calls between processes cost something: their candidates are drawn, and judged as soon as they
are there, while other rows' are still being drawn. With an adaptive budget that goes on, round by round, with those of the
rows that want more.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from actors.engine.loop_thread import LoopThread
from actors.errors import EngineError
from actors.records import Reason, RenderedRequest, Response, Score, ScoreRequest
from actors.scorers.head_scorer import gather
from actors.scorers.policy import Drawn, seed_of
from pipelines.corpus.readers import START
from pipelines.formats import CANDIDATE
from pipelines.prepare.policy_prompts import PromptRow, read_prompt_rows
from pipelines.prepare.score_requests import Preparation, renderer
from pipelines.sampling.budget import CandidateBudget
from pipelines.sampling.engine_actors import Pool
from pipelines.sampling.generate import Asked, Drawer, FromParts, calls_prefix, pieces
from pipelines.scored_corpus.parts import Counts, Part
from pipelines.scoring.score_step import StepSettings, Stretch, part_report, stretches

_ROWS_TOGETHER = 8
_SIDE_BY_SIDE = 16


@dataclass(frozen=True)
class SampleStepSettings:
    """What the step needs in its process, beside what scoring does. Without judges, candidates wait for their turn.

    `drawer` is a pool or an endpoint, or what an earlier pass has drawn.
    """

    step: StepSettings
    budget: CandidateBudget
    seed: int
    drawer: Drawer | FromParts
    judges: Pool | None


class Usage(NamedTuple):
    """Tokens of prompts, to the policy and to the judge: all, and those that a prefix cache had."""

    policy: int = 0
    policy_cached: int = 0
    judge: int = 0
    judge_cached: int = 0

    def __add__(self, other: object) -> "Usage":
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(*(mine + its for mine, its in zip(self, other, strict=True)))


class Text(NamedTuple):
    """A candidate and its name."""

    name: str
    drawn: Drawn


@dataclass
class Sampled:
    """A row on its way: its candidates so far, and what they came to."""

    row: str
    asked: PromptRow
    texts: list[Text] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)

    @property
    def rewards(self) -> list[float]:
        """Of those that were scored."""
        return [score.reward for score in self.scores if score.reward is not None]

    @property
    def prompt_hash(self) -> str | None:
        """None if not even the prompt could be read."""
        return self.asked.request.prompt_hash if self.asked.request.context else None

    @property
    def responses(self) -> list[tuple[str, Score, Drawn | None]]:
        """Name, score and text of each response: at least one, of a prompt that couldn't be asked the reason why."""
        if self.asked.reason is not None:
            return [(CANDIDATE, Score.rejected(self.asked.reason), None)]
        return [(text.name, score, text.drawn) for text, score in zip(self.texts, self.scores, strict=True)]


class CandidateSampler:
    """Draws candidates of rows and has them judged. `judges` may be None: candidates wait for their turn then."""

    def __init__(self, preparation: Preparation, budget: CandidateBudget, seed: int, judges: Pool | None) -> None:
        self._preparation = preparation
        self._budget = budget
        self._seed = seed
        self._judges = judges
        self._loop = LoopThread("sampling")
        self._rendering = ThreadPoolExecutor(1, "rendering")

    def sampled(self, work: str, rows: Sequence[Sampled], drawer: Drawer) -> Usage:
        """Fill rows, some at a time. `work` names the call, the same whenever it is made again."""
        return self._loop.submit(self._sampled(work, rows, drawer)).result()

    async def _sampled(self, work: str, rows: Sequence[Sampled], drawer: Drawer) -> Usage:
        asked = [row for row in rows if row.asked.reason is None]
        together = enumerate(pieces(asked, _ROWS_TOGETHER))
        return sum(await gather(self._answer(f"{work}/{at}", own, drawer) for at, own in together), Usage())

    async def _answer(self, work: str, rows: Sequence[Sampled], drawer: Drawer) -> Usage:
        """Draw candidates for some rows and have them judged, as often as the budget says."""
        usage, budget, number = Usage(), self._budget, 0
        while wanted := [(row, more) for row in rows if (more := budget.more(len(row.texts), row.rewards)) > 0]:
            asked = [Asked(row.row, row.asked, self.seeds(row.row, more, len(row.texts))) for row, more in wanted]
            drawn = await drawer.draw(f"{work}/{number}", asked)
            texts = [
                [Text(f"{CANDIDATE}[{at}]", one) for at, one in enumerate(own, len(row.texts))]
                for (row, _), own in zip(wanted, drawn, strict=True)
            ]
            usage += drawing_usage(drawn) + await self.judge(f"{work}/{number}", [row for row, _ in wanted], texts)
            number += 1
        return usage

    def seeds(self, what: str, count: int, first: int = 0) -> tuple[int, ...]:
        """Seeds for so many texts of a row, or of another thing by its name."""
        return tuple(seed_of(self._seed, what, at) for at in range(first, first + count))

    async def judge(self, work: str, rows: Sequence[Sampled], texts: Sequence[Sequence[Text]]) -> Usage:
        """Take new texts of some rows in, with what they come to."""
        requests = [_request(row, own) for row, own in zip(rows, texts, strict=True)]
        found = await self._scores(work, [request for request in requests if request.responses])
        new: list[Score] = []
        for row, own, request in zip(rows, texts, requests, strict=True):
            scores = iter(next(found) if request.responses else ())
            row.texts += own
            row.scores += [text.drawn.unjudged or next(scores) for text in own]
            new += row.scores[-len(own) :] if own else []
        cached = sum(score.cached_tokens or 0 for score in new)
        return Usage(judge=sum(score.prompt_tokens or 0 for score in new), judge_cached=cached)

    async def _scores(self, work: str, requests: Sequence[ScoreRequest]) -> Any:
        if self._judges is None:
            return iter([(Score.rejected(Reason.UNJUDGED),) * len(request.responses) for request in requests])
        if not requests:
            return iter(())
        rendered = await asyncio.get_running_loop().run_in_executor(self._rendering, self._rendered, requests)
        return iter(await self._judges.by(calls_prefix(work)).score.remote(work, rendered))

    def _rendered(self, requests: Sequence[ScoreRequest]) -> list[RenderedRequest]:
        return renderer(self._preparation.model, self._preparation.render).render(requests)

    def table(self, carried: pa.Table, rows: Sequence[Sampled | None]) -> tuple[pa.Table, list[Score]]:
        """The rows of a part: of each row of `carried` its responses, and what they came to."""
        columns = self._preparation.columns
        responses = [(at, row, *own) for at, row in enumerate(rows) if row is not None for own in row.responses]
        taken = carried.select(columns.carried.names).take(pa.array([at for at, *_ in responses], pa.int64()))
        told = [(row.row, name, row.prompt_hash, score) for _, row, name, score, _ in responses]
        return columns.table(taken, told, [drawn for *_, drawn in responses]), [score for *_, score in told]


class SampleStep(CandidateSampler):
    """Ray Data's actor class: it commits what it sampled."""

    def __init__(self, settings: SampleStepSettings) -> None:
        super().__init__(settings.step.preparation, settings.budget, settings.seed, settings.judges)
        self._settings = settings

    def __call__(self, block: pa.Table) -> pa.Table:
        """Sample and commit a block; returns one row per part."""
        rows = read_prompt_rows(block)
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
            cut = stretches(block, self._settings.step.part_rows, rows)
            return pa.Table.from_pylist(list(threads.map(self._commit, cut)))

    def _commit(self, stretch: Stretch[PromptRow]) -> dict[str, Any]:
        step = self._settings.step
        name, starts = step.names[stretch.file], stretch.table.column(START).to_pylist()
        rows = [
            Sampled(f"{name}:{start}", asked) if asked is not None else None
            for start, asked in zip(starts, stretch.rows, strict=True)
        ]
        there = [row for row in rows if row is not None]
        usage = self.sampled(f"{stretch.file}-{stretch.range.start}-{stretch.range.end}", there, self._drawer(stretch))
        table, scores = self.table(stretch.table, rows)
        part = Part(stretch.file, stretch.range, Counts.of(len(there), scores))
        step.parts.commit(part, table, step.metadata)
        return {**part_report(part, scores), **usage._asdict()}

    def _drawer(self, stretch: Stretch[PromptRow]) -> Drawer:
        drawer = self._settings.drawer
        return _Given(drawer.of(stretch.file, stretch.range)) if isinstance(drawer, FromParts) else drawer


@dataclass(frozen=True)
class _Given:
    """Candidates that are there."""

    drawn: dict[str, list[Drawn]]

    async def draw(self, work: str, rows: Sequence[Asked]) -> list[tuple[Drawn, ...]]:
        if lacking := [row.row for row in rows if row.row not in self.drawn]:
            raise EngineError(f"{len(lacking)} prompts were never drawn, the first one {lacking[0]}: they are drawn then")
        return [tuple(self.drawn[row.row]) for row in rows]


def drawing_usage(drawn: Sequence[Sequence[Drawn]]) -> Usage:
    """The prompt tokens of some draws."""
    told = [one for own in drawn for one in own]
    return Usage(sum(one.prompt_tokens for one in told), sum(one.cached_tokens for one in told))


def _request(row: Sampled, texts: Sequence[Text]) -> ScoreRequest:
    """Those of a row's new texts that a judge is shown."""
    responses = tuple(Response(text.name, text.drawn.text) for text in texts if text.drawn.reason is None)
    return ScoreRequest(row.asked.request.context, responses, row.asked.request.principles)
