"""What a chat completion of an endpoint holds, whether a policy or a judge wrote it."""

import re
from typing import Any

from actors.endpoint.faults import EndpointFault, FaultKind
from actors.engine.protocol import Generation

STOP, LENGTH = "stop", "length"
# What servers call the end of a text, in lower case.
_REASONS = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete"), STOP),
    **dict.fromkeys(("length", "max_tokens", "model_length"), LENGTH),
    # A text of which a filter, or a reader of tool calls, may have taken something out is no more whole than one cut off.
    **dict.fromkeys(("content_filter", "safety", "refusal", "tool_calls", "tool_use", "function_call"), "filter"),
}
# Types of parts that aren't what the model answers.
_REASONING = re.compile("think|reason|refusal")


def read_completion(body: Any, max_tokens: int) -> Generation:
    """The only text in a chat completion of at most `max_tokens`; counts that the endpoint doesn't give are 0.

    Raises `EndpointFault` if it hadn't ended; `ValueError`, `TypeError` or the like if it is no completion.
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
    """`stop` if the model ended by itself, `length` if it was cut off, `filter` if it isn't whole, whatever that is called.

    An endpoint that gives no reason has cut a text off that has all the tokens that it may have. Raises `EndpointFault` for
    any other: the server ended it half done, when it was paused or out of time, say.
    """
    if given in (None, ""):
        return LENGTH if is_full else STOP
    reason = _REASONS.get(str(given).lower())
    if reason is None:
        raise EndpointFault(FaultKind.ABORTED, f"gave a text that hadn't ended (finish_reason: {given!r:.50})")
    return reason


def _text(content: object) -> str:
    """The text of a message: a string, the texts of its parts, or nothing. Raises `TypeError` for a part that isn't text."""
    parts = content if isinstance(content, list) else [] if content is None else [content]
    return "".join(map(_part, parts))


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return "" if _REASONING.search(str(part.get("type"))) else part.get("text")


def _count(usage: dict[str, Any], name: str) -> int:
    count = usage.get(name)
    return count if isinstance(count, int) else 0
