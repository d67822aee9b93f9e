"""The step that generates candidates, has them judged, and commits both. It calls pools of engines, and holds none itself.

Rows go to a pool in groups of 8, since each call between processes has a fixed cost. Groups run side
by side: the candidates of one are judged while those of another are still being generated. With an adaptive budget a group
goes on in rounds, with those of its rows that need more candidates.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
import ray

from actors.engine.loop_thread import LoopThread
from actors.records import Reason, RenderedRequest, Response, Score, ScoreRequest
from actors.scorers.head_scorer import gather
from actors.scorers.policy import GeneratedCandidate, seed_of
from pipelines.data.formats import CANDIDATE
from pipelines.run.prepare.policy_prompts import PromptRow, read_prompt_rows
from pipelines.run.prepare.score_requests import Preparation, judged_text, renderer
from pipelines.run.runtime.engine_actors import Pool
from pipelines.run.runtime.run_metrics import RunMetrics
from pipelines.run.sampling.budget import CandidateBudget
from pipelines.run.sampling.generate import CandidateRequest, CandidateSource, FromFolder, calls_prefix
from pipelines.run.scoring.score_step import FileTable, StepSettings, Stretch, part_report, repeat_rows, stretches

_ROWS_PER_CALL = 8
_STRETCHES_AT_ONCE = 16  # of a block, in one call of the step; each is a thread that mostly waits for the pools


@dataclass(frozen=True)
class SampleStepSettings:
    """What the step needs in its process beside the settings of scoring.

    `source` is a pool, an endpoint, or the folder of an earlier run. Without `judges`, candidates are committed unjudged.
    """

    step: StepSettings
    budget: CandidateBudget
    seed: int
    source: CandidateSource | FromFolder
    judges: Pool | None


class Usage(NamedTuple):
    """Prompt tokens read by the policy and by the judge: all of them, and those that came from a prefix cache.

    `retries` are the times that an endpoint was asked again.
    """

    policy: int = 0
    policy_cached: int = 0
    judge: int = 0
    judge_cached: int = 0
    retries: int = 0

    def __add__(self, other: object) -> "Usage":
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(*(tokens + more for tokens, more in zip(self, other, strict=True)))


class NamedCandidate(NamedTuple):
    """A candidate and its name in the row, such as `candidate[3]`."""

    name: str
    generated: GeneratedCandidate


@dataclass
class PromptCandidates:
    """A row in progress: its prompt, and its candidates so far with their scores, in the same order."""

    row: str
    prompt: PromptRow
    candidates: list[NamedCandidate] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)

    @property
    def rewards(self) -> list[float]:
        return [score.reward for score in self.scores if score.reward is not None]

    @property
    def prompt_hash(self) -> str | None:
        return self.prompt.request.prompt_hash if self.prompt.request.context else None  # a row that can't be read has none

    @property
    def responses(self) -> list[tuple[str, Score, GeneratedCandidate | None]]:
        """Name, score and candidate of each response; for a prompt that can't be rendered, one rejected score."""
        if self.prompt.reason is not None:
            return [(CANDIDATE, Score.rejected(self.prompt.reason, self.prompt.detail), None)]
        return [
            (candidate.name, score, candidate.generated)
            for candidate, score in zip(self.candidates, self.scores, strict=True)
        ]


