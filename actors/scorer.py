"""From rendered requests to scores, on a live engine: same order, exactly one score per response. Knows no Ray."""

import asyncio
import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from actors.engine import Engine
from actors.errors import EngineDead, EngineError, EngineTimeout
from actors.family import Family
from actors.records import Prompt, Reason, RenderedRequest, Score

Scores = tuple[Score, ...]
"""One score per response of a request, in its order."""


class Scorer:
    """A reward model's contract on a live engine."""

    def __init__(self, family: Family, weights: Mapping[str, float], engine: Engine) -> None:
        self._family = family
        self._weights = weights
        self._engine = engine
        self._ids = map("{}-{}".format, itertools.repeat(uuid.uuid4().hex[:8]), itertools.count())

    def score_block(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """Score many requests from any thread, in one hop to the engine's loop. Raises `EngineDead`."""
        return self._engine.submit(self.score(requests)).result()

    async def score(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        """The same on the engine's own loop."""
        asked = [asyncio.ensure_future(self._ask(prompt)) for request in requests for prompt in request.prompts]
        try:
            answers = iter(await asyncio.gather(*asked))
        except BaseException:
            for question in asked:
                question.cancel()
            raise
        return [_scores(request, [next(answers) for _ in request.prompts]) for request in requests]

    async def _ask(self, prompt: Prompt) -> Score:
        """What one prompt says of the responses that it judges."""
        tokens = len(prompt.ids)
        try:
            pooled = await self._engine.pool(prompt.ids, next(self._ids))
        except EngineDead:
            raise
        except EngineTimeout:
            return Score.failed(Reason.ENGINE_TIMEOUT, tokens)
        except EngineError:
            return Score.failed(Reason.ENGINE_REFUSED, tokens)
        reading = self._family.reading(pooled.values, self._weights)
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
