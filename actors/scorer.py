"""From rendered requests to scores, on a live engine: same order, exactly one score per response. Knows no Ray."""

import asyncio
import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from actors.engine import Engine
from actors.errors import EngineDead, EngineError, EngineTimeout
from actors.family import Family
from actors.one_pass import shared
from actors.records import Prompt, Reason, RenderedRequest, Score

Scores = tuple[Score, ...]
"""One score per response of a request, in its order."""


class Scorer:
    """A reward model's contract on a live engine."""

    def __init__(
        self, family: Family, weights: Mapping[str, float], engine: Engine, *, every_position: bool = False
    ) -> None:
        """`every_position` says that the engine reads anywhere in a prompt: turns of a conversation share forward passes."""
        self._family = family
        self._weights = weights
        self._engine = engine
        self._every_position = every_position
        self._ids = map("{}-{}".format, itertools.repeat(uuid.uuid4().hex[:8]), itertools.count())

    def score_block(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """Score many requests from any thread, in one hop to the engine's loop. Raises `EngineDead`."""
        return self._engine.submit(self.score(requests)).result()

    async def score(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """The same on the engine's own loop."""
        prompts = [prompt for request in requests for prompt in request.prompts]
        runs = shared(prompts) if self._every_position else [[prompt] for prompt in prompts]
        asked = [asyncio.ensure_future(self._ask(run)) for run in runs]
        try:
            answers = itertools.chain.from_iterable(await asyncio.gather(*asked))
        except BaseException:
            for question in asked:
                question.cancel()
            raise
        return [_scores(request, [next(answers) for _ in request.prompts]) for request in requests]

    async def _ask(self, run: Sequence[Prompt]) -> list[Score]:
        """What each prompt says of the responses that it judges, by one forward pass of the last, which holds the others."""
        lengths = [len(prompt.ids) for prompt in run]
        try:
            pooled = await self._engine.pool(run[-1].ids, next(self._ids), [tokens - 1 for tokens in lengths])
        except EngineDead:
            raise
        except EngineTimeout:
            return [Score.failed(Reason.ENGINE_TIMEOUT, tokens) for tokens in lengths]
        except EngineError:
            return [Score.failed(Reason.ENGINE_REFUSED, tokens) for tokens in lengths]
        return [self._score(values, tokens) for values, tokens in zip(pooled.rows, lengths, strict=True)]

    def _score(self, values: Sequence[float], tokens: int) -> Score:
        """The reward in a head's outputs at the end of so many tokens."""
        reading = self._family.reading(values, self._weights)
        return Score.scored(reading, tokens) if reading.finite else Score.failed(Reason.NOT_FINITE, tokens)


def _scores(request: RenderedRequest, answers: Sequence[Score]) -> Scores:
    """The answers at the responses they are about, beside the responses that were rejected before."""
    by_position = {
        position: answer for prompt, answer in zip(request.prompts, answers, strict=True) for position in prompt.judges
    }
    return tuple(
        Score.rejected(response.reason)
        if response.reason is not None
        else replace(by_position[position], truncated=response.truncated)
        for position, response in enumerate(request.responses)
    )
