"""From rendered requests to scores, by what a judge writes: same order, exactly one score per response. Knows no Ray.

1. Each prompt is put to the judge as often as there are votes for it; a knock-out goes round by round.
2. A text without a verdict is asked for again, sampled, as often as the settings say.
3. A response has a reward if at least half of the votes of every question about it could be read. Otherwise it has failed,
   for the reason of the first that couldn't. A text that was cut off is never read, whatever stands in it.
"""

import asyncio
import itertools
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from actors.contracts.judge import Judge, Judgement, Shows, Verdict
from actors.engine.protocol import Engine
from actors.errors import EngineDead, EngineError, EngineTimeout, Unreadable
from actors.records import JudgeAnswer, Prompt, Reason, RenderedRequest, Score
from actors.scorers.head_scorer import Scores, gather
from actors.settings.replica import Pairs
from actors.verdicts.knockout import Pair, next_pairs

_AT_A_TIME = 512
"""Requests of a block that are under way at a time; each may be hundreds of questions to the engine."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One text, or none, and the verdict in it, or why there is none."""

    text: str
    finish_reason: str | None
    tokens: int
    verdict: Verdict | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A prompt and, for each vote, the attempts at it. Only the last can have a verdict."""

    prompt: Prompt
    votes: tuple[tuple[_Attempt, ...], ...]

    @property
    def attempts(self) -> list[_Attempt]:
        """Of all votes."""
        return list(itertools.chain.from_iterable(self.votes))

    @property
    def judgement(self) -> Judgement:
        """What could be read."""
        return Judgement(self.prompt, tuple(vote[-1].verdict for vote in self.votes if vote[-1].verdict is not None))

    @property
    def reasons(self) -> list[Reason | None]:
        """Of each vote, why it couldn't be read, or None."""
        return [vote[-1].reason for vote in self.votes]


