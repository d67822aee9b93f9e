"""From rendered requests to scores, by the answers of an endpoint of `assay serve`: same order, one score per response."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from actors.contracts.served import Served
from actors.endpoint.endpoint_engine import EndpointEngine
from actors.errors import EndpointError, PromptRefused
from actors.records import Reason, RenderedRequest, Score, Status
from actors.scorers.head_scorer import Scorer, Scores, gather


class ServedScorer(Scorer):
    """A served model on its endpoint. Its numbers are read to the last bit.

    JSON writes a float64 by its shortest digits, so a reward is the number that the endpoint has.
    """

    def __init__(self, family: Served, engine: EndpointEngine) -> None:
        self._outputs = {*family.outputs()}
        self._fingerprint = family.fingerprint
        self._engine: EndpointEngine = engine

    async def score(self, requests: Sequence[RenderedRequest]) -> list[Scores]:
        return await gather(map(self._score, requests))

    async def _score(self, request: RenderedRequest) -> Scores:
        if not request.prompts:
            return tuple(response.refusal or Score.rejected(Reason.NO_OPPONENT) for response in request.responses)
        (prompt,) = request.prompts  # the body of a request: the endpoint makes the prompts, one or many
        count = len(request.responses)
        try:
            scores = await self._engine.judge(prompt.texts[0], lambda answer: self._read(answer, count))
        except PromptRefused as error:
            scores = [replace(Score.failed(error.reason), detail=str(error))] * count
        responses = zip(request.responses, scores, strict=True)
        return tuple(replace(score, reasoned=response.reasoned) for response, score in responses)

    def _read(self, answer: Any, count: int) -> list[Score]:
        """The scores in an answer. Raises `ValueError` or the like if it holds others than so many.

        Raises `EndpointError` if another model gave them: under one name, an endpoint may replace a model by another.
        """
        if self._fingerprint is not None and answer["system_fingerprint"] != self._fingerprint:
            raise EndpointError(
                f"the endpoint answers with another model than the one that this run began with (fingerprint "
                f"{answer['system_fingerprint']}, at the start {self._fingerprint}): what is scored stays; score to a new "
                "folder, or serve the first model again"
            )
        (data,) = answer["data"]
        scores = [_read_score(response, self._outputs) for response in data["responses"]]
        if len(scores) != count:  # by position: one too few would give each the next one's reward
            raise ValueError(f"{len(scores)} rewards for {count} responses")
        return scores


def _read_score(response: Mapping[str, Any], outputs: set[str]) -> Score:
    """The score in an answer, its numbers to the last bit. Raises `ValueError` or the like if it is none."""
    status, reason, reward = Status(response["status"]), response["reason"], response["reward"]
    # Nothing is believed: an endpoint may be of another version, or a proxy that answers in its place.
    scores = {name: float(value) for name, value in response["scores"].items()}
    if (status is Status.SCORED) is not isinstance(reward, int | float) or not scores.keys() <= outputs:
        raise ValueError(f"a response with the status {status} has the reward {reward!r} and the scores {', '.join(scores)}")
    score = Score(
        status,
        None if reason is None else Reason(reason),
        None if reward is None else float(reward),
        scores,
        response["prompt_tokens"],
        response["truncated"],
        steps=tuple(map(float, response.get("steps") or ())),
        votes=tuple(map(float, response.get("votes") or ())),
        completion_tokens=response["completion_tokens"],
    )
    if not all(map(math.isfinite, (score.reward or 0.0, *scores.values(), *score.steps, *score.votes))):
        raise ValueError("a reward that isn't finite")
    return score
