"""What an endpoint fails by, read from an error of OpenAI's package or an HTTP status. The kind decides about retries."""

import contextlib
import email.utils
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

from actors.records import Reason

_BUSY = (408, 409, 425, 429)
# By these a gateway says that it waits no longer, while the server behind it may go on writing.
_GIVEN_UP = (408, 504, 524)
_UNUSABLE = (401, 402, 404, 405)
_CLIENT_ERROR, _SERVER_ERROR = 400, 500  # the first status of the 4xx and of the 5xx
_MOST_TEXT = 500  # characters of an error's text that a message quotes
KEY = "OPENAI_API_KEY"
# Characters of a key that is a secret; a shorter one, such as "EMPTY", may be a word of any text.
_LEAST_KEY = 8


class FaultKind(Enum):
    """Who may be at fault: the endpoint, this request, or the settings.

    The kind decides how often a request is sent again (`client`), and whether a run whose first probe fails waits or ends.
    """

    BUSY = "busy"  # the endpoint: it isn't reachable, or is overloaded (429); this request, if it never gets another answer
    FAILED = "failed"  # the endpoint, or this request, which makes it answer 5xx or drop the connection
    TIMED_OUT = "timed out"  # as `FAILED`, and it cost the whole request time-out
    ABORTED = "aborted"  # as `FAILED`, but no other request suffers by it: the text hadn't ended
    # As `FAILED`: the answer is no chat completion. Before any good answer: something else listens at the address.
    GARBLED = "garbled"
    REFUSED = "refused"  # this request; before any good answer, the settings that all requests share
    # The address, the key or the model's name. After good answers: as `BUSY`, since the endpoint may change back.
    UNUSABLE = "unusable"


@dataclass(eq=False)
class EndpointFault(Exception):
    """A request that wasn't answered; `text` says why, as a predicate whose subject is the endpoint.

    `retry_after_s` is the endpoint's Retry-After in seconds, 0 without one.
    """

    kind: FaultKind
    text: str
    retry_after_s: float = 0.0
    is_free: bool = False
    """Whether nobody pays for it: it was answered by a status, but for a gateway's that gave up waiting, or never got there.
    Else a text may have been written."""

    @property
    def reason(self) -> Reason:
        if self.kind is not FaultKind.REFUSED:
            return Reason.ENDPOINT_FAILED
        # vLLM, OpenAI and NIM all say so in these words.
        is_too_long = self.text.startswith("answers 400") and "context length" in self.text
        return Reason.TOO_LONG if is_too_long else Reason.ENDPOINT_REFUSED


class Route(NamedTuple):
    """What is asked of an endpoint: the route after its address, what it answers, and the option that names the model."""

    path: str
    answer: str
    option: str


CHAT = Route("/chat/completions", "a chat completion", "--policy-name")
JUDGING = CHAT._replace(option="--model")
REWARDS = Route("/rewards", "rewards", "--model")
MODELS = Route("/models", "a list of models", "--policy-name")


def display_url(url: str) -> str:
    """An endpoint's address for messages: without a user name, password and query, which may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def fault_of(error: Exception, route: Route = CHAT) -> EndpointFault:
    """The fault for an error of OpenAI's package, or for one raised before anything is sent, by a key that isn't ASCII."""
    import openai  # seconds of import, which only a run with an endpoint pays for

    if isinstance(error, openai.APITimeoutError):  # a subclass of APIConnectionError, so it comes first
        return _unconnected(error, FaultKind.TIMED_OUT, "didn't answer in time")
    if isinstance(error, openai.APIStatusError):
        return fault_of_status(error.status_code, error.message, error.response.headers, route)
    if isinstance(error, openai.APIConnectionError):
        return _unconnected(error, FaultKind.BUSY, "can't be reached")
    return EndpointFault(FaultKind.UNUSABLE, f"can't be asked: {in_a_line(str(error))}")


def fault_of_status(status: int, message: str, headers: Mapping[str, str], route: Route) -> EndpointFault:
    """The fault for an HTTP status, with the message of its answer.

    A 4xx is the request's fault, but for those of a busy endpoint (408, 409, 425, 429) and of the settings (401, 402, 404,
    405); a 5xx is the endpoint's, or the request's that broke it.
    """
    text = f"answers {status}: {in_a_line(message)}"
    if status in (401, 403):
        text += f"; the key is what {KEY} holds on the machines that do the work" + (
            "" if os.environ.get(KEY) else ", and there it isn't set"
        )
    if status == 404:
        text += f"; the address should end where {route.path} follows (/v1), and {route.option} be a model that is there"
    wait = _retry_after_s(headers)
    if status in _UNUSABLE:
        kind = FaultKind.UNUSABLE
    elif _CLIENT_ERROR <= status < _SERVER_ERROR and status not in _BUSY:
        kind = FaultKind.REFUSED
    else:
        # A 5xx with Retry-After is BUSY as well: by that a server says that it is overloaded.
        kind = FaultKind.FAILED if status >= _SERVER_ERROR and not wait else FaultKind.BUSY
    return EndpointFault(kind, text, wait, is_free=status not in _GIVEN_UP)


def _unconnected(error: Exception, kind: FaultKind, text: str) -> EndpointFault:
    """The fault for a connection that gave no answer. The last error in the chain of causes says why."""
    causes: list[BaseException] = [error]
    while (deeper := causes[-1].__cause__ or causes[-1].__context__) is not None and deeper not in causes:
        causes.append(deeper)
    why = in_a_line(str(causes[-1]) or type(causes[-1]).__name__)
    text = f"{text}: {'connection refused' if isinstance(causes[-1], ConnectionRefusedError) else why}"
    types = {type(cause).__name__ for cause in causes}
    # By name: httpx and httpcore, which it wraps, each have exceptions of these names, and both may be in the chain.
    unknown = any(isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME for cause in causes)
    untrusted = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes)
    if unknown or untrusted or types & {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}:
        return EndpointFault(FaultKind.UNUSABLE, text, is_free=True)
    if types & {"ConnectError", "ConnectTimeout", "PoolTimeout"}:
        return EndpointFault(FaultKind.BUSY, text, is_free=True)
    # The connection was made and then broke: this request may be the reason.
    return EndpointFault(FaultKind.FAILED if kind is FaultKind.BUSY else kind, text)


def _retry_after_s(headers: Mapping[str, str]) -> float:
    # The Retry-After header in seconds from now; it holds seconds or a date. 0 if it is missing or in the past.
    text = headers.get("retry-after", "")
    with contextlib.suppress(ValueError):
        return max(0.0, float(text))
    with contextlib.suppress(ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return 0.0


def in_a_line(text: str) -> str:
    """The text in one line, cut to 500 characters, without the key: errors may be whole HTML pages, and quote headers."""
    key = os.environ.get(KEY, "").strip()
    shown = text.replace(key, "[the key]") if len(key) >= _LEAST_KEY else text
    return " ".join(shown.split())[:_MOST_TEXT]
