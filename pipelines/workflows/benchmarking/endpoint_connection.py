"""The connection to an endpoint that scores benchmark files: its models, and requests with retries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from actors.errors import EndpointError
from pipelines.run.sampling.endpoint_client import CircuitBreaker, EndpointClient
from pipelines.run.sampling.endpoint_faults import MODELS, display_url
from pipelines.run.sampling.endpoint_http import http_client, listed_models
from pipelines.settings.evaluate_settings import EvaluateSettings


def served_card(endpoint: str, name: str) -> Mapping[str, Any]:
    """What `/v1/models` says of a model; empty for an endpoint without that route.

    Raises `EndpointError` if the endpoint refuses the question or has no such model; `RunStopped` if it isn't reached now.
    """
    if (listed := listed_models(endpoint, MODELS._replace(option="--model"))) is None:
        return {}
    by_name = {card["id"]: card for card in listed}
    if name not in by_name:
        serves = ", ".join(by_name) or "nothing"
        raise EndpointError(f"the endpoint {display_url(endpoint)} serves no {name}; it serves {serves}")
    return by_name[name]


@dataclass(frozen=True)
class EndpointConnection:
    """A model of an endpoint: `card` is what the endpoint lists of it. Used on one event loop."""

    settings: EvaluateSettings
    name: str
    card: Mapping[str, Any]
    notify: Callable[[str], None]
    """Called with what the endpoint fails by, in words."""

    async def close(self) -> None:
        """End its connections."""
        await self._client.close()

    async def _probe(self) -> None:
        """Send a short request with the settings of all. Raises `EndpointFault`."""
        raise NotImplementedError

    @cached_property
    def _endpoint(self) -> EndpointClient:
        breaker = CircuitBreaker(display_url(str(self.settings.endpoint)), self._probe, self.settings.endpoint_patience_s)
        return EndpointClient(breaker, self.settings.endpoint_in_flight, self.notify)

    @cached_property
    def _client(self) -> Any:
        return http_client(self.settings.endpoint, self.settings.endpoint_timeout_s)
