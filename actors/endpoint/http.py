"""Requests to an endpoint by OpenAI's package, and what is read in the bodies of its answers.

Bodies are read here and not by the package, which validates none: `{"error": ...}` under status 200 would be a completion
without choices, and something else than JSON a string.
"""

import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from actors.endpoint.faults import KEY, EndpointFault, FaultKind, Route, display_url, fault_of, fault_of_status, in_a_line
from actors.errors import EndpointError, RunStopped

T = TypeVar("T")

_CONNECT_S = 30.0
# What reading an answer raises that isn't of its route's form.
_NOT_OURS = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)
_STATUS = re.compile("[45][0-9]{2}")


def http_client(url: str | None, timeout_s: float) -> Any:
    """OpenAI's asynchronous client of an endpoint, for one event loop."""
    import openai  # seconds of import, which only a run with an endpoint pays for

    timeout = openai.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s))
    # No retries of the package's own: the breaker must see each failure.
    return openai.AsyncOpenAI(base_url=url, api_key=_key(), max_retries=0, timeout=timeout)


async def send(client: Any, route: Route, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
    """Send a request once; what `read` makes of its answer. Raises `EndpointFault`."""
    return read_answer(await post(client, route, body), route, read)


async def post(client: Any, route: Route, body: Mapping[str, Any]) -> Any:
    """The body of the answer to a request, parsed. Raises `EndpointFault`, also if it is no JSON."""
    return _parsed(await answered(client.post(route.path, cast_to=str, body=body), route), route)


async def answered(request: Awaitable[T], route: Route) -> T:
    """What a request of OpenAI's client returns. Raises `EndpointFault` for what it raises."""
    import openai

    try:
        return await request
    except (openai.APIError, ValueError) as error:
        raise fault_of(error, route) from error


def listed_models(url: str, route: Route) -> list[Mapping[str, Any]] | None:
    """The cards of the models that an endpoint lists; None if it has no such route.

    Raises `EndpointError` if it refuses the question, `RunStopped` if it can't be reached now.
    """
    import openai

    try:
        with openai.OpenAI(base_url=url, api_key=_key(), max_retries=2, timeout=_CONNECT_S) as client:
            return read_answer(_parsed(client.get(route.path, cast_to=str), route), route, _cards)
    except openai.NotFoundError:
        return None
    except (openai.APIError, ValueError, EndpointFault) as error:
        fault = error if isinstance(error, EndpointFault) else fault_of(error, route)
        if fault.kind not in (FaultKind.BUSY, FaultKind.FAILED, FaultKind.TIMED_OUT):
            raise EndpointError(f"the endpoint {display_url(url)} {fault.text}") from error
        raise RunStopped(
            f"the endpoint {display_url(url)} didn't say which model it serves, and a run resumes only with the same one: "
            f"it {fault.text}; run the same command again when it answers"
        ) from error


def _cards(body: Any) -> list[Mapping[str, Any]]:
    listed: list[Mapping[str, Any]] = body if isinstance(body, list) else body["data"]
    return [card for card in listed if isinstance(card["id"], str)]


def read_answer(body: Any, route: Route, read: Callable[[Any], T]) -> T:
    """What `read` makes of the body of an answer with status 200.

    Raises `EndpointFault` for an error in it, as for that status if its code is one, and if `read` can't read it.
    """
    try:
        if isinstance(body, dict) and body.get("error"):
            raise _fault_in(body["error"], route)
        return read(body)
    except _NOT_OURS as error:
        # Half a surrogate pair, which JSON can escape, could be written nowhere.
        text = json.dumps(body, ensure_ascii=False).encode(errors="replace").decode()
        raise _garbled(text, route) from error


def _parsed(text: str, route: Route) -> Any:
    try:
        return json.loads(text)
    except _NOT_OURS as error:
        raise _garbled(text, route) from error


def _garbled(text: str, route: Route) -> EndpointFault:
    beginning = in_a_line(text) or "nothing"
    return EndpointFault(FaultKind.GARBLED, f"answered with something other than {route.answer}: {beginning}")


def _fault_in(error: Any, route: Route) -> EndpointFault:
    # The fault for an error under status 200, as gateways answer when the server behind them fails.
    details = error if isinstance(error, dict) else {"message": error}
    message, code = str(details.get("message") or error), str(details.get("code"))
    if _STATUS.fullmatch(code):
        return fault_of_status(int(code), f"{message} (an error in a 200)", {}, route)
    return EndpointFault(FaultKind.GARBLED, f"answered with an error instead of {route.answer}: {in_a_line(message)}")


def _key() -> str:
    return os.environ.get(KEY, "none")