class CandidateSampler:
    """Generates candidates of rows and has them judged. Where `judges` is None, candidates get the reason `unjudged`."""

    def __init__(self, preparation: Preparation, budget: CandidateBudget, seed: int, judges: Pool | None) -> None:
        self._preparation = preparation
        self._budget = budget
        self._seed = seed
        self._judges = judges
        self._loop = LoopThread("sampling")
        # One thread: it keeps the event loop free, and the step has other processes beside it for more.
        self._rendering = ThreadPoolExecutor(1, "rendering")

    def sample(self, work: str, rows: Sequence[PromptCandidates], source: CandidateSource) -> Usage:
        """Fill `rows` in place.

        `work` is the call's name, equal when it is repeated: deaths of engines are counted by it.
        """
        return self._loop.submit(self._sample(work, rows, source)).result()

    async def _sample(self, work: str, rows: Sequence[PromptCandidates], source: CandidateSource) -> Usage:
        answerable = [row for row in rows if row.prompt.reason is None]
        groups = [answerable[start : start + _ROWS_PER_CALL] for start in range(0, len(answerable), _ROWS_PER_CALL)]
        usages = await gather(self._sample_group(f"{work}/{number}", group, source) for number, group in enumerate(groups))
        return sum(usages, Usage())

    async def _sample_group(self, work: str, rows: Sequence[PromptCandidates], source: CandidateSource) -> Usage:
        """Generate candidates for a group of rows and have them judged, round by round, until the budget ends each."""
        usage, budget, round_number = Usage(), self._budget, 0
        # The budget depends on rewards, so a round's candidates are judged before the next round is sized.
        while open_rows := [
            (row, count) for row in rows if (count := budget.next_count(len(row.candidates), row.rewards)) > 0
        ]:
            requests = [
                CandidateRequest(row.row, row.prompt, self.seeds(row.row, count, len(row.candidates)))
                for row, count in open_rows
            ]
            generated = await source.generate(f"{work}/{round_number}", requests)
            new = [
                [
                    NamedCandidate(f"{CANDIDATE}[{position}]", candidate)
                    for position, candidate in enumerate(row_candidates, len(row.candidates))
                ]
                for (row, _), row_candidates in zip(open_rows, generated, strict=True)
            ]
            usage += generation_usage(generated) + await self.judge(
                f"{work}/{round_number}", [row for row, _ in open_rows], new
            )
            round_number += 1
        return usage

    def seeds(self, name: str, count: int, first: int = 0) -> tuple[int, ...]:
        """Seeds for the texts `first` to `first + count - 1` of a row, or of another thing with a name.

        They depend on the run's seed, the name and the position alone: a row that is sampled again after a crash, in other
        rounds or another part, gets the same candidates.
        """
        return tuple(seed_of(self._seed, name, position) for position in range(first, first + count))

    async def judge(self, work: str, rows: Sequence[PromptCandidates], new: Sequence[Sequence[NamedCandidate]]) -> Usage:
        """Append `new` candidates and their scores to the rows; returns the judge's usage.

        A candidate with a reason (cut off, empty, failed) isn't shown to the judge, and has that reason for a score.
        """
        requests = [_judge_request(row, candidates) for row, candidates in zip(rows, new, strict=True)]
        results = await self._scores(work, [request for request in requests if request.responses])
        added: list[Score] = []
        # `results` has an entry per request that was sent, and an entry a score per judged response: both are taken in
        # order.
        for row, candidates, request in zip(rows, new, requests, strict=True):
            scores = iter(next(results) if request.responses else ())
            row.candidates += candidates
            row.scores += [candidate.generated.unjudged or next(scores) for candidate in candidates]
            added += row.scores[-len(candidates) :] if candidates else []  # [-0:] would be all of them
        judged = [score for score in added if not score.from_store]
        cached = sum(score.cached_tokens or 0 for score in judged)
        return Usage(judge=sum(score.prompt_tokens or 0 for score in judged), judge_cached=cached)

    async def _scores(self, work: str, requests: Sequence[ScoreRequest]) -> Iterator[tuple[Score, ...]]:
        if self._judges is None:
            return iter([(Score.rejected(Reason.UNJUDGED),) * len(request.responses) for request in requests])
        if not requests:
            return iter(())
        # Off the loop: while it renders, no other group could go on.
        rendered = await asyncio.get_running_loop().run_in_executor(self._rendering, self._render, requests)
        return iter(await self._judges.by(calls_prefix(work)).score.remote(work, rendered))

    def _render(self, requests: Sequence[ScoreRequest]) -> list[RenderedRequest]:
        return renderer(self._preparation.model, self._preparation.render).render(requests)

    def table(self, block: pa.Table, rows: Sequence[PromptCandidates | None]) -> tuple[pa.Table, list[Score]]:
        """The rows of a part, and their scores: for each row of `block`, a row per response, with its columns repeated.

        None in `rows` stands for a piece of the file without a row, such as blank lines, and gives none.
        """
        columns = self._preparation.columns
        responses = [(row, *response) for row in rows if row is not None for response in row.responses]
        counts = [0 if row is None else len(row.responses) for row in rows]
        repeated = repeat_rows(block.select(columns.repeated.names), counts)
        scored = [(row.row, name, row.prompt_hash, score) for row, name, score, _ in responses]
        candidates = [candidate for *_, candidate in responses]
        # Without a finish reason there is no text: nothing was generated, and an empty text would look like an answer.
        texts = [
            judged_text(candidate.text, self._preparation)
            if candidate is not None and candidate.finish_reason is not None and columns.text
            else None
            for candidate in candidates
        ]
        return columns.table(repeated, scored, candidates, texts), [score for *_, score in scored]


