"""What a chat completion of an endpoint holds, whether a policy or a judge wrote it."""

from typing import Any, NamedTuple

from pipelines.sampling.endpoint_client import EndpointFault, FaultKind

_ABORTED = ("abort", "error")
"""Finish reasons of a text that the server itself ended, when it was paused or shut down, say: it is asked for again."""


class Completion(NamedTuple):
    """A text, why it ended, and the counts of its tokens; a count that the endpoint doesn't give is 0."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


def read_completion(answer: Any) -> Completion:
    """The only text in a chat completion.

    Raises `EndpointFault` if the server aborted it; `ValueError`, `TypeError` or `AttributeError` if it is no completion.
    """
    (choice,) = answer.choices
    text, finish, usage = choice.message.content or "", choice.finish_reason or "", answer.usage
    if not isinstance(text, str):
        raise TypeError(f"a completion without text: {text!r}")
    if finish in _ABORTED:
        raise EndpointFault(FaultKind.BUSY, "aborted the request")
    cached_tokens = _count(getattr(usage, "prompt_tokens_details", None), "cached_tokens")
    return Completion(text, finish, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"), cached_tokens)


def _count(usage: Any, name: str) -> int:
    return getattr(usage, name, None) or 0
