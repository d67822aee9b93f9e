"""Asks an endpoint of `assay serve` for rewards: which model it serves, and the scores of a request, with retries."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from actors.records import Message, Reason, Reasoning, Response, Role, Score, ScoreRequest, Status
from actors.text.reasoning import final_answer
from actors.text.tool_calls import as_messages
from pipelines.data.formats import RowShape
from pipelines.folders.run_folder.columns import Columns
from pipelines.run.sampling.endpoint_faults import REWARDS, EndpointFault
from pipelines.run.sampling.endpoint_http import send
from pipelines.workflows.benchmarking.endpoint_connection import EndpointConnection


class RewardsClient(EndpointConnection):
    """Scores requests on an endpoint of `assay serve`."""

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the numbers, as the endpoint says it."""
        # "endpoint": control tokens and the like may be treated otherwise there: never resumed by a batch run
        return {"model": self.card["root"], "endpoint": True, **self.card["identity"]}

    @property
    def takes_principles(self) -> bool:
        """Whether it judges by the principles of a request; the endpoint refuses those that it doesn't go by."""
        return bool(self.card["takes_principles"])

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields that it reads; the endpoint refuses others."""
        return tuple(self.card.get("fields", ()))

    def columns(self, carried: pa.Schema, row_shape: RowShape, prefix: str) -> Columns:
        """The columns of what it scores."""
        served, is_judge = self.card["identity"], self.card["kind"] == "judge"
        return Columns(
            carried,
            tuple(self.card["outputs"]),
            prefix,
            served["steps"],
            votes=is_judge,
            mixed=row_shape.is_mixed,
            text=True,
            within_row=served["within_row"],
        )

    def judged_text(self, text: str) -> str:
        """A response's text as it is judged: without reasoning, if the endpoint strips that."""
        return final_answer(text) if self.card["identity"]["reasoning"] == Reasoning.STRIP else text

    async def score(self, request: ScoreRequest) -> list[Score]:
        """A score for each response, in order. What the endpoint refuses, or breaks on while it answers others, has failed.

        Raises `EngineError` if it answers nothing for `endpoint_patience_s`, `EndpointError` if it can't work at all.
        """
        try:
            return await self._endpoint.ask(lambda: self._send(request))
        except EndpointFault as fault:
            return [Score.failed(fault.reason) for _ in request.responses]

    async def _send(self, request: ScoreRequest) -> list[Score]:
        """Send a request, once. Raises `EndpointFault`."""
        conversation = {
            "messages": as_messages(request.context),
            "tools": list(map(json.loads, request.tools)),
            "responses": [_as_response(response) for response in request.responses],
            "principles": list(request.principles),
            "fields": dict(request.fields),
        }
        body = {"model": self.name, "conversations": [conversation]}

        def read(answer: Any) -> list[Score]:
            (data,) = answer["data"]
            scores = [_read_score(response, self.card["outputs"]) for response in data["responses"]]
            if len(scores) != len(request.responses):
                raise ValueError(f"{len(scores)} rewards for {len(request.responses)} responses")
            return scores

        return await send(self._client, REWARDS, body, read)

    async def _probe(self) -> None:
        principles = ("helpfulness",) if self.card["needs_principles"] else ()
        responses = tuple(Response(f"response[{number}]", text) for number, text in enumerate(("Hi.", "Hello.")))
        fields = dict.fromkeys(self.field_names, "Hello")
        await self._send(ScoreRequest((Message(Role.USER, "Hello"),), responses, principles, fields=fields))


def _as_response(response: Response) -> Any:
    """Its text, or a message where it has calls."""
    (message,) = as_messages((Message(Role.ASSISTANT, response.content, response.calls),))
    return message if response.calls else response.content


def _read_score(response: Mapping[str, Any], outputs: list[str]) -> Score:
    """The score in an answer, its numbers to the last bit. Raises `ValueError` or the like if it is none."""
    status, reason, reward = Status(response["status"]), response["reason"], response["reward"]
    scores = {name: float(value) for name, value in response["scores"].items()}
    if (status is Status.SCORED) is not isinstance(reward, int | float) or not scores.keys() <= set(outputs):
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
