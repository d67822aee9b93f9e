"""From rendered requests to scores by a judge's texts: in the same order, exactly one score per response. Knows no Ray.

1. A text is generated for each vote of each prompt, and of several prompts with equal token ids only once: equal responses
   have equal rewards. A knock-out generates round by round.
2. A text without a verdict is generated again, sampled, up to `reask` times.
3. With `stop`, a question's votes are drawn in waves until its verdict is settled (`actors.verdicts.settled`).
4. A response has a reward if every vote about it was heard, and at least half of those on every question could be read.
   Otherwise it has failed, with the reason of the first vote that the engine gave no text for, or that couldn't be read. A
   text that was cut off is never read, whatever it contains.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from random import Random
from statistics import fmean
from typing import Any

from actors.contracts.judge import STOP_OUTPUTS, Judge, Judgement, Verdict
from actors.contracts.showings import Shows
from actors.contracts.stopping import Stopping
from actors.engine.protocol import Engine
from actors.errors import EngineDead, EngineError, Unreadable
from actors.records import JudgeAnswer, Prompt, Reading, Reason, RenderedRequest, Score
from actors.scorers.head_scorer import Scorer, Scores, gather
from actors.settings.replica import Pairs
from actors.verdicts.knockout import Pair, next_pairs
from actors.verdicts.settled import settled_side

# Requests of a block that are in progress at a time. Each may be hundreds of prompts, whose texts are in memory.
_AT_A_TIME = 512
# Characters of both ends of a judge's text for the detail of a score: how it begins, and where its verdict should be.
_END = 200


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One try at a vote: the text, and the verdict in it or the reason why there is none.

    `finish_reason` is None if the engine gave no text.
    """

    text: str
    finish_reason: str | None
    tokens: int
    verdict: Verdict | None = None
    reason: Reason | None = None
    read: int = 0  # the tokens of the prompt, as the engine counted them
    cached: int = 0  # those of them that came out of the prefix cache
    refusal: str = ""  # why the engine gave no text, in its words


@dataclass(frozen=True, slots=True)
class _PromptAnswers:
    """A prompt and, for each of its votes with these numbers, the attempts. Only the last attempt can have a verdict."""

    prompt: Prompt
    numbers: tuple[int, ...]
    votes: tuple[tuple[_Attempt, ...], ...]

    @property
    def attempts(self) -> list[_Attempt]:
        return list(itertools.chain.from_iterable(self.votes))

    @property
    def judgement(self) -> Judgement:
        return Judgement(self.prompt, tuple(vote[-1].verdict for vote in self.votes if vote[-1].verdict is not None))

    @property
    def reasons(self) -> list[Reason | None]:
        return [vote[-1].reason for vote in self.votes]


@dataclass(frozen=True, slots=True)
class _Votes:
    """The votes of a request that are begun, by what decides texts and verdicts: ids, redraw, criteria and number."""

    context: str
    begun: dict[tuple[tuple[int, ...], int, str | None, int], asyncio.Task[tuple[_Attempt, ...]]] = field(
        default_factory=dict
    )


