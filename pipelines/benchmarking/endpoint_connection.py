"""The connection to an endpoint that scores benchmark files: its models, requests with retries, and how long it may take."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from actors.errors import EndpointError, RunStopped
from pipelines.sampling.endpoint_client import EndpointClient, EndpointFault, FaultKind
from pipelines.sampling.endpoint_faults import KEY, REWARDS, display_url, fault_of
from pipelines.settings.evaluate_settings import EvaluateSettings

_CONNECT_S, _LEAST_PROBE_S = 30.0, 60.0
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
        with openai.OpenAI(base_url=endpoint, api_key=_key(), max_retries=2, timeout=_CONNECT_S) as client:
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


def retrying_client(
    settings: EvaluateSettings, probe: Callable[[], Awaitable[None]], notify: Callable[[str], None]
) -> EndpointClient:
    """Sends requests with retries; after failures it probes the endpoint, up to the settings' patience.

    `notify` is called with what fails, and with how long nothing has been answered.
    """
    return EndpointClient(
        display_url(str(settings.endpoint)),
        probe,
        at_a_time=settings.endpoint_in_flight,
        patience_s=settings.endpoint_patience_s,
        notify=notify,
    )


def http_client(settings: EvaluateSettings) -> Any:
    """OpenAI's asynchronous client of the endpoint, for one event loop."""
    import openai

    timeout = openai.Timeout(settings.endpoint_timeout_s, connect=min(_CONNECT_S, settings.endpoint_timeout_s))
    # No retries of the package's own: the breaker must see each failure.
    return openai.AsyncOpenAI(base_url=settings.endpoint, api_key=_key(), max_retries=0, timeout=timeout)


async def within_patience(settings: EvaluateSettings, answer: Awaitable[object]) -> None:
    """Wait for the answer to a probe. Raises `EndpointFault` if it takes longer than the settings' patience."""
    try:
        async with asyncio.timeout(max(_LEAST_PROBE_S, settings.endpoint_patience_s)):
            await answer
    except TimeoutError as error:
        raise EndpointFault(FaultKind.TIMED_OUT, "didn't answer in time") from error


def _key() -> str:
    """The environment's key; any text for an endpoint that asks for none."""
    return os.environ.get(KEY, "none")
