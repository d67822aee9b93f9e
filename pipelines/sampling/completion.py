"""What a chat completion of an endpoint holds, whether a policy or a judge wrote it."""

import re
from typing import Any

from actors.engine.protocol import Generation
from pipelines.sampling.endpoint_faults import EndpointFault, FaultKind

STOP, LENGTH = "stop", "length"
_ABORTED = re.compile("abort|error|cancel|insufficient_system_resource")
"""Finish reasons of a text that the server itself ended, when it was paused or shut down, say: it is asked for again."""
_CUT_OFF = re.compile("length|max.*token|token.*limit|context|trunc|incomplete")
_FILTERED = re.compile("filter|safety|recitation|block|prohibited|spii|refus")
"""A text of which a filter may have left something out is no more whole than one that was cut off."""
_REASONING = re.compile("think|reason|refusal")
"""Types of parts that aren't what the model answers."""


def read_completion(body: Any, max_tokens: int) -> Generation:
    """The only text in a chat completion of at most `max_tokens`; counts that the endpoint doesn't give are 0.

    Raises `EndpointFault` if the server aborted it; `ValueError`, `TypeError` or the like if it is no completion.
    """
    (choice,) = body["choices"]
    usage = body.get("usage") or {}
    tokens = _count(usage, "completion_tokens")
    cached_tokens = _count(usage.get("prompt_tokens_details") or {}, "cached_tokens")
    finish = _finish_reason(choice.get("finish_reason"), tokens >= max_tokens)
    # Which tokens they were isn't said: as many as were written, for the counts. Reasoning that the endpoint has taken out
    # of the text isn't looked at: a verdict or an answer stands after it.
    computed_tokens = _count(usage, "prompt_tokens") - cached_tokens
    return Generation(_text(choice["message"].get("content")), (0,) * tokens, finish, (), cached_tokens, computed_tokens)


def _finish_reason(given: object, is_full: bool) -> str:
    """`stop` if the model ended by itself, `length` if it was cut off, whatever the endpoint calls that; else its word.

    An endpoint that doesn't say it has cut a text off that has all the tokens that it may have.
    """
    reason = "" if given is None else str(given).lower()
    if _ABORTED.search(reason):
        raise EndpointFault(FaultKind.BUSY, "aborted the request")
    if _CUT_OFF.search(reason) or (not reason and is_full):
        return LENGTH
    return reason if _FILTERED.search(reason) else STOP


def _text(content: object) -> str:
    """The text of a message: a string, the texts of its parts, or nothing. Raises `TypeError` for a part that isn't text."""
    parts = content if isinstance(content, list) else [] if content is None else [content]
    return "".join(map(_part, parts))


def _part(part: object) -> str:
    if isinstance(part, dict):
        if _REASONING.search(str(part.get("type"))):
            return ""
        part = part.get("text")
    if not isinstance(part, str):
        raise TypeError("a part that isn't text")
    return part


def _count(usage: dict[str, Any], name: str) -> int:
    count = usage.get(name)
    return count if isinstance(count, int) else 0
