"""The connection to an endpoint that scores benchmark files: its models, requests with retries, and how long it may take."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from actors.errors import EndpointError
from pipelines.sampling.endpoint_client import EndpointClient
from pipelines.sampling.endpoint_faults import MODELS, display_url
from pipelines.sampling.endpoint_http import listed_models
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
