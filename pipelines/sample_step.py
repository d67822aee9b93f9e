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

from actors.loop_thread import LoopThread
from actors.policy import Drawn, seed_of
from actors.records import Reason, RenderedRequest, Response, Score, ScoreRequest
from actors.scorer import gathered
from pipelines.asking import AskedRow, asked_rows
from pipelines.budget import Budget
from pipelines.drawing import Asked, Drawer, FromParts, pieces, same
from pipelines.formats import CANDIDATE
from pipelines.parts import Counts, Part
from pipelines.pools import Pool
from pipelines.preparing import renderer
from pipelines.readers import START
from pipelines.score_step import StepSettings, Stretch, stretches, told

_ROWS_TOGETHER = 8
_SIDE_BY_SIDE = 16


@dataclass(frozen=True)
class SampleStepSettings:
    """What the step needs in its process, beside what scoring does. Without judges, candidates wait for their turn.

    `drawer` is a pool or an endpoint, or what an earlier pass has drawn.
    """

    step: StepSettings
    budget: Budget
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
    asked: AskedRow
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


class SampleStep:
    """Ray Data's actor class."""

    def __init__(self, settings: SampleStepSettings) -> None:
        self._settings = settings
        self._loop = LoopThread("sampling")
        self._rendering = ThreadPoolExecutor(1, "rendering")

    def __call__(self, block: pa.Table) -> pa.Table:
        """Sample and commit a block; returns one row per part."""
        rows = asked_rows(block)
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
            cut = stretches(block, self._settings.step.part_rows, rows)
            return pa.Table.from_pylist(list(threads.map(self._commit, cut)))

    def _commit(self, stretch: Stretch[AskedRow]) -> dict[str, Any]:
        step = self._settings.step
        name, starts = step.names[stretch.file], stretch.table.column(START).to_pylist()
        places = [(at, f"{name}:{start}") for at, start in enumerate(starts)]
        rows = {at: Sampled(row, asked) for at, row in places if (asked := stretch.rows[at]) is not None}
        usage = self._loop.submit(self._sample(stretch, list(rows.values()))).result()
        responses = [(at, *own) for at, sampled in rows.items() for own in sampled.responses]
        scores = [score for _, _, score, _ in responses]
        part = Part(stretch.file, stretch.range, Counts.of(len(rows), scores))
        columns = step.preparation.columns
        carried = stretch.table.select(columns.carried.names).take(pa.array([at for at, *_ in responses], pa.int64()))
        table = columns.table(
            carried,
            [(rows[at].row, response, rows[at].prompt_hash, score) for at, response, score, _ in responses],
            [drawn for *_, drawn in responses],
        )
        step.parts.commit(part, table, step.metadata)
        return {**told(part, scores), **usage._asdict()}

    async def _sample(self, stretch: Stretch[AskedRow], rows: Sequence[Sampled]) -> Usage:
        asked = [row for row in rows if row.asked.reason is None]
        work = f"{stretch.file}-{stretch.range.start}-{stretch.range.end}"
        drawer: Any = self._settings.drawer
        if isinstance(drawer, FromParts):
            drawer = _Given(await asyncio.to_thread(drawer.of, stretch.file, stretch.range))
        together = enumerate(pieces(asked, _ROWS_TOGETHER))
        return sum(await gathered(self._answer(f"{work}/{at}", own, drawer) for at, own in together), Usage())

    async def _answer(self, work: str, rows: Sequence[Sampled], drawer: Drawer) -> Usage:
        """Draw candidates for some rows and have them judged, as often as the budget says."""
        usage, budget, number = Usage(), self._settings.budget, 0
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
        return tuple(seed_of(self._settings.seed, what, at) for at in range(first, first + count))

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
        if self._settings.judges is None:
            return iter([(Score.rejected(Reason.UNJUDGED),) * len(request.responses) for request in requests])
        if not requests:
            return iter(())
        rendered = await asyncio.get_running_loop().run_in_executor(self._rendering, self._rendered, requests)
        return iter(await self._settings.judges.by(same(work)).score.remote(work, rendered))

    def _rendered(self, requests: Sequence[ScoreRequest]) -> list[RenderedRequest]:
        preparation = self._settings.step.preparation
        return renderer(preparation.model, preparation.render).render(requests)


@dataclass(frozen=True)
class _Given:
    """Candidates that are there."""

    drawn: dict[str, list[Drawn]]

    async def draw(self, work: str, rows: Sequence[Asked]) -> list[tuple[Drawn, ...]]:
        return [tuple(self.drawn[row.row]) for row in rows]


def drawing_usage(drawn: Sequence[Sequence[Drawn]]) -> Usage:
    """The prompt tokens of some draws."""
    told = [one for own in drawn for one in own]
    return Usage(sum(one.prompt_tokens for one in told), sum(one.cached_tokens for one in told))


def _request(row: Sampled, texts: Sequence[Text]) -> ScoreRequest:
    """Those of a row's new texts that a judge is shown."""
    responses = tuple(Response(text.name, text.drawn.text) for text in texts if text.drawn.reason is None)
    return ScoreRequest(row.asked.request.context, responses, row.asked.request.principles)
