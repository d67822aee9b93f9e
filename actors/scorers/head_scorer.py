"""From rendered requests to scores, by a reward head: same order, exactly one score per response. Knows no Ray.

`judge_scorer` does the same by a judge's text, and `choose_scorer` says which of them a model needs.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from actors.contracts.family import Family, Rows
from actors.engine.protocol import Engine
from actors.errors import EngineDead, EngineError
from actors.records import Prompt, Reason, RenderedRequest, Score

T = TypeVar("T")

Scores = tuple[Score, ...]  # one score per response of a request, in its order

# Scores many requests: the method of a scorer, or what remembers its scores around it.
ScoreBlock = Callable[[Sequence[RenderedRequest]], list[Scores]]

ScoreRequests = Callable[[Sequence[RenderedRequest]], Awaitable[list[Scores]]]  # the same on an event loop


class Scorer(Protocol):
    """A reward model's contract on a live engine.

    Exactly one score per response, in order. What fails for one prompt is the reason of its responses; a dead engine raises.
    """

    _engine: Engine

    def score_block(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """Score many requests from any thread, in one hop to the engine's loop. Raises `EngineDead`."""
        return self._engine.submit(self.score(requests)).result()

    async def score(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """The same on the engine's own loop."""


async def gather(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all awaitables, in their order.

    The first error cancels the others, and is raised as it is.
    """
    # `asyncio.gather` alone would leave the others running. A TaskGroup would wrap the error in an ExceptionGroup, which
    # nobody who catches `EngineDead` would see.
    tasks = [asyncio.ensure_future(awaitable) for awaitable in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        raise


@dataclass(frozen=True, slots=True)
class _Answer:
    """The engine's answer to a prompt of `tokens` tokens: the head's outputs, or the reason why there are none.

    `rows` has a row of outputs for each position that the prompt is read at.
    """

    rows: Rows
    tokens: int
    failure: Reason | None = None
    cached: int = 0


class HeadOutputs(NamedTuple):
    """The scores of a request's responses, and the head's outputs at each position that was read, prompt after prompt.

    There are no outputs if the engine gave no answer to one of the prompts.
    """

    scores: Scores
    rows: Rows

    @property
    def score(self) -> Score:
        (score,) = self.scores
        return score


class HeadScorer(Scorer):
    """A reward head's contract on a live engine.

    Prompts of a block with equal token ids are asked once, so that equal texts have the same number to the last bit: alone
    or beside other prompts, the engine adds up in another order, and answers about 1e-7 apart in float32.
    """

    def __init__(self, family: Family, weights: Mapping[str, float], engine: Engine, *, one_pass: bool = False) -> None:
        """`one_pass`: a prompt that is the beginning of the next shares its forward pass.

        For that the engine must read any position (`Task.TOKEN_CLASSIFY`).
        """
        self._family = family
        self._weights = weights
        self._engine = engine
        self._one_pass = one_pass

    def score_uncached(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """As `score_block`, and nothing comes out of the engine's prefix cache."""
        return [outputs.scores for outputs in self._engine.submit(self.read(requests, uncached=True)).result()]

    async def score(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        return [outputs.scores for outputs in await self.read(requests)]

    async def read(self, requests: Sequence[RenderedRequest], *, uncached: bool = False) -> list[HeadOutputs]:
        """`score` with the head's outputs. `uncached`: nothing comes out of the engine's prefix cache."""
        prompts = [prompt for request in requests for prompt in request.prompts]
        # Equal ids read at other positions are another question: of a model of steps, each response has its own places.
        questions = [(tuple(prompt.ids), prompt.reads) for prompt in prompts]
        distinct = dict(zip(questions, prompts, strict=True))  # in the order of the first of each
        # The engine keeps prompts of one context beside each other, where its prefix cache still holds the context.
        contexts = {id(prompt): request.prompt_hash for request in requests for prompt in request.prompts}
        runs = group_by_prefix(distinct.values()) if self._one_pass else [[prompt] for prompt in distinct.values()]
        # Runs are cut out of the prompts in their order, so the answers, one after another, are those of the prompts.
        answers = itertools.chain.from_iterable(
            await gather(self._read_run(run, contexts[id(run[-1])], uncached) for run in runs)
        )
        by_question = dict(zip(distinct, answers, strict=True))
        in_order: list[_Answer] = []
        for question in questions:
            in_order.append(answer := by_question[question])
            by_question[question] = replace(answer, cached=answer.tokens)  # it has gone through the model once
        remaining = iter(in_order)
        return [self._outputs(request, [next(remaining) for _ in request.prompts]) for request in requests]

    async def _read_run(self, run: Sequence[Prompt], context: str, uncached: bool) -> list[_Answer]:
        """The answer to each prompt of a run, by one forward pass of the last one, which begins with all others."""
        positions = [position for prompt in run for position in prompt.reads]
        try:
            outputs = await self._engine.pool(run[-1].ids, positions, context=context, uncached=uncached)
        except EngineDead:  # an `EngineError`, too, but of all requests: whoever runs the engine starts another
            raise
        except EngineError as error:
            return [_Answer((), len(prompt.ids), error.reason) for prompt in run]
        rows = iter(outputs.rows)
        # The engine has seen the last prompt alone: it has read the shorter ones in it.
        return [
            _Answer(
                [next(rows) for _ in prompt.reads],
                len(prompt.ids),
                cached=outputs.cached_tokens if prompt is run[-1] else len(prompt.ids),
            )
            for prompt in run
        ]

    def _outputs(self, request: RenderedRequest, answers: Sequence[_Answer]) -> HeadOutputs:
        is_answered = all(answer.failure is None for answer in answers)
        rows = [row for answer in answers for row in answer.rows] if is_answered else []
        return HeadOutputs(self._score_responses(request, answers), rows)

    def _score_responses(self, request: RenderedRequest, answers: Sequence[_Answer]) -> Scores:
        answers_by_response: list[list[_Answer]] = [[] for _ in request.responses]
        for prompt, answer in zip(request.prompts, answers, strict=True):
            for position in prompt.response_positions:
                answers_by_response[position].append(answer)
        scores = [
            response.refusal
            or replace(self._score_response(answers_about), truncated=response.truncated, reasoned=response.reasoned)
            for response, answers_about in zip(request.responses, answers_by_response, strict=True)
        ]
        # Only now, with all responses of the request: some outputs compare a response with the best of the others.
        additions = self._family.compared([score.scores for score in scores])
        return tuple(
            replace(score, scores={**score.scores, **outputs}) if outputs else score
            for score, outputs in zip(scores, additions, strict=True)
        )

    def _score_response(self, answers: Sequence[_Answer]) -> Score:
        """The score of a response from all answers about it. If one of them failed, the response has failed."""
        tokens = sum(answer.tokens for answer in answers)
        # A response with several answers has one for each principle: without one of them the reward would be another one.
        for answer in answers:
            if answer.failure is not None:
                return Score.failed(answer.failure, tokens)
        reading = self._family.reading([answer.rows for answer in answers], self._weights)
        if not reading.finite:
            return Score.failed(Reason.NOT_FINITE, tokens)
        return replace(Score.scored(reading, tokens), cached_tokens=sum(answer.cached for answer in answers))


def group_by_prefix(prompts: Iterable[Prompt]) -> list[list[Prompt]]:
    """Cut prompts into runs in which each is the beginning of the next. A run is one forward pass, of its last prompt.

    In a causal model a prompt's outputs are also those at its place in a longer prompt. A conversation whose n turns are all
    judged is then one pass over its tokens instead of n passes, whose lengths add up to about n / 2 times as many. Token ids
    alone decide, so prompts of a template that changes an earlier turn when a later one follows share nothing.

    The order stays, and only neighbours are compared: a conversation's prompts follow each other, each longer than the last.
    """
    runs: list[list[Prompt]] = []
    for prompt in prompts:
        last = runs[-1][-1].ids if runs else ()
        # An empty prompt begins no other: there is no token to read it at.
        if len(last) > 0 and prompt.ids[: len(last)] == last:
            runs[-1].append(prompt)
        else:
            runs.append([prompt])
    return runs