class SampleStep(CandidateSampler):
    """The actor class for Ray Data: samples blocks and commits them as parts."""

    def __init__(self, settings: SampleStepSettings, files: Any) -> None:
        """`files` is Ray's reference to the `FileTable`."""
        super().__init__(settings.step.preparation, settings.budget, settings.seed, settings.judges)
        self._settings = settings
        self._files: FileTable = ray.get(files)
        self._metrics = RunMetrics(settings.step.preparation.model.model)

    def __call__(self, block: pa.Table) -> pa.Table:
        rows = read_prompt_rows(block)
        # A stretch becomes a part. A thread for each lets the engines work on some while others wait or are written.
        with ThreadPoolExecutor(_STRETCHES_AT_ONCE) as threads:
            most = [self._most_responses] * len(rows)
            parts = stretches(block, self._settings.step.part_rows, rows, responses=most)
            return pa.Table.from_pylist(list(threads.map(self._commit, parts)))

    @property
    def _most_responses(self) -> int:
        return self._settings.budget.settings.n  # for each of which a part repeats the row

    def _commit(self, stretch: Stretch[PromptRow]) -> dict[str, Any]:
        step = self._settings.step
        rows = [
            PromptCandidates(name, prompt) if prompt is not None else None
            for name, prompt in zip(stretch.row_names(self._files.names), stretch.rows, strict=True)
        ]
        # The part's range covers pieces without a row too: the audit adds ranges up to the whole file.
        sampled = [row for row in rows if row is not None]
        work = f"{stretch.file}-{stretch.range.start}-{stretch.range.end}"
        with self._metrics.scoring_part():
            source = self._settings.source
            if isinstance(source, FromFolder):
                source = source.at(stretch.file, stretch.range)
            usage = self.sample(work, sampled, source)
        table, scores = self.table(stretch.table, rows)
        part = stretch.part(len(sampled), scores)
        # Candidates that are only drawn here are counted by the run that judges them.
        if step.parts.commit(part, table, step.metadata) and self._settings.judges is not None:
            self._metrics.committed(part, scores)
        generated = [candidate.generated for row in sampled for candidate in row.candidates]
        causes = Counter(candidate.cause for candidate in generated if candidate.cause)  # what an endpoint said
        return {**part_report(part, scores), **usage._asdict(), "causes": json.dumps(causes)}


def generation_usage(generated: Sequence[Sequence[GeneratedCandidate]]) -> Usage:
    """The policy's prompt tokens for some rows' candidates.

    A prompt counts once for each of its candidates; what of it came out of a prefix cache counts as cached, too.
    """
    candidates = [candidate for row in generated for candidate in row]
    return Usage(
        sum(candidate.prompt_tokens for candidate in candidates),
        sum(candidate.cached_tokens for candidate in candidates),
        retries=sum(candidate.retries for candidate in candidates),
    )


def _judge_request(row: PromptCandidates, candidates: Sequence[NamedCandidate]) -> ScoreRequest:
    judged = (candidate for candidate in candidates if candidate.generated.reason is None)
    responses = tuple(Response(candidate.name, candidate.generated.text) for candidate in judged)
    return replace(row.prompt.request, responses=responses)
