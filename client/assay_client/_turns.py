"""OpenAI's Responses as turns of a chat."""

from collections.abc import Iterable, Mapping
from typing import Any


def read_rollout(request: Mapping[str, Any], output: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The conversation of a request and its output, as the endpoint's `/verify` reads it, but without reasoning."""
    prompt = request["input"]
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else read_items(prompt)
    system = [{"role": "system", "content": request["instructions"]}] if request.get("instructions") else []
    messages = [*(system if turns[:1] != system else []), *turns, *read_items(output)]
    return {"messages": messages} | ({"tools": request["tools"]} if request.get("tools") else {})


def read_items(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages, calls of tools and what these answered, in order; reasoning is left out.

    A turn of the assistant is all its items in a row. Parts other than texts stay: the endpoint names them in its refusal.
    """
    turns: list[dict[str, Any]] = []
    # Several items in a row are one turn of the assistant: templates write a header for each turn.
    for turn in (_turn(item) for item in items if item.get("type") != "reasoning"):
        if turns and turn["role"] == turns[-1]["role"] == "assistant":
            texts, calls = [[each[key] for each in (turns[-1], turn) if each.get(key)] for key in ("content", "tool_calls")]
            refused = [parts for parts in texts if not isinstance(parts, str)]
            turns[-1]["content"] = refused[0] if refused else "\n\n".join(texts) or None
            turns[-1] |= {"tool_calls": [call for some in calls for call in some]} if calls else {}
        else:
            turns.append(turn)
    return turns


def _turn(item: Mapping[str, Any]) -> dict[str, Any]:
    if item.get("type") == "function_call":
        call = {"id": item["call_id"], "type": "function", "function": {key: item[key] for key in ("name", "arguments")}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
    content = item["content"]
    texts = [content] if isinstance(content, str) else [part.get("text") for part in content]
    is_text = all(isinstance(text, str) for text in texts)  # an image's or a refusal's part has no text
    return {"role": item["role"], "content": "".join(texts) if is_text else content}
