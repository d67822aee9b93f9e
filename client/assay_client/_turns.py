"""OpenAI's Responses as turns of a chat."""

from collections.abc import Iterable, Mapping
from typing import Any


def read_items(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages, calls of tools and what these answered, in order; reasoning is left out."""
    return [_turn(item) for item in items if item.get("type") != "reasoning"]


def _turn(item: Mapping[str, Any]) -> dict[str, Any]:
    if item.get("type") == "function_call":
        call = {"id": item["call_id"], "type": "function", "function": {key: item[key] for key in ("name", "arguments")}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
    content = item["content"]
    return {
        "role": item["role"],
        "content": content if isinstance(content, str) else "".join(part["text"] for part in content),
    }