class JudgeScorer(Scorer):
    """A judge's contract on a live engine.

    Asks every prompt as often as it has votes, again where a text holds no verdict, and reads all texts about a response as
    one score. A response without enough readable votes has no reward, and a reason.
    """

    def __init__(
        self,
        judge: Judge,
        weights: Mapping[str, float],
        engine: Engine,
        answer_tokens: int,
        *,
        rehearsal: bool = False,
    ) -> None:
        """`answer_tokens` is the longest answer. In a `rehearsal`, on the fake engine, verdicts are random."""
        self._judge = judge
        self._weights = weights
        self._stopping = Stopping(judge, weights)
        self._engine = engine
        self._answer_tokens = answer_tokens
        self._rehearsal = rehearsal

    async def score(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        places = asyncio.Semaphore(_AT_A_TIME)

        async def score_request(request: RenderedRequest) -> Scores:
            async with places:
                return self._score_responses(request, await self._answer_request(request))

        return await gather(map(score_request, requests))

    async def _answer_request(self, request: RenderedRequest) -> list[_PromptAnswers]:
        """The answers to every prompt of a request, or, of a knock-out, to those that its rounds needed."""
        votes = _Votes(request.prompt_hash)  # of this request alone: equal prompts of others are asked again
        answer = self._answer_until_settled if self._judge.asks.stop else self._answer_all
        # All prompts of a pair: both orders, each with every principle. A comparison is decided by all of them together.
        by_pair: dict[tuple[int, ...], list[Prompt]] = defaultdict(list)
        for prompt in request.prompts:
            by_pair[tuple(sorted(prompt.response_positions))].append(prompt)
        # Of a single response, or lists, there are no pairs to knock out.
        knocks_out = self._judge.pairs is Pairs.ACTIVE and self._judge.together and {*map(len, by_pair)} == {2}
        if not knocks_out:
            of_questions = await gather(answer(prompts, votes) for prompts in by_pair.values())
            in_order = {id(prompt): place for place, prompt in enumerate(request.prompts)}
            return sorted(itertools.chain.from_iterable(of_questions), key=lambda answers: in_order[id(answers.prompt)])
        answers: list[_PromptAnswers] = []
        players = sorted(set(itertools.chain.from_iterable(by_pair)))
        # Pairs whose prompts were rejected count as ties: nobody is out by them, and they aren't tried again.
        shares: dict[Pair, float] = {pair: 0.5 for pair in itertools.combinations(players, 2) if pair not in by_pair}
        while pairs := next_pairs(players, shares):
            # One round at a time: its results decide who meets in the next, and no pair is generated for twice.
            of_pairs = await gather(answer(by_pair[pair], votes) for pair in pairs)
            round_answers = list(itertools.chain.from_iterable(of_pairs))
            answers += round_answers
            shares |= {pair: self._pair_share(pair, round_answers) for pair in pairs}
        return answers

    def _pair_share(self, pair: Pair, answers: Sequence[_PromptAnswers]) -> float:
        """The share of a comparison that the first of a pair won, 0 to 1; 0.5 if no vote could be read."""
        judgements = [answer.judgement for answer in answers if tuple(sorted(answer.prompt.response_positions)) == pair]
        return self._judge.share(judgements, *pair)

    async def _answer_all(self, prompts: Sequence[Prompt], votes: _Votes) -> list[_PromptAnswers]:
        return await gather(self._answer_prompt(prompt, range(prompt.times), votes) for prompt in prompts)

    async def _answer_until_settled(self, prompts: Sequence[Prompt], votes: _Votes) -> list[_PromptAnswers]:
        """The votes of a question in waves, until those that are left can't change its verdict, or not likely enough.

        A quarter of them is asked first and an eighth in each further wave: of 32 that agree, 8 settle it. They are drawn in
        an order that the prompts' texts decide, so that it is the same in every run, and for equal responses; the bound is
        on that draw.
        """
        by_text = sorted((tuple(map(int, prompt.ids)), place) for place, prompt in enumerate(prompts))
        draws = [(prompts[place], vote) for _, place in by_text for vote in range(prompts[place].times)]
        Random(f"{[ids for ids, _ in by_text]} {prompts[0].redraw}").shuffle(draws)
        count = 0
        while True:
            count = min(len(draws), count + (-(-len(draws) // (8 if count else 4))))
            # All votes up to now, not only the new ones: those that are begun are in `votes` and cost nothing again.
            numbers = [[vote for drawn, vote in draws[:count] if drawn is prompt] for prompt in prompts]
            answers = await gather(
                self._answer_prompt(prompt, sorted(of_prompt), votes)
                for prompt, of_prompt in zip(prompts, numbers, strict=True)
            )
            if count == len(draws) or self._is_settled(answers, draws[:count], len(draws)):
                return [answer for answer in answers if answer.votes]

    def _is_settled(self, answers: Sequence[_PromptAnswers], drawn: Sequence[tuple[Prompt, int]], total: int) -> bool:
        """Whether a question's verdict is settled, and the reward by these votes is on that side of it."""
        leanings: dict[int, dict[int, float]] = {}
        for answer in answers:
            shown = answer.prompt.response_positions
            if self._judge.shows is Shows.TWO and len(shown) < 2:
                return False  # it is graded alone, and is better than nothing
            leanings[id(answer.prompt)] = {
                number: self._stopping.leaning(vote[-1].verdict, shown)
                for number, vote in zip(answer.numbers, answer.votes, strict=True)
            }
        # In the order of the draw: the bound holds for votes that are drawn without replacement from all of them.
        side = settled_side([leanings[id(prompt)][vote] for prompt, vote in drawn], total, self._judge.asks.stop_error)
        # Both orders count alike in the reward, however many votes each has had, so each must have had some: its fair share
        # is 1 of 2, half of that will do. And what is read of these votes must be what was settled.
        balanced = all(2 * len(answers) * len(answer.votes) >= len(drawn) for answer in answers)
        mean = fmean(fmean(of_prompt.values()) if of_prompt else 0.0 for of_prompt in leanings.values())
        readable = all(2 * sum(reason is not None for reason in answer.reasons) <= len(answer.votes) for answer in answers)
        return bool(side) and balanced and readable and side * mean > 0

    async def _answer_prompt(self, prompt: Prompt, numbers: Sequence[int], votes: _Votes) -> _PromptAnswers:
        """Votes of a prompt, at the same time; those that an equal prompt has begun are waited for."""
        keys = [(tuple(prompt.ids), prompt.redraw, prompt.criteria, vote) for vote in numbers]
        for key in keys:
            if key not in votes.begun:
                votes.begun[key] = asyncio.ensure_future(self._run_vote(prompt, key[-1], votes.context))
        return _PromptAnswers(prompt, tuple(numbers), tuple(await gather(votes.begun[key] for key in keys)))

    async def _run_vote(self, prompt: Prompt, vote: int, context: str) -> tuple[_Attempt, ...]:
        """The attempts at a vote, up to the first with a verdict, or to one that the engine refused."""
        attempts: list[_Attempt] = []
        count = 1 + self._judge.asks.reask
        # The number of an attempt is in its seed. A redraw (`assay retry`) goes on behind the attempts of earlier draws, or
        # it would get their texts again: with one re-ask, draw 0 has the attempts 0 and 1, draw 1 has 2 and 3.
        for attempt in range(prompt.redraw * count, (prompt.redraw + 1) * count):
            attempts.append(await self._run_attempt(prompt, vote, attempt, context))
            if attempts[-1].verdict is not None or attempts[-1].finish_reason is None:
                break  # what the engine refused, or timed out on, would only take its deadline again
        return tuple(attempts)

    async def _run_attempt(self, prompt: Prompt, vote: int, attempt: int, context: str) -> _Attempt:
        """Generate one text and parse it. Raises `EngineDead` only: any other failure is this attempt's reason."""
        judge = self._judge.for_prompt(prompt)
        sampling = judge.sampling(prompt, vote, attempt, self._answer_tokens)
        try:
            (generation,) = await self._engine.generate(prompt.ids, sampling, context)
        except EngineDead:
            raise
        except EngineError as error:
            return _Attempt(
                "", None, 0, reason=error.reason, read=len(prompt.ids) * self._engine.reads_ids, refusal=str(error)
            )
        # With the begin mark that the template has written, the parser sees where the reasoning begins.
        generation = replace(generation, text=prompt.opening + generation.text)
        cached, read = generation.cached_tokens, generation.cached_tokens + generation.computed_tokens
        result = _Attempt(generation.text, generation.finish_reason, len(generation.token_ids), read=read, cached=cached)
        # Never read, even if it holds a verdict: "Response 1 is better [[A]]. But wait" may have been about to take it back.
        if generation.finish_reason != "stop":
            return replace(result, reason=Reason.CUT_OFF)
        shown = len(prompt.response_positions)
        if self._rehearsal:
            return replace(result, verdict=judge.made_up(Random(f"{vote} {attempt} {prompt.ids}"), shown))
        try:
            return replace(result, verdict=judge.verdict(generation, shown))
        except Unreadable as unreadable:
            return replace(result, reason=unreadable.reason)

    def _score_responses(self, request: RenderedRequest, answers: Sequence[_PromptAnswers]) -> Scores:
        answers_about = [
            [answer for answer in answers if position in answer.prompt.response_positions]
            for position in range(len(request.responses))
        ]
        failures = [self._failure_reason(answers) for answers in answers_about]
        readable = [index for index, failure in enumerate(failures) if failure is None and answers_about[index]]
        # All judgements together, those about failed responses as well: wins and strengths are relative to all of them.
        judgements = [answer.judgement for answer in answers if answer.judgement.verdicts]
        readings = self._judge.readings(judgements, readable, self._weights)
        if self._judge.asks.stop:
            readings = {
                position: replace(reading, scores={**reading.scores, **_stop_outputs(answers_about[position])})
                for position, reading in readings.items()
            }
        return tuple(
            response.refusal
            or replace(
                self._score_response(request, index, answers_about[index], failures[index], readings.get(index)),
                truncated=response.truncated,
                reasoned=response.reasoned,
            )
            for index, response in enumerate(request.responses)
        )

    def _score_response(
        self,
        request: RenderedRequest,
        position: int,
        answers: Sequence[_PromptAnswers],
        failure: Reason | None,
        reading: Reading | None,
    ) -> Score:
        if not answers:  # all that it could be shown with were knocked out before its turn came
            return Score.rejected(Reason.NO_OPPONENT)
        # Each attempt is a prompt of its own for the engine: of 3 votes, one of them with a retry, 4 times its tokens.
        tokens, written, cached = (
            sum(share(sum(map(count, answer.attempts)), answer.prompt, position) for answer in answers)
            for count in map(attrgetter, ("read", "tokens", "cached"))
        )
        if failure is not None:
            score = Score.failed(failure, tokens)
        elif reading is None:
            score = Score.failed(Reason.NO_OPPONENT, tokens)
        elif reading.finite:
            score = Score.scored(reading, tokens)
        else:
            score = Score.failed(Reason.NOT_FINITE, tokens)
        # Texts are long, up to `max_tokens` each: only where the settings ask for them.
        trace = self._trace(request, answers, position) if self._judge.asks.trace else ()
        decisive = next(
            (vote[-1].refusal or vote[-1].text for answer in answers for vote in answer.votes if vote[-1].reason is failure),
            "",
        )
        # The first vote that failed for the reason of the response; empty for a scored one, whose `failure` is None.
        detail = decisive if len(decisive) <= 2 * _END else f"{decisive[:_END]} [...] {decisive[-_END:]}"
        return replace(score, completion_tokens=written, cached_tokens=cached, trace=trace, detail=detail)

    def _failure_reason(self, answers: Sequence[_PromptAnswers]) -> Reason | None:
        """Why a response has no reward: a vote wasn't heard, or over half of those on a question couldn't be read; or None.

        Without the votes that the engine gave no text for, the mean would be another number than that of the settings.
        Each order of a pair is a question of its own: with one order alone, the judge's preference for a place would decide.
        All orders of a list are one question together, since each is shown once or few times.
        """
        votes: dict[tuple[Any, ...], list[Reason | None]] = defaultdict(list)
        if unheard := [vote[-1].reason for answer in answers for vote in answer.votes if vote[-1].finish_reason is None]:
            return unheard[0]
        for answer in answers:
            shown = (
                tuple(sorted(answer.prompt.response_positions))
                if self._judge.shows is Shows.ALL
                else answer.prompt.response_positions
            )
            votes[shown, answer.prompt.principle, answer.prompt.criteria] += answer.reasons
        # Half is enough: 1 of 2 votes, 2 of 3. A question is never made up for by another one's votes.
        for reasons in votes.values():
            unread = [reason for reason in reasons if reason is not None]
            if 2 * len(unread) > len(reasons):
                return unread[0]
        return None

    def _trace(self, request: RenderedRequest, answers: Sequence[_PromptAnswers], position: int) -> tuple[JudgeAnswer, ...]:
        """Every text about a response, in the order of its prompts, votes and attempts."""
        trace: list[JudgeAnswer] = []
        for answer in answers:
            shown = tuple(request.responses[index].name for index in answer.prompt.response_positions)
            for attempt in answer.attempts:
                vote = None
                if attempt.verdict is not None:
                    # Of several responses shown together, a text has a vote for each: this trace is that of `position`.
                    outputs = attempt.verdict.scores[answer.prompt.response_positions.index(position)]
                    vote = (
                        self._judge.vote(outputs, self._weights) if self._judge.is_complete(outputs, self._weights) else None
                    )
                trace.append(
                    JudgeAnswer(shown, answer.prompt.principle, attempt.text, attempt.finish_reason, vote, attempt.reason)
                )
        return tuple(trace)


def _stop_outputs(answers: Sequence[_PromptAnswers]) -> dict[str, float]:
    """How many votes about a response were asked, and the share of its questions that were settled before all were."""
    questions: dict[tuple[int, ...], list[_PromptAnswers]] = defaultdict(list)
    for answer in answers:
        questions[tuple(sorted(answer.prompt.response_positions))].append(answer)
    taken = sum(len(answer.votes) for answer in answers)
    # A question is early if it had fewer votes than its prompts allow, over both orders and all principles.
    early = [
        sum(len(answer.votes) for answer in of) < sum(answer.prompt.times for answer in of) for of in questions.values()
    ]
    return dict(zip(STOP_OUTPUTS, (float(taken), fmean(early)), strict=True))


def share(tokens: int, prompt: Prompt, position: int) -> int:
    """The part of a prompt's tokens that counts for one of the responses that it shows.

    Whole numbers, which add up to `tokens` over the responses exactly: so a run's sum is what the engine read.
    """
    # 100 tokens of three are 34, 33 and 33, in the order shown; rounded parts would add up to 99.
    each, remainder = divmod(tokens, len(prompt.response_positions))
    return each + (prompt.response_positions.index(position) < remainder)
