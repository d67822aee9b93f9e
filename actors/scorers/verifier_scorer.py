"""From rendered requests to scores, by a verifier's code: same order, exactly one score per response."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from actors.contracts.verifier import Verifier
from actors.engine.process_engine import ProcessEngine
from actors.records import Reason, RenderedRequest, Score
from actors.scorers.head_scorer import Scorer, Scores


class VerifierScorer(Scorer):
    """A verifier on its engine, which is a process of plain Python without a model.

    What it finds nothing to compare in fails with the verifier's reason, such as `no_answer`; nothing is scored 0 for it.
    """

    def __init__(self, verifier: Verifier, engine: ProcessEngine) -> None:
        self._verifier = verifier
        self._engine: ProcessEngine = engine

    async def score(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        texts = [prompt.texts for request in requests for prompt in request.prompts]
        results = iter(await self._engine.run(self._verifier.verify, texts))
        return [self._scores(request, list(itertools.islice(results, len(request.prompts)))) for request in requests]

    def _scores(self, request: RenderedRequest, results: Sequence[Score | Reason]) -> Scores:
        by_position = {
            # A verifier's prompt shows one response, and has read no tokens.
            prompt.response_positions[0]: Score.failed(result, 0) if isinstance(result, Reason) else result
            for prompt, result in zip(request.prompts, results, strict=True)
        }
        return tuple(
            response.refusal or replace(by_position[position], reasoned=response.reasoned)
            for position, response in enumerate(request.responses)
        )
