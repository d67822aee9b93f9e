"""Asks an endpoint of `assay serve` for rewards: which model it serves, and the scores of a request, with retries."""

import asyncio
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from actors.errors import EndpointError, RunStopped
from actors.records import Message, Reason, Response, Role, Score, ScoreRequest, Status
from pipelines.formats import RowShape
from pipelines.run_folder.columns import Columns
from pipelines.sampling.endpoint_client import EndpointClient, EndpointFault, FaultKind
from pipelines.sampling.endpoint_faults import KEY, REWARDS, display_url, fault_of
from pipelines.settings.evaluate_settings import EvaluateSettings

CONNECT_S, LEAST_PROBE_S = 30.0, 60.0
"""A probe gets a minute at least: the endpoint may be loading its model."""
NOT_OURS = (ValueError, TypeError, KeyError, AttributeError, IndexError)
"""What reading an answer raises that isn't of our form."""


def served_card(endpoint: str, name: str) -> Mapping[str, Any]:
    """What `/v1/models` says of a model; empty for an endpoint without that route.

    Raises `EndpointError` if the endpoint refuses the question or has no such model; `RunStopped` if it isn't reached now.
    """
    import openai  # seconds of import, which only a run with an endpoint pays for

    url = display_url(endpoint)
    try:
        with openai.OpenAI(base_url=endpoint, api_key=endpoint_key(), max_retries=2, timeout=CONNECT_S) as client:
            cards = {card.id: card.model_dump() for card in client.models.list()}
    except openai.NotFoundError:
        return {}
    except (openai.APIError, *NOT_OURS) as error:
        fault = fault_of(error, REWARDS)
        if fault.kind in (FaultKind.BUSY, FaultKind.FAILED, FaultKind.TIMED_OUT):
            raise RunStopped(f"the endpoint {url} {fault.text}; run the same command again when it answers") from error
        raise EndpointError(f"the endpoint {url} {fault.text}") from error
    if name not in cards:
        raise EndpointError(f"the endpoint {url} serves no {name}; it serves {', '.join(cards) or 'nothing'}")
    return cards[name]


@dataclass(frozen=True)
class RewardsClient:
    """Scores requests on an endpoint, up to `endpoint_in_flight` at once. Used on one event loop."""

    settings: EvaluateSettings
    name: str
    card: Mapping[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the numbers, as the endpoint says it."""
        card, served = self.card, self.card["identity"]
        return {
            "model": card["root"],
            "endpoint": True,  # how it renders reasoning and long prompts is its own affair: never resumed by a batch run
            "family": card["family"],
            "template": card["template_hash"],
            "max_model_len": card["max_model_len"],
            "reward_weights": card["weights"],
            **{name: served[name] for name in ("revision", "weights", "tokenizer", "config", "dtype", "engine")},
            **({"judge": served["judge"]} if served["judge"] is not None else {}),
        }

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

    async def score(self, request: ScoreRequest) -> list[Score]:
        """A score for each response, in order. What the endpoint refuses, or breaks on while it answers others, has failed.

        Raises `EngineError` if it answers nothing for `endpoint_patience_s`, `EndpointError` if it can't work at all.
        """
        try:
            return await self._endpoint.ask(lambda: self._send(request))
        except EndpointFault as fault:
            refused = fault.kind is FaultKind.REFUSED
            reason = Reason.ENDPOINT_REFUSED if refused else Reason.ENDPOINT_FAILED
            return [Score.failed(reason) for _ in request.responses]

    async def close(self) -> None:
        """End its connections."""
        await self._client.close()

    async def _send(self, request: ScoreRequest) -> list[Score]:
        """Send a request, once. Raises `EndpointFault`."""
        import openai

        conversation = {
            "messages": [{"role": turn.role.value, "content": turn.content} for turn in request.context],
            "responses": [response.content for response in request.responses],
            "principles": list(request.principles),
        }
        body = {"model": self.name, "conversations": [conversation]}
        try:
            answer: Any = await self._client.post(REWARDS.path, cast_to=object, body=body)
            (data,) = answer["data"]
            scores = [_read_score(response, self.card["outputs"]) for response in data["responses"]]
            if len(scores) != len(request.responses):
                raise ValueError(f"{len(scores)} rewards for {len(request.responses)} responses")
        except (openai.APIError, *NOT_OURS) as error:
            raise fault_of(error, REWARDS) from error
        return scores

    async def _probe(self) -> None:
        principles = ("helpfulness",) if self.card["needs_principles"] else ()
        responses = tuple(Response(f"response[{at}]", text) for at, text in enumerate(("Hi.", "Hello.")))
        try:
            async with asyncio.timeout(max(LEAST_PROBE_S, self.settings.endpoint_patience_s)):
                await self._send(ScoreRequest((Message(Role.USER, "Hello"),), responses, principles))
        except TimeoutError as error:
            raise EndpointFault(FaultKind.TIMED_OUT, "didn't answer in time") from error

    @cached_property
    def _endpoint(self) -> EndpointClient:
        settings = self.settings
        return EndpointClient(
            display_url(str(settings.endpoint)),
            self._probe,
            at_a_time=settings.endpoint_in_flight,
            patience_s=settings.endpoint_patience_s,
        )

    @cached_property
    def _client(self) -> Any:
        import openai

        timeout = openai.Timeout(self.settings.endpoint_timeout_s, connect=min(CONNECT_S, self.settings.endpoint_timeout_s))
        # No retries of the package's own: the breaker must see each failure.
        return openai.AsyncOpenAI(base_url=self.settings.endpoint, api_key=endpoint_key(), max_retries=0, timeout=timeout)


def endpoint_key() -> str:
    """The environment's key; any text for an endpoint that asks for none."""
    return os.environ.get(KEY, "none")


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