class JudgeScorer:
    """A judge's contract on a live engine."""

    def __init__(
        self,
        judge: Judge,
        weights: Mapping[str, float],
        engine: Engine,
        answer_tokens: int,
        adapter: str | None = None,
        *,
        rehearsal: bool = False,
    ) -> None:
        """`answer_tokens` is the longest answer, `adapter` the folder of a LoRA adapter.

        In a `rehearsal`, on the fake engine, verdicts are made up, whatever its words are.
        """
        self._judge = judge
        self._weights = weights
        self._engine = engine
        self._answer_tokens = answer_tokens
        self._adapter = adapter
        self._rehearsal = rehearsal
        self._ids = map("{}-{}".format, itertools.repeat(uuid.uuid4().hex[:8]), itertools.count())

    def score_block(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """Score many requests from any thread, in one hop to the engine's loop. Raises `EngineDead`."""
        return self._engine.submit(self.score(requests)).result()

    async def score(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """The same on the engine's own loop."""
        places = asyncio.Semaphore(_AT_A_TIME)

        async def one(request: RenderedRequest) -> Scores:
            async with places:
                return self._scores(request, await self._asked(request))

        return await gather(map(one, requests))

    async def _asked(self, request: RenderedRequest) -> list[_Asked]:
        """All that is asked about a request: every prompt, or those of a knock-out as far as it goes."""
        if self._judge.asks.pairs is not Pairs.ACTIVE or not self._judge.together:
            return await gather(map(self._ask, request.prompts))
        by_pair: dict[tuple[int, ...], list[Prompt]] = defaultdict(list)
        for prompt in request.prompts:
            by_pair[tuple(sorted(prompt.judges))].append(prompt)
        if any(len(shown) != 2 for shown in by_pair):  # a response alone, or lists, have nobody to knock out
            return await gather(map(self._ask, request.prompts))
        asked: list[_Asked] = []
        players = sorted(set(itertools.chain.from_iterable(by_pair)))
        # Those that can't be shown together are none the wiser: as a tie, it puts nobody out.
        shares: dict[Pair, float] = {pair: 0.5 for pair in itertools.combinations(players, 2) if pair not in by_pair}
        while pairs := next_pairs(players, shares):
            found = await gather(self._ask(prompt) for pair in pairs for prompt in by_pair[pair])
            asked += found
            shares |= {pair: self._share(pair, found) for pair in pairs}
        return asked

    def _share(self, pair: Pair, asked: Sequence[_Asked]) -> float:
        """How much of a comparison the first of a pair won: half, if nothing could be read."""
        judgements = [one.judgement for one in asked if tuple(sorted(one.prompt.judges)) == pair]
        return self._judge.share(judgements, *pair)

    async def _ask(self, prompt: Prompt) -> _Asked:
        return _Asked(prompt, tuple(await gather(self._vote(prompt, vote) for vote in range(prompt.times))))

    async def _vote(self, prompt: Prompt, vote: int) -> tuple[_Attempt, ...]:
        attempts: list[_Attempt] = []
        for attempt in range(1 + self._judge.asks.reask):
            attempts.append(await self._attempt(prompt, vote, attempt))
            if attempts[-1].verdict is not None or attempts[-1].finish_reason is None:
                break
        return tuple(attempts)

    async def _attempt(self, prompt: Prompt, vote: int, attempt: int) -> _Attempt:
        sampling = self._judge.sampling(prompt, vote, attempt, self._answer_tokens)
        try:
            (said,) = await self._engine.generate(prompt.ids, replace(sampling, adapter=self._adapter), next(self._ids))
        except EngineDead:
            raise
        except EngineTimeout:
            return _Attempt("", None, 0, reason=Reason.ENGINE_TIMEOUT)
        except EngineError:
            return _Attempt("", None, 0, reason=Reason.ENGINE_REFUSED)
        said = replace(said, text=prompt.opening + said.text)
        told = _Attempt(said.text, said.finish_reason, len(said.token_ids))
        if said.finish_reason != "stop":
            return replace(told, reason=Reason.CUT_OFF)
        shown = len(prompt.judges)
        if self._rehearsal:
            return replace(told, verdict=self._judge.made_up(Random(f"{vote} {attempt} {prompt.ids}"), shown))
        try:
            return replace(told, verdict=self._judge.verdict(said, shown))
        except Unreadable as unreadable:
            return replace(told, reason=unreadable.reason)

    def _scores(self, request: RenderedRequest, asked: Sequence[_Asked]) -> Scores:
        """A score for each response from all that was asked about it, beside those that were rejected before."""
        about = [[one for one in asked if at in one.prompt.judges] for at in range(len(request.responses))]
        failures = {at: self._failure(own) for at, own in enumerate(about) if request.responses[at].reason is None}
        judged = [at for at, failure in failures.items() if failure is None and about[at]]
        readings = self._judge.readings([one.judgement for one in asked if one.judgement.verdicts], judged, self._weights)
        scores: list[Score] = []
        for at, response in enumerate(request.responses):
            if response.refusal is not None:
                scores.append(response.refusal)
                continue
            tokens = sum(share(len(one.prompt.ids) * len(one.attempts), one.prompt, at) for one in about[at])
            if not about[at]:  # all that it could be shown with were knocked out before its turn came
                scores.append(
                    replace(Score.rejected(Reason.NO_OPPONENT), truncated=response.truncated, reasoned=response.reasoned)
                )
                continue
            failure = failures[at]
            if failure is not None:
                score = Score.failed(failure, tokens)
            elif at not in readings:
                score = Score.failed(Reason.NO_OPPONENT, tokens)
            elif readings[at].finite:
                score = Score.scored(readings[at], tokens)
            else:
                score = Score.failed(Reason.NOT_FINITE, tokens)
            written = sum(share(sum(said.tokens for said in one.attempts), one.prompt, at) for one in about[at])
            trace = self._trace(request, about[at], at) if self._judge.asks.trace else ()
            score = replace(score, truncated=response.truncated, reasoned=response.reasoned)
            scores.append(replace(score, completion_tokens=written, trace=trace))
        return tuple(scores)

    def _failure(self, about: Sequence[_Asked]) -> Reason | None:
        """Why a response has no reward: of some question about it fewer than half of the votes could be read.

        Each order of a pair is a question of its own, or the order would decide. A list's orders are one together.
        """
        votes: dict[tuple[Any, ...], list[Reason | None]] = defaultdict(list)
        for one in about:
            shown = tuple(sorted(one.prompt.judges)) if self._judge.shows is Shows.ALL else one.prompt.judges
            votes[shown, one.prompt.principle] += one.reasons
        for reasons in votes.values():
            unread = [reason for reason in reasons if reason is not None]
            if 2 * len(unread) > len(reasons):
                return unread[0]
        return None

    def _trace(self, request: RenderedRequest, asked: Sequence[_Asked], at: int) -> tuple[JudgeAnswer, ...]:
        """Every text about a response, in the order in which they were asked for."""
        trace: list[JudgeAnswer] = []
        for one in asked:
            shown = tuple(request.responses[position].name for position in one.prompt.judges)
            for said in one.attempts:
                vote = None
                if said.verdict is not None:
                    given = said.verdict.scores[one.prompt.judges.index(at)]
                    vote = self._judge.vote(given, self._weights) if self._judge.complete(given, self._weights) else None
                trace.append(JudgeAnswer(shown, one.prompt.principle, said.text, said.finish_reason, vote, said.reason))
        return tuple(trace)


def share(tokens: int, prompt: Prompt, at: int) -> int:
    """What of a prompt's tokens counts for one of the responses that it shows; together they have all of them."""
    each, left = divmod(tokens, len(prompt.judges))
    return each + (prompt.judges.index(at) < left)
